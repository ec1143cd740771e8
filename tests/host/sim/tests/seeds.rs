// SPDX-License-Identifier: GPL-2.0-only

//! Connections that `cargo test` simulates. `SDP_SEED` and `SDP_STEPS` select other connections or
//! more of them.

use std::collections::VecDeque;

use sdp_protocol::{Connection, Mid, Offer, Parameters, Transmit};
use sdp_sim::audit::Audit;
use sdp_sim::packet::{stream_byte, Packet};
use sdp_sim::port::{Inbox, Outbox, Port};

fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().expect(name),
        Err(_) => default,
    }
}

#[test]
fn many_seeds() {
    let seed = from_environment("SDP_SEED", 1);
    let steps = from_environment("SDP_STEPS", 2_000_000);
    match sdp_sim::run(seed, steps, u64::MAX, false) {
        Ok(summary) => {
            assert!(summary.steps >= steps);
            assert!(summary.messages.iter().all(|count| *count > 0));
            for mid in [
                Mid::SrcAvail,
                Mid::RdmaRdCompl,
                Mid::SendSm,
                Mid::SrcAvailCancel,
            ] {
                assert!(summary.kinds[mid.index()] > 100, "{}", mid.name());
            }
            let most = summary.ways.iter().all(|count| *count > 100);
            assert!(most, "ways of blocks: {:?}", summary.ways);
            println!("{summary:?}");
        }
        Err(failure) => panic!("{failure}"),
    }
}

/// An OFED peer has two credits of this end, and this end has two of the peer's. If an advert of
/// the peer is not refused at once, neither end can report it (`is_starved` of the protocol). One
/// of many thousand connections reaches this starved state. The first seed fails if `transmit` does
/// not check for this state, the second seed if `receive` does not.
#[test]
fn adverts_between_two_without_credits() {
    for seed in [300_210_482, 20_006_050] {
        sdp_sim::run(seed, u64::MAX, 1, false).unwrap();
    }
}

/// OFED takes a SrcAvail for Data while the record of the previous SrcAvail exists
/// (`stale_record.rs`).
#[test]
fn adverts_to_a_peer_that_still_has_one_on_record() {
    sdp_sim::run(524, u64::MAX, 1, false).unwrap();
}

#[test]
fn a_seed_always_does_the_same() {
    for seed in 1..50 {
        let [first, second] = [(); 2].map(|()| sdp_sim::run(seed, u64::MAX, 1, false).unwrap());
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}

/// A fast reader of a bulk transfer sends few messages: it acknowledges many messages by one.
#[test]
fn bulk_needs_few_updates() {
    for posted in [8, 16, 64, 256] {
        let parameters = Parameters {
            local_receive_size: 2064,
            remote_receive_size: 2064,
            local_max_adverts: 16,
            remote_max_adverts: 16,
            posted,
            credits: posted,
            desired_remote_size: 0,
            zero_copy: false,
        };
        let mut ends = [Connection::new(&parameters), Connection::new(&parameters)];
        let mut offer = Offer {
            queued: 2048 * 10_000,
            posted,
            limit: u32::MAX,
            ..Offer::default()
        };
        let empty = Offer { queued: 0, ..offer };
        let (mut data, mut updates) = (0, 0);
        while offer.queued > 0 {
            let Transmit::Send(out) = ends[0].transmit(&offer) else {
                panic!("held with posted {posted}");
            };
            offer.queued -= out.payload;
            data += 1;
            ends[1].receive(&out.header, 16 + out.payload).unwrap();
            while let Transmit::Send(out) = ends[1].transmit(&empty) {
                updates += 1;
                ends[0].receive(&out.header, 16).unwrap();
            }
        }
        assert_eq!(data, 10_000);
        assert!(
            updates <= data / u32::from(posted / 2),
            "{posted}: {updates}"
        );
    }
}

/// Tests that the simulator's own checks detect faults.
mod checks {
    use super::*;

    #[test]
    fn bytes_out_of_place() {
        let mut inbox = Inbox::new(0);
        let bytes: Vec<_> = (0..100).map(|at| stream_byte(0, at)).collect();
        inbox.take(&bytes[..50], true).unwrap();
        assert!(inbox.take(&bytes[51..60], true).is_err());
        assert!(inbox.take(&bytes[49..60], true).is_err());
        assert!(Inbox::new(1).take(&bytes, true).is_err());
        inbox.take(&bytes[50..], true).unwrap();
    }

    #[test]
    fn messages_without_a_buffer() {
        let mut port = Port::new(1, 20, 1);
        let packet = |length| Packet {
            bytes: vec![0; length],
            write: None,
        };
        assert!(port.arrive(packet(21)).is_err());
        let mut port = Port::new(1, 20, 1);
        port.arrive(packet(20)).unwrap();
        assert_eq!(port.posted(), 1);
        assert!(port.arrive(packet(16)).is_err());
        port.next_arrived().unwrap();
        assert_eq!(port.posted(), 0);
        assert_eq!(port.repost(9), 1);
    }

    #[test]
    fn urgent_bytes_out_of_place() {
        let mut outbox = Outbox::default();
        outbox.write(10, true);
        assert_eq!(outbox.urgent_at(), Some(10));
        assert!(outbox.advance(10, false).is_err());
        let mut outbox = Outbox::default();
        outbox.write(10, true);
        assert!(outbox.advance(9, true).is_err());
        let mut inbox = Inbox::new(0);
        assert!(inbox.urgent(false, true).is_err());
        inbox.urgent(true, false).unwrap();
        assert!(inbox.urgent(true, false).is_err());
    }

    #[test]
    fn credits_that_are_not_there() {
        let message = |mseq: u32, bufs: u16, payload: u32| {
            let mut header = [0; 16];
            header[0] = 0xff;
            header[2..4].copy_from_slice(&bufs.to_be_bytes());
            header[4..8].copy_from_slice(&(16 + payload).to_be_bytes());
            header[8..12].copy_from_slice(&mseq.to_be_bytes());
            Packet::new(&header, 0, 0, payload)
        };
        let mut audit = Audit::new(4, 100, 8, false);
        audit.sending(&message(1, 8, 84), 8, false).unwrap();
        assert!(audit.sending(&message(2, 8, 85), 8, false).is_err());
        assert!(audit.sending(&message(3, 8, 1), 8, false).is_err());
        assert!(audit.sending(&message(2, 7, 1), 8, false).is_err());
        audit.sending(&message(2, 8, 1), 8, false).unwrap();
        assert!(audit.sending(&message(3, 8, 1), 8, false).is_err());
        audit.sending(&message(3, 8, 0), 8, false).unwrap();
        assert!(audit.sending(&message(4, 8, 0), 8, false).is_err());
        audit.sending(&message(4, 9, 0), 9, false).unwrap();
        assert!(audit.sending(&message(5, 10, 0), 10, false).is_err());
    }

    #[test]
    fn tampering_never_fails_on_any_wire() {
        let mut rng = sdp_sim::rng::Rng::new(1);
        for length in 0..60 {
            for _ in 0..200 {
                let packet = Packet {
                    bytes: vec![0xff; length],
                    write: None,
                };
                let mut wire = VecDeque::from([packet.clone(), packet]);
                sdp_sim::hostile::tamper(&mut rng, &mut wire);
            }
        }
    }
}
