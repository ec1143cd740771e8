// SPDX-License-Identifier: GPL-2.0-only

//! Keepalive probes between two ends of this module, as on iWARP.

use sdp_protocol::{Connection, Mid, Offer, Parameters, Transmit};

/// Two ends that have posted these numbers of receive buffers, and post each used buffer again.
struct Pair([Connection; 2], [u16; 2]);

impl Pair {
    fn new(posted: [u16; 2]) -> Self {
        let end = |side: usize| {
            Connection::new(&Parameters {
                local_receive_size: 2064,
                remote_receive_size: 2064,
                local_max_adverts: 16,
                remote_max_adverts: 16,
                posted: posted[side],
                credits: posted[1 - side],
                desired_remote_size: 0,
                zero_copy: true,
            })
        };
        Pair([end(0), end(1)], posted)
    }

    fn probe(&mut self, side: usize) -> bool {
        self.0[side].probe(self.1[side])
    }

    /// Delivers messages until no end sends any more. Returns the messages that each side has sent.
    fn settles(&mut self) -> [Vec<Mid>; 2] {
        let mut all = [vec![], vec![]];
        for side in [0, 1, 0, 1, 0, 1, 0, 1] {
            let offer = Offer {
                posted: self.1[side],
                ..Offer::default()
            };
            let mut wire = vec![];
            while let Transmit::Send(out) = self.0[side].transmit(&offer) {
                all[side].push(out.kind);
                wire.push(out);
            }
            for out in wire {
                let received = self.0[1 - side].receive(out.bytes(), out.bytes().len() as u32);
                received.unwrap();
            }
        }
        all
    }

    fn ends(&mut self, side: usize) {
        self.0[side].shutdown_send();
        assert_eq!(self.settles()[side], [Mid::DisConn]);
    }
}

const PROBED: [&[Mid]; 2] = [&[Mid::ChRcvBuf], &[Mid::Data]];

#[test]
fn one_reply_to_each_probe() {
    // without reads, two buffers are posted
    for posted in [[64, 64], [64, 2], [2, 64], [2, 2]] {
        let mut pair = Pair::new(posted);
        for _ in 0..100 {
            assert!(pair.probe(0));
            assert_eq!(pair.settles(), PROBED, "{posted:?}");
        }
    }
}

#[test]
fn no_reply_to_a_reply() {
    let mut pair = Pair::new([64, 64]);
    for _ in 0..100 {
        assert!(pair.probe(0) && pair.probe(1));
        // the probe of the second end is also its reply
        assert_eq!(
            pair.settles(),
            [&[Mid::ChRcvBuf, Mid::Data][..], &[Mid::ChRcvBuf]]
        );
    }
}

#[test]
fn ended_streams() {
    for side in 0..2 {
        let mut pair = Pair::new([64, 64]);
        pair.ends(side);
        assert!(pair.probe(0));
        assert_eq!(pair.settles(), PROBED);
        pair.ends(1 - side);
        assert!(!pair.probe(0));
        assert_eq!(pair.settles(), [vec![], vec![]]);
    }
}

/// A missing reply would not show that the peer is dead.
#[test]
fn no_probe_without_credits() {
    for posted in [[64, 1], [64, 0], [1, 64], [0, 64]] {
        let mut pair = Pair::new(posted);
        assert!(!pair.probe(0));
        assert_eq!(pair.settles(), [vec![], vec![]]);
    }
}
