// SPDX-License-Identifier: GPL-2.0-only

//! Random parameters of each connection.

use sdp_protocol::Parameters;

use crate::foreign::Flavour;
use crate::rng::Rng;

/// Parameters that differ between connections.
pub(super) struct Setup {
    pub(super) budget: u16,
    pub(super) size: u32,
    pub(super) depth: u16,
    pub(super) largest: u32,
    pub(super) adverts: u16,
    pub(super) zero_copy: bool,
    pub(super) flavour: Option<Flavour>,
}

impl Setup {
    fn new(rng: &mut Rng, foreign: bool) -> Self {
        let budget = match rng.below(6) {
            0 => 3,
            1 => 4,
            2 => 64,
            3 => 300,
            _ => rng.range(5, 16) as u16,
        };
        let size = rng.pick(&[64, 80, 128, 300, 2064]);
        let larger = size + rng.range(1, 2000);
        let mut setup = Setup {
            budget,
            size,
            depth: rng.pick(&[1, 2, 8, 64]),
            largest: rng.pick(&[0, larger]),
            adverts: rng.pick(&[1, 2, 16, 255]),
            zero_copy: !rng.one_in(4),
            flavour: None,
        };
        if foreign {
            let flavour = flavour(rng, setup.adverts, larger);
            setup.adverts = flavour.max_adverts;
            setup.flavour = Some(flavour);
        }
        setup
    }

    /// Returns the parameters of both ends; the second one may be foreign.
    pub(super) fn pair(rng: &mut Rng, foreign: bool) -> [Setup; 2] {
        let mut setups = [Setup::new(rng, false), Setup::new(rng, foreign)];
        if setups[1].flavour.is_some_and(|f| f.zero_copy) && rng.one_in(2) {
            // by an advert of this size, a foreign peer shows that it supports adverts
            setups[1].size = 32784;
        }
        // An end with three buffers replies to every message, and so may the other end at any time:
        // the ends would send credit updates without end. An end of this module must have four
        // buffers, unless the other end also runs this module and announces so.
        for side in 0..2 {
            let ours = setups[side].flavour.is_none();
            let other_ofed = setups[1 - side].adverts == 1;
            if ours && (foreign || other_ofed || side == 1 && setups[0].budget == 3) {
                setups[side].budget = setups[side].budget.max(4);
            }
        }
        setups
    }

    /// Returns the parameters of an end of this module with this setup, towards the `other`.
    pub(super) fn parameters(&self, other: &Setup, rng: &mut Rng) -> Parameters {
        let silent = other.flavour.is_some_and(|f| f.silent_hello);
        Parameters {
            local_receive_size: self.size,
            remote_receive_size: other.size,
            local_max_adverts: match other.flavour {
                // Maximum number of adverts that the flavour assumes to be outstanding.
                Some(flavour) if flavour.pipelined > 0 => flavour.pipelined,
                _ => self.adverts,
            },
            remote_max_adverts: other.adverts,
            posted: self.budget,
            credits: if silent { 0 } else { other.budget },
            desired_remote_size: rng.pick(&[0, other.size + 1000]),
            zero_copy: self.zero_copy,
        }
    }
}

/// Returns an implementation that advertises up to `adverts` at once, and may request buffers of
/// `larger` bytes.
fn flavour(rng: &mut Rng, adverts: u16, larger: u32) -> Flavour {
    let kind = rng.below(4);
    let zero_copy = kind == 2 || kind == 3;
    let silent = kind == 2 && rng.one_in(2);
    Flavour {
        max_adverts: if kind == 3 {
            rng.pick(&[2, 16, 255])
        } else {
            1
        },
        silent_hello: kind == 0,
        early: kind == 0,
        nagle: kind != 3 && rng.one_in(2),
        zero_copy,
        advert: if zero_copy { rng.range(2, 300) } else { 0 },
        pipelined: if kind == 3 { adverts } else { 0 },
        wish: if kind == 0 { larger } else { 0 },
        grows: if rng.one_in(2) { larger } else { 0 },
        silent,
        stingy: silent && rng.one_in(2),
        hasty: kind != 3 && rng.one_in(2),
    }
}
