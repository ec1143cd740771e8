// SPDX-License-Identifier: GPL-2.0-only

//! Tests the time in which OFED takes a SrcAvail for Data (`src/protocol/adverts/stale_record.rs`).

use sdp_protocol::message::{Body, Flags, Message};
use sdp_protocol::{Block, Connection, Mid, Offer, Parameters, Transmit};

const BLOCK: Block = Block {
    size: 1 << 20,
    r_key: 1,
    address: 4096,
};

struct Pair {
    end: Connection,
    offer: Offer,
    mseq: u32,
    bufs: u16,
}

impl Pair {
    /// Makes an end that has announced `posted` receive buffers, and a peer like OFED 4.0.
    fn new(posted: u16) -> Self {
        let parameters = Parameters {
            local_receive_size: 2064,
            remote_receive_size: 32784,
            local_max_adverts: 16,
            remote_max_adverts: 1,
            posted,
            credits: 9,
            desired_remote_size: 0,
            zero_copy: true,
        };
        let offer = Offer {
            posted,
            limit: u32::MAX,
            ..Offer::default()
        };
        Pair {
            end: Connection::new(&parameters),
            offer,
            mseq: 0,
            bufs: 9,
        }
    }

    fn advertises(&mut self) {
        self.offer.source = Some(BLOCK);
        let sent = self.end.transmit(&self.offer);
        assert!(matches!(sent, Transmit::Send(out) if out.kind == Mid::SrcAvail && out.mseq == 1));
    }

    /// Delivers a message of the peer.
    fn gets(&mut self, body: Body, payload: u32, mseq_ack: u32) {
        self.mseq += 1;
        let message = Message {
            flags: Flags::NONE,
            bufs: self.bufs,
            mseq: self.mseq,
            mseq_ack,
            body,
            payload,
        };
        self.end
            .receive(&message.encode(), message.length())
            .unwrap();
    }

    fn reads_all(&mut self) {
        let size = BLOCK.size - 1;
        self.gets(Body::RdmaRdCompl { size }, 0, 1);
    }

    fn may_advertise(&self) -> bool {
        self.end.can_advertise(BLOCK.size)
    }
}

#[test]
fn short_of_credits() {
    for (posted, may) in [(64, true), (5, true), (4, false)] {
        let mut pair = Pair::new(posted);
        pair.advertises();
        pair.reads_all();
        assert_eq!(pair.may_advertise(), may, "{posted}");
        // delivers the next advert of the same call
        pair.gets(Body::Data, 5, 1);
        assert_eq!(pair.may_advertise(), may);
        pair.bufs += 1;
        pair.gets(Body::Data, 0, 1);
        assert!(pair.may_advertise());
    }
}

#[test]
fn short_of_credits_before() {
    let mut pair = Pair::new(3);
    pair.offer.posted = 64;
    pair.gets(Body::Data, 5, 0);
    pair.advertises();
    pair.reads_all();
    assert!(!pair.may_advertise());
}

#[test]
fn never_short_again() {
    let mut pair = Pair::new(3);
    pair.offer.posted = 64;
    pair.gets(Body::Data, 5, 0);
    pair.advertises();
    // the peer's count is a lower bound
    pair.gets(Body::Data, 0, 1);
    pair.gets(Body::Data, 0, 1);
    pair.reads_all();
    assert!(pair.may_advertise());
}
