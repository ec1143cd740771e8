// SPDX-License-Identifier: GPL-2.0-only

//! Two ends, a wire in each direction, and all possible events, in any order.

mod death;
mod settle;
mod setup;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use sdp_protocol::Mid;

use self::setup::Setup;
use crate::fabric::Fabric;
use crate::foreign::Foreign;
use crate::hostile::tamper;
use crate::node::{Common, Node, Over};
use crate::ours::Ours;
use crate::packet::Packet;
use crate::port::{Inbox, Outbox, Port};
use crate::rng::Rng;

/// One connection from its start to its end.
pub struct World {
    nodes: [Box<dyn Node>; 2],
    fabric: Rc<RefCell<Fabric>>,
    /// Messages that one side has sent and the other side has not received.
    wires: [VecDeque<Packet>; 2],
    hostile: bool,
    /// Set if messages were tampered with: the streams may differ from the sent ones.
    tainted: bool,
    over: bool,
    rng: Rng,
    trace: bool,
    /// Number of events so far.
    pub steps: u64,
    /// Messages of both sides by their MID's index.
    pub kinds: [u64; Mid::ALL.len()],
}

impl World {
    /// Makes the connection of this seed.
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let hostile = rng.one_in(4);
        let foreign = rng.one_in(2);
        let fabric = Rc::new(RefCell::new(Fabric::default()));
        let setups = Setup::pair(&mut rng, foreign);
        // a separate generator, so that the other connections stay the same
        let mut sending = Rng::new(!seed);
        let mut by_blocks = || sending.one_in(2);
        let common = |side: usize| Common {
            side,
            port: Port::new(setups[side].budget, setups[side].size, setups[side].depth),
            inbox: Inbox::new(1 - side),
            outbox: Outbox::default(),
            fabric: fabric.clone(),
        };
        let mut ours = |side: usize, rng: &mut Rng| {
            let (own, other) = (&setups[side], &setups[1 - side]);
            let parameters = own.parameters(other, rng);
            let end = Ours::new(common(side), &parameters, own.largest, rng);
            // only peers that run this module and announce so use iWARP
            let iwarp = !foreign && setups.iter().all(|s| s.adverts > 1);
            let end = if iwarp { end.probing() } else { end };
            Box::new(if by_blocks() { end.by_blocks() } else { end })
        };
        let first = ours(0, &mut rng);
        let second: Box<dyn Node> = match setups[1].flavour {
            Some(flavour) => Box::new(Foreign::new(
                common(1),
                flavour,
                setups[0].budget,
                setups[0].size,
                !setups[0].zero_copy,
            )),
            None => ours(1, &mut rng),
        };
        World {
            nodes: [first, second],
            fabric,
            wires: [VecDeque::new(), VecDeque::new()],
            hostile,
            tainted: false,
            over: false,
            rng,
            trace,
            steps: 0,
            kinds: [0; Mid::ALL.len()],
        }
    }

    /// Runs the whole connection.
    pub fn run(&mut self) -> Result<(), String> {
        let length = self.rng.pick(&[50, 200, 1000, 4000]);
        let last = self.rng.below(length);
        let dies = self.rng.one_in(4);
        for step in 0..length {
            if dies && step == last {
                let side = self.rng.below(2) as usize;
                return self.die(side);
            }
            self.step()?;
            if self.over {
                return Ok(());
            }
        }
        // From now on both ends read, and close.
        for node in &mut self.nodes {
            node.common().outbox.closed = true;
        }
        self.settle([true, true])?;
        if !self.over && !self.tainted {
            for side in 0..2 {
                if !self.nodes[side].finished() || self.nodes[side].common().inbox.pending {
                    return Err(self.report("not finished"));
                }
                if self.nodes[side].has_left() {
                    return Err(self.report("blocks are left"));
                }
                if self.fabric.borrow().registered(side) > 0 {
                    return Err(self.report("memory is still registered"));
                }
            }
        }
        Ok(())
    }

    /// Numbers of messages sent by each side: with stream bytes, credit updates, others.
    pub fn counts(&self) -> [[u64; 3]; 2] {
        [self.nodes[0].counts(), self.nodes[1].counts()]
    }

    /// Results of the blocks of both sides; see [`Node::ways`].
    pub fn ways(&self) -> [[u64; 5]; 2] {
        [self.nodes[0].ways(), self.nodes[1].ways()]
    }

    /// Returns the violation that ended the connection, if any.
    pub fn violation(&self) -> Option<String> {
        match self.nodes[0].over() {
            Some(Over::Violation(name)) => Some(name),
            _ => None,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let side = self.rng.below(2) as usize;
        match self.rng.below(120) {
            0..=13 => self.write(side),
            14..=25 => {
                let most = self.rng.pick(&[1, 10, 100, 10_000]);
                self.nodes[side].common().read(most);
            }
            26..=45 => {
                let most = self.rng.range(1, 4);
                self.pump(side, most)?;
            }
            46..=60 => {
                self.arrive(side)?;
            }
            61..=75 => {
                self.process(side)?;
            }
            76..=83 => {
                let most = self.rng.range(1, 8) as u16;
                self.nodes[side].common().port.complete(most);
            }
            84..=91 => {
                let most = self.rng.range(1, 8) as u16;
                self.nodes[side].common().port.repost(most);
            }
            92..=96 => self.nodes[side].tick(&mut self.rng),
            97 if self.hostile => {
                let toward = self.rng.below(2) as usize;
                if !self.wires[toward].is_empty() {
                    self.taint();
                    tamper(&mut self.rng, &mut self.wires[toward]);
                    if self.trace {
                        println!("{:6}  wire of {toward} tampered with", self.steps);
                    }
                }
            }
            98 if self.rng.one_in(8) => {
                let readers = [self.rng.one_in(2), self.rng.one_in(2)];
                self.settle(readers)?;
            }
            99 if self.rng.one_in(20) => {
                self.nodes[side].common().outbox.closed = true;
            }
            100..=109 => {
                self.nodes[side].rdma(&mut self.rng, true, false);
            }
            110..=113 => {
                let which = self.rng.below(4) as usize;
                let result = self.fabric.borrow_mut().carry_out(side, which);
                self.transport(result)?;
            }
            114..=119 => {
                self.complete_read(side)?;
            }
            _ => {}
        }
        self.steps += 1;
        self.check()
    }

    /// Handles the result of an RDMA operation. An error ends the connection, and must not happen
    /// without tampering.
    fn transport<T: Default>(&mut self, result: Result<T, String>) -> Result<T, String> {
        match result {
            Err(_) if self.tainted => {
                self.over = true;
                Ok(T::default())
            }
            Err(what) => Err(self.report(&what)),
            Ok(done) => Ok(done),
        }
    }

    fn complete_read(&mut self, side: usize) -> Result<bool, String> {
        let result = self.fabric.borrow_mut().complete_read(side);
        let Some(bytes) = self.transport(result)? else {
            return Ok(false);
        };
        if self.trace {
            println!("{:6}  {side} has read {}", self.steps, bytes.len());
        }
        let result = self.nodes[side].read_completed(&bytes);
        result.map_err(|what| self.report(&what))?;
        Ok(true)
    }

    fn write(&mut self, side: usize) {
        let urgent = self.rng.one_in(12);
        let most = self.rng.pick(&[1, 10, 100, 3000]);
        let bytes = self.rng.range(1, most);
        let outbox = &self.nodes[side].common().outbox;
        if !outbox.closed && outbox.queued() < 10_000 {
            self.nodes[side].write(bytes, urgent, &mut self.rng);
        }
    }

    fn pump(&mut self, side: usize, most: u32) -> Result<u32, String> {
        let wire = &mut self.wires[side];
        let before = wire.len();
        let count = self.nodes[side].pump(&mut self.rng, most, wire)?;
        for packet in wire.iter().skip(before) {
            if let Some(message) = packet.message() {
                self.kinds[message.body.mid().index()] += 1;
            }
            if self.trace {
                println!("{:6}  {side} sends {}", self.steps, packet.describe());
            }
        }
        Ok(count)
    }

    fn arrive(&mut self, from: usize) -> Result<bool, String> {
        let Some(packet) = self.wires[from].pop_front() else {
            return Ok(false);
        };
        if let Some(to) = packet.write {
            let result = self.fabric.borrow_mut().write(from, to, &packet.bytes);
            self.transport(result)?;
            self.nodes[from].write_arrived();
            return Ok(!self.over);
        }
        let result = self.nodes[1 - from].common().port.arrive(packet);
        if self.tainted && result.is_err() {
            // The queue pair prevents such an access.
            self.over = true;
            return Ok(false);
        }
        result.map_err(|what| self.report(&what))?;
        self.nodes[from].common().port.carried();
        Ok(true)
    }

    fn process(&mut self, side: usize) -> Result<bool, String> {
        let some = self.nodes[side].process()?;
        if self.trace && some {
            println!("{:6}  {side} received", self.steps);
        }
        match self.nodes[side].over() {
            Some(Over::Violation(name)) if !self.tainted => Err(self.report(&name)),
            Some(_) => {
                self.end(side)?;
                Ok(false)
            }
            None => Ok(some),
        }
    }

    /// Handles the end of the connection by one side: it must neither send nor process messages any
    /// more.
    fn end(&mut self, side: usize) -> Result<(), String> {
        self.over = true;
        for _ in 0..3 {
            self.arrive(1 - side)?;
            self.nodes[side].process()?;
            self.nodes[side].common().outbox.written += 1;
            if self.pump(side, 1)? > 0 {
                return Err(self.report("a message was sent after the end"));
            }
        }
        Ok(())
    }

    fn taint(&mut self) {
        self.tainted = true;
        for node in &mut self.nodes {
            node.distrust();
        }
    }

    /// Checks the invariants that hold at any time.
    fn check(&mut self) -> Result<(), String> {
        if self.tainted {
            return Ok(());
        }
        for from in 0..2 {
            let outbox = &mut self.nodes[from].common().outbox;
            let (written, closed) = (outbox.written, outbox.closed);
            let sent = outbox.marks.front().copied();
            let inbox = &mut self.nodes[1 - from].common().inbox;
            if inbox.closed && !(closed && inbox.received == written) {
                return Err(self.report("the end came before the bytes"));
            }
            if inbox.received > written {
                return Err(self.report("more bytes came than were written"));
            }
            let received = inbox.received;
            if self.nodes[from].told_read() > received {
                return Err(self.report("more bytes were said to be read than were"));
            }
            let inbox = &mut self.nodes[1 - from].common().inbox;
            if let Some(mark) = inbox.marks.pop_front() {
                if sent != Some(mark) {
                    return Err(self.report("the urgent mark is in the wrong place"));
                }
                self.nodes[from].common().outbox.marks.pop_front();
            }
        }
        Ok(())
    }

    fn report(&self, what: &str) -> String {
        format!(
            "{what}\n  0: {}\n  1: {}\n  on the wire: {} and {}",
            self.nodes[0].state(),
            self.nodes[1].state(),
            self.wires[0].len(),
            self.wires[1].len()
        )
    }
}
