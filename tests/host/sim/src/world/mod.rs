// SPDX-License-Identifier: GPL-2.0-only

//! Two ends, a wire in each direction, and everything that may happen, in any order.

mod death;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use sdp_protocol::{Mid, Parameters, ZeroCopy};

use crate::fabric::Fabric;
use crate::foreign::{Flavour, Foreign};
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
    /// What each side has sent and the other not received.
    wires: [VecDeque<Packet>; 2],
    hostile: bool,
    /// Messages were tampered with: the streams are no longer what was sent.
    tainted: bool,
    over: bool,
    rng: Rng,
    trace: bool,
    /// Events so far.
    pub steps: u64,
    /// Messages of both sides by their MID's index.
    pub kinds: [u64; Mid::ALL.len()],
}

/// What is different from one connection to the next.
struct Setup {
    budget: u16,
    size: u32,
    depth: u16,
    largest: u32,
    adverts: u16,
    zero_copy: ZeroCopy,
    flavour: Option<Flavour>,
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
            zero_copy: rng.pick(&[ZeroCopy::Off, ZeroCopy::On, ZeroCopy::On, ZeroCopy::Forced]),
            flavour: None,
        };
        if foreign {
            let kind = rng.below(4);
            let zero_copy = kind == 2 || kind == 3;
            let silent = kind == 2 && rng.one_in(2);
            let flavour = Flavour {
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
                pipelined: if kind == 3 { setup.adverts } else { 0 },
                wish: if kind == 0 { larger } else { 0 },
                grows: if rng.one_in(2) { larger } else { 0 },
                silent,
                stingy: silent && rng.one_in(2),
                hasty: kind != 3 && rng.one_in(2),
            };
            setup.adverts = flavour.max_adverts;
            setup.flavour = Some(flavour);
        }
        setup
    }
}

impl World {
    /// The connection of this seed.
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let hostile = rng.one_in(4);
        let foreign = rng.one_in(2);
        let fabric = Rc::new(RefCell::new(Fabric::default()));
        let mut setups = [Setup::new(&mut rng, false), Setup::new(&mut rng, foreign)];
        if setups[1].flavour.is_some_and(|f| !f.zero_copy) {
            // Whoever forces adverts on one that does not know them gets what he asks for.
            setups[0].zero_copy = rng.pick(&[ZeroCopy::Off, ZeroCopy::On]);
        }
        // An end with three buffers answers every message, and others may do the same at any time:
        // credit updates without end. Our own must have four, unless the other end is ours, too, and
        // says so.
        for side in 0..2 {
            let ours = setups[side].flavour.is_none();
            let other_ofed = setups[1 - side].adverts == 1;
            if ours && (foreign || other_ofed || side == 1 && setups[0].budget == 3) {
                setups[side].budget = setups[side].budget.max(4);
            }
        }
        // numbers of their own, so that the other connections stay the same
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
            let silent = other.flavour.is_some_and(|f| f.silent_hello);
            let parameters = Parameters {
                local_receive_size: own.size,
                remote_receive_size: other.size,
                local_max_adverts: match other.flavour {
                    // As many as the flavour believes that it may have outstanding.
                    Some(flavour) if flavour.pipelined > 0 => flavour.pipelined,
                    _ => own.adverts,
                },
                remote_max_adverts: other.adverts,
                posted: own.budget,
                credits: if silent { 0 } else { other.budget },
                desired_remote_size: rng.pick(&[0, other.size + 1000]),
                acks_payload: false,
                zero_copy: own.zero_copy,
            };
            let end = Ours::new(common(side), &parameters, own.largest, rng);
            Box::new(if by_blocks() { end.by_blocks() } else { end })
        };
        let first = ours(0, &mut rng);
        let second: Box<dyn Node> = match setups[1].flavour {
            Some(flavour) => Box::new(Foreign::new(
                common(1),
                flavour,
                setups[0].budget,
                setups[0].size,
                setups[0].zero_copy == ZeroCopy::Off,
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

    /// Lives through the whole connection.
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
        // Now everybody reads, and closes.
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

    /// Messages sent by each side: with stream bytes, credit updates, others.
    pub fn counts(&self) -> [[u64; 3]; 2] {
        [self.nodes[0].counts(), self.nodes[1].counts()]
    }

    /// What became of the blocks of both sides; see [`Node::ways`].
    pub fn ways(&self) -> [[u64; 5]; 2] {
        [self.nodes[0].ways(), self.nodes[1].ways()]
    }

    /// The violation that ended the connection, if one did.
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

    /// What the transport says of some RDMA: an error ends the connection, and must not happen
    /// unless somebody has tampered with the messages.
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
            // The queue pair takes care of that.
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

    /// One side knows that the connection is over: it must be deaf and dumb now.
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

    /// What must be true at any time.
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

    /// Lets everything happen that can, but nothing new be written, until nothing happens any
    /// more. Then every byte must be where its reader is, if that one reads.
    fn settle(&mut self, readers: [bool; 2]) -> Result<(), String> {
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
                while self.arrive(1 - side)? {
                    busy = true;
                }
                if self.over {
                    return Ok(());
                }
                while self.process(side)? {
                    busy = true;
                    self.check()?;
                }
                if self.over {
                    return Ok(());
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
                    return Ok(());
                }
                let count = self.pump(side, u32::MAX)?;
                busy |= count > 0;
                messages += count;
                self.steps += 1;
            }
            // An acknowledgement alone is not worth a credit that is kept for better use.
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
        if self.tainted {
            return Ok(());
        }
        for from in 0..2 {
            if self.fabric.borrow().registered(from) > 0 {
                return Err(self.report("somebody does not get his memory back"));
            }
            let announced = self.nodes[from].must_have_announced();
            if announced && !self.nodes[1 - from].common().inbox.pending {
                return Err(self.report("an urgent byte waits and was not announced"));
            }
        }
        self.all_is_there(readers, "nobody can move")
    }

    /// Whoever reads must have all that was written, and know of the end.
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
