// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the policy with models of devices, each with a cost of copying and of zero copy.

use super::*;

const MIB: usize = 1 << 20;
const SIZES: [usize; 4] = [SMALLEST, 300_000, MIB, 4 * MIB];
const KINDS: [Kind; 3] = [Kind::Adapter, Kind::Software, Kind::Local];

/// Model of a device and the buffers of both ends, to which a call copies while they have space.
#[derive(Clone)]
struct Model {
    /// Nanoseconds that the device takes to send a mebibyte, with a copy and with zero copy.
    price: [f64; 2],
    /// Nanoseconds that the caller takes to copy a mebibyte.
    copying: f64,
    /// Size of the buffers in bytes.
    room: f64,
    /// Number of bytes in the buffers.
    buffered: f64,
    /// Seed of a random factor on all costs. A large factor stands for a call that waits for a
    /// processor.
    noise: Option<u64>,
}

impl Model {
    fn new(copied: f64, direct: f64) -> Self {
        Model {
            price: [copied * 1e6, direct * 1e6],
            copying: 2e5,
            room: 2e6,
            buffered: 0.0,
            noise: None,
        }
    }

    fn noisy(self, seed: u64) -> Self {
        Model {
            noise: Some(seed),
            ..self
        }
    }

    fn random(&mut self) -> f64 {
        let Some(seed) = &mut self.noise else {
            return 1.0;
        };
        let mut below = |n: u64| {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (*seed >> 33) % n
        };
        let stall = if below(400) == 0 { 30.0 } else { 1.0 };
        stall * (0.6 + below(800) as f64 / 1000.0)
    }

    /// Returns the duration of the call.
    fn send(&mut self, size: usize, direct: bool) -> f64 {
        let (size, times) = (size as f64, self.random());
        let [copied, directly] = self.price.map(|p| p / MIB as f64 * times);
        if direct {
            let took = self.buffered * copied + size * directly;
            self.buffered = 0.0;
            return took;
        }
        let copying = size * self.copying / MIB as f64;
        let excess = (self.buffered + size - self.room).max(0.0);
        let took = (excess * copied).max(copying);
        self.buffered = (self.buffered + size - took / copied).max(0.0);
        took
    }
}

/// Returns the time to send `bytes` bytes, without the first 16 MiB. Includes the time to send the
/// bytes left in buffers.
fn time(
    model: &Model,
    size: usize,
    bytes: usize,
    mut direct: impl FnMut(Option<f64>) -> bool,
) -> f64 {
    let (mut model, mut all, mut start) = (model.clone(), 0.0, 0.0);
    let calls = bytes.div_ceil(size);
    for call in 0..calls {
        if call * size < 16 * MIB {
            start = all;
        }
        let took = model.send(size, direct(None));
        all += took;
        direct(Some(took));
    }
    all - start + model.buffered * model.price[0] / MIB as f64
}

/// Returns the throughput with the policy, relative to the better fixed method.
fn share(policy: &mut Policy, model: &Model, size: usize, bytes: usize) -> f64 {
    let fixed = |way| time(model, size, bytes, |_| way);
    let best = fixed(false).min(fixed(true));
    let own = time(model, size, bytes, |took| {
        if let Some(took) = took {
            policy.sent(size, size, took as u64);
        }
        policy.is_direct(size)
    });
    best / own
}

/// Returns the fraction of sends of one size that use zero copy.
fn directly(policy: &mut Policy, model: &mut Model, size: usize, bytes: usize) -> f64 {
    let calls = bytes / size;
    let direct = (0..calls)
        .filter(|_| {
            let direct = policy.is_direct(size);
            policy.sent(size, size, model.send(size, direct) as u64);
            direct
        })
        .count();
    direct as f64 / calls as f64
}

/// Checks that the policy finds the better method for any kind of device, and keeps it.
fn found(kind: Kind, model: &Model, size: usize) {
    let mut policy = Policy::new(kind);
    let prices = model.price;
    share(&mut policy, model, size, 200 * MIB);
    let s = share(&mut policy, model, size, 3000 * MIB);
    assert!(s > 0.98, "{kind:?}, {size}, {prices:?}: {s}");
}

#[test]
fn the_first_sends_go_by_the_kind_of_device() {
    for (kind, wanted) in [
        (Kind::Local, [false, false, true, true]),
        (Kind::Adapter, [false, true, true, true]),
        (Kind::Software, [false, false, true, true]),
    ] {
        let mut policy = Policy::new(kind);
        assert_eq!(SIZES.map(|size| policy.is_direct(size)), wanted);
    }
}

#[test]
fn where_one_way_always_wins() {
    for kind in KINDS {
        for size in SIZES {
            for directly in [9.0, 7.0, 3.0, 10.5, 13.0, 30.0] {
                found(kind, &Model::new(10.0, directly), size);
            }
        }
    }
}

#[test]
fn a_short_program_loses_nothing_where_the_kind_is_right() {
    // costs of rxe, measured by `scripts/bench --counted` over the same number of bytes
    for (size, copied, directly) in [
        (SMALLEST, 10.0, 13.2),
        (MIB, 10.0, 9.4),
        (4 * MIB, 10.0, 9.2),
    ] {
        let s = share(
            &mut Policy::new(Kind::Software),
            &Model::new(copied, directly),
            size,
            50 * MIB,
        );
        assert!(s > 0.98, "{size}: {s}");
    }
}

#[test]
fn where_it_changes() {
    for size in SIZES {
        let mut policy = Policy::new(Kind::Software);
        for (copied, directly) in [
            (10.0, 7.0),
            (10.0, 14.0),
            (10.0, 5.0),
            (30.0, 10.0),
            (10.0, 40.0),
        ] {
            let model = Model::new(copied, directly);
            // the policy has to detect the change first, within the longest pause between trials
            share(&mut policy, &model, size, 5000 * MIB);
            let s = share(&mut policy, &model, size, 2000 * MIB);
            assert!(s > 0.97, "{size}, {copied} and {directly}: {s}");
        }
    }
}

#[test]
fn noise_does_not_decide() {
    for (directly, least) in [(8.0, 0.97), (12.5, 0.97), (20.0, 0.95)] {
        for size in [SMALLEST, 256 << 10, MIB] {
            let shares = (0..12).map(|seed| {
                let model = Model::new(10.0, directly).noisy(seed);
                let kind = KINDS[seed as usize % 3];
                share(&mut Policy::new(kind), &model, size, 2000 * MIB)
            });
            let share = shares.sum::<f64>() / 12.0;
            assert!(share > least, "{directly}, {size}: {share}");
        }
    }
}

#[test]
fn trying_costs_less_and_less() {
    let (mut policy, mut model) = (Policy::new(Kind::Software), Model::new(10.0, 20.0));
    directly(&mut policy, &mut model, SMALLEST, 5000 * MIB);
    assert!(directly(&mut policy, &mut model, SMALLEST, 5000 * MIB) < 0.005);
}

#[test]
fn equals_go_directly() {
    let (mut policy, mut model) = (Policy::new(Kind::Software), Model::new(10.0, 10.1));
    directly(&mut policy, &mut model, SMALLEST, 500 * MIB);
    assert!(directly(&mut policy, &mut model, SMALLEST, 1000 * MIB) > 0.9);
}

#[test]
fn sizes_do_not_disturb_each_other() {
    let mut policy = Policy::new(Kind::Adapter);
    directly(&mut policy, &mut Model::new(10.0, 20.0), MIB, 500 * MIB);
    directly(
        &mut policy,
        &mut Model::new(20.0, 10.0),
        SMALLEST,
        500 * MIB,
    );
    assert_eq!(
        SIZES.map(|size| policy.is_direct(size)),
        [true, true, false, false]
    );
}

#[test]
fn only_sizes_in_use_ask_for_the_mode() {
    let mut policy = Policy::new(Kind::Software);
    assert!(!policy.begins(SMALLEST));
    assert!(policy.begins(MIB));
    assert!(policy.begins(SMALLEST));
}

#[test]
fn a_clock_that_stands_still_does_no_harm() {
    for kind in KINDS {
        let mut policy = Policy::new(kind);
        for time in [0, u64::MAX, 1] {
            for size in SIZES {
                for _ in 0..10_000 {
                    policy.sent(size, size, time);
                }
                policy.sent(usize::MAX, usize::MAX, time);
            }
        }
    }
}

#[test]
fn calls_of_many_runs_are_judged_by_a_run() {
    for (price, direct) in [(15.0, false), (6.0, true)] {
        let mut policy = Policy::new(Kind::Software);
        let mut model = Model::new(10.0, price);
        let mut directly = 0;
        for _ in 0..2000 {
            let way = policy.is_direct(SMALLEST);
            directly += usize::from(way);
            policy.sent(SMALLEST, MIB, model.send(MIB, way) as u64);
        }
        assert_eq!(directly > 1900, direct, "{directly}");
        assert_eq!(directly < 100, !direct, "{directly}");
        // trials of one size say nothing about other sizes
        assert!(policy.is_direct(MIB));
    }
}
