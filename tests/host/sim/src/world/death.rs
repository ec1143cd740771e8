// SPDX-License-Identifier: GPL-2.0-only

//! An end dies during a connection. Checks the messages that the other end still receives, and its
//! behaviour until its own queue pair reports the loss.

use super::World;

impl World {
    /// One end dies at once. Some of its sent messages still arrive; messages to it do not, and its
    /// memory is freed. The surviving end follows all rules until it is notified, and then gets
    /// back all memory that it has advertised.
    pub(super) fn die(&mut self, dead: usize) -> Result<(), String> {
        let alive = 1 - dead;
        if self.trace {
            println!("{:6}  {dead} dies", self.steps);
        }
        let last = self.rng.below(self.wires[dead].len() as u32 + 1) as usize;
        self.wires[dead].truncate(last);
        self.fabric.borrow_mut().take_back_all(dead);
        for _ in 0..self.rng.pick(&[0, 5, 50, 300]) {
            if self.over || !self.go_on_alone(alive)? {
                break;
            }
            self.steps += 1;
            self.check()?;
        }
        if self.tainted {
            self.over = true;
            return Ok(());
        }
        // The queue pair is drained: no READ or WRITE is in flight any more.
        self.fabric.borrow_mut().forget_reads(dead);
        let result = self.nodes[alive].lost();
        result.map_err(|what| self.report(&what))?;
        if self.fabric.borrow().registered(alive) > 0 {
            return Err(self.report("memory was forgotten when the connection was lost"));
        }
        self.over = true;
        Ok(())
    }

    /// Executes an event at the surviving end; returns true if it has not been notified of the
    /// loss.
    fn go_on_alone(&mut self, alive: usize) -> Result<bool, String> {
        match self.rng.below(12) {
            0 => self.write(alive),
            1 => {
                let most = self.rng.pick(&[1, 100, 10_000]);
                self.nodes[alive].common().read(most);
            }
            2 | 3 => {
                let most = self.rng.range(1, 4);
                self.pump(alive, most)?;
            }
            4 | 5 => {
                self.arrive(1 - alive)?;
            }
            6 | 7 => {
                self.process(alive)?;
            }
            8 => {
                let most = self.rng.range(1, 8) as u16;
                self.nodes[alive].common().port.repost(most);
            }
            9 => self.nodes[alive].tick(&mut self.rng),
            10 => {
                self.nodes[alive].rdma(&mut self.rng, true, false);
            }
            // A request that fails notifies the end of the loss.
            _ => match self.fabric.borrow_mut().complete_read(alive) {
                Ok(Some(bytes)) => {
                    let result = self.nodes[alive].read_completed(&bytes);
                    result.map_err(|what| self.report(&what))?;
                }
                Ok(None) => {}
                Err(_) => return Ok(false),
            },
        }
        // The dead end's RDMA operations were in flight.
        let dead = 1 - alive;
        let which = self.rng.below(4) as usize;
        let result = self.fabric.borrow_mut().carry_out(dead, which);
        self.transport(result)?;
        Ok(true)
    }
}
