// SPDX-License-Identifier: GPL-2.0-only

//! Checks that a connection becomes idle.

use super::World;

impl World {
    /// Runs all possible events, without new writes, until none is left. Afterwards every byte must
    /// have reached its reader, if that reader reads.
    pub(super) fn settle(&mut self, readers: [bool; 2]) -> Result<(), String> {
        if self.trace {
            println!("{:6}  settle, readers {readers:?}", self.steps);
        }
        let mut messages = 0;
        let mut patient = true;
        let mut most = 4000;
        for (node, reads) in self.nodes.iter_mut().zip(readers) {
            node.settle(reads);
            most += node.common().outbox.queued();
        }
        loop {
            let mut busy = false;
            for (side, reads) in readers.into_iter().enumerate() {
                let (did, sent) = self.settle_side(side, reads)?;
                if self.over {
                    return Ok(());
                }
                busy |= did;
                messages += sent;
            }
            // An acknowledgement alone does not justify using a reserved credit.
            busy = busy || self.nodes[0].short_of_credits() && self.nodes[1].hold_back_no_longer();
            if patient && !busy && !self.tainted {
                self.all_is_there(readers, "nobody moves until one of them gives up")?;
            }
            if patient && (!busy || messages > most / 2) {
                patient = false;
                for node in &mut self.nodes {
                    busy |= node.give_up();
                }
            }
            if !busy {
                break;
            }
            if messages > most {
                if self.tainted {
                    self.over = true;
                    return Ok(());
                }
                return Err(self.report("messages without end"));
            }
        }
        self.all_is_settled(readers)
    }

    /// Runs all possible events of one side. Returns true if any event happened, and the number of
    /// messages sent.
    fn settle_side(&mut self, side: usize, reads: bool) -> Result<(bool, u32), String> {
        let mut busy = false;
        while self.arrive(1 - side)? {
            busy = true;
        }
        while !self.over && self.process(side)? {
            busy = true;
            self.check()?;
        }
        if self.over {
            return Ok((busy, 0));
        }
        self.nodes[side].settle(reads);
        let common = self.nodes[side].common();
        busy |= common.port.complete(u16::MAX) > 0;
        if reads {
            busy |= common.read(u32::MAX);
        }
        busy |= self.nodes[side].rdma(&mut self.rng, reads, true);
        busy |= self.nodes[side].common().port.repost(u16::MAX) > 0;
        while self.complete_read(side)? {
            busy = true;
        }
        if self.over {
            return Ok((busy, 0));
        }
        let count = self.pump(side, u32::MAX)?;
        self.steps += 1;
        Ok((busy || count > 0, count))
    }

    /// Checks the invariants that hold when no more events happen.
    fn all_is_settled(&mut self, readers: [bool; 2]) -> Result<(), String> {
        if self.tainted {
            return Ok(());
        }
        for from in 0..2 {
            if self.fabric.borrow().registered(from) > 0 {
                return Err(self.report("somebody does not get his memory back"));
            }
            if self.nodes[from].unanswered() {
                return Err(self.report("keepalive ends the connection of a live peer"));
            }
            let announced = self.nodes[from].must_have_announced();
            if announced && !self.nodes[1 - from].common().inbox.pending {
                return Err(self.report("an urgent byte waits and was not announced"));
            }
        }
        self.all_is_there(readers, "nobody can move")
    }

    /// Checks that each reader has all written bytes, and the end of the stream.
    fn all_is_there(&mut self, readers: [bool; 2], else_what: &str) -> Result<(), String> {
        for from in 0..2 {
            let outbox = &self.nodes[from].common().outbox;
            let (written, closed) = (outbox.written, outbox.closed);
            let lame = self.nodes[1 - from].lame() && !readers[from];
            let inbox = &self.nodes[1 - from].common().inbox;
            if readers[1 - from] && !lame && (inbox.read < written || inbox.closed != closed) {
                return Err(self.report(else_what));
            }
        }
        Ok(())
    }
}
