// SPDX-License-Identifier: GPL-2.0-only

//! BPF instructions (`Documentation/bpf/standardization/instruction-set.rst`), as far as a mapping
//! takes them. They are put together here, so that building the tools takes no compiler for BPF.

use std::os::fd::{AsRawFd, OwnedFd};

/// A register.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R6 = 6,
    R7,
    R8,
    R9,
}

/// How much is loaded.
#[derive(Clone, Copy)]
pub enum Size {
    U16 = 0x69,
    U32 = 0x61,
    U64 = 0x79,
}

/// A function of the kernel's that programs may call.
#[derive(Clone, Copy)]
pub enum Helper {
    GetCurrentUidGid = 15,
    CurrentTaskUnderCgroup = 37,
    GetCurrentTaskBtf = 158,
}

/// A place that is jumped to from before it.
#[derive(Clone, Copy)]
pub struct Label(usize);

pub const LOAD_64: u8 = 0x18;
pub const ADD: u8 = 0xdb;
pub const STORE: u8 = 0x62;
pub const MOVE: u8 = 0xbf;
pub const MOVE_NUMBER: u8 = 0xb7;
pub const AND: u8 = 0x5f;
pub const AND_NUMBER: u8 = 0x54;
pub const JUMP: u8 = 0x05;
pub const IF_NUMBER: u8 = 0x16;
pub const UNLESS_NUMBER: u8 = 0x56;
pub const UNLESS: u8 = 0x5d;
pub const CALL: u8 = 0x85;
pub const EXIT: u8 = 0x95;

/// `LOAD_64` of a map, or of a place in the value of an array's element 0.
const OF_MAP: u8 = 1;
const OF_VALUE: u8 = 2;

/// A program in the making.
#[derive(Default)]
pub struct Code {
    instructions: Vec<u64>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Code {
    fn put(&mut self, code: u8, dst: Reg, src: u8, offset: i16, number: i32) {
        let [low, high] = offset.to_ne_bytes();
        let [a, b, c, d] = number.to_ne_bytes();
        let registers = (dst as u8) | (src << 4);
        self.instructions
            .push(u64::from_ne_bytes([code, registers, low, high, a, b, c, d]));
    }

    fn put_64(&mut self, dst: Reg, src: u8, first: u32, second: u32) {
        self.put(LOAD_64, dst, src, 0, first as i32);
        self.instructions.push(u64::from(second) << 32);
    }

    fn put_jump(&mut self, code: u8, dst: Reg, src: u8, number: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(code, dst, src, 0, number);
    }

    pub fn copy(&mut self, dst: Reg, src: Reg) {
        self.put(MOVE, dst, src as u8, 0, 0);
    }

    pub fn number(&mut self, dst: Reg, n: i32) {
        self.put(MOVE_NUMBER, dst, 0, 0, n);
    }

    pub fn wide_number(&mut self, dst: Reg, n: u64) {
        self.put_64(dst, 0, n as u32, (n >> 32) as u32);
    }

    /// The map itself, for a helper.
    pub fn map(&mut self, dst: Reg, map: &OwnedFd) {
        self.put_64(dst, OF_MAP, map.as_raw_fd() as u32, 0);
    }

    /// The value of an array's element 0.
    pub fn value(&mut self, dst: Reg, map: &OwnedFd) {
        self.put_64(dst, OF_VALUE, map.as_raw_fd() as u32, 0);
    }

    pub fn load(&mut self, dst: Reg, size: Size, from: Reg, offset: i16) {
        self.put(size as u8, dst, from as u8, offset, 0);
    }

    /// Stores 32 bits.
    pub fn store(&mut self, to: Reg, offset: i16, n: i32) {
        self.put(STORE, to, 0, offset, n);
    }

    /// Adds 64 bits in one step, whoever else does.
    pub fn add(&mut self, to: Reg, offset: i16, src: Reg) {
        self.put(ADD, to, src as u8, offset, 0);
    }

    pub fn and(&mut self, dst: Reg, src: Reg) {
        self.put(AND, dst, src as u8, 0, 0);
    }

    /// Of the lower 32 bits; the others become zero.
    pub fn and_number(&mut self, dst: Reg, n: i32) {
        self.put(AND_NUMBER, dst, 0, 0, n);
    }

    pub fn call(&mut self, helper: Helper) {
        self.put(CALL, Reg::R0, 0, 0, helper as i32);
    }

    pub fn exit(&mut self) {
        self.put(EXIT, Reg::R0, 0, 0, 0);
    }

    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// What jumps to the label goes on here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    pub fn jump(&mut self, to: Label) {
        self.put_jump(JUMP, Reg::R0, 0, 0, to);
    }

    /// Compares the lower 32 bits.
    pub fn jump_if(&mut self, a: Reg, n: i32, to: Label) {
        self.put_jump(IF_NUMBER, a, 0, n, to);
    }

    /// Compares the lower 32 bits.
    pub fn jump_unless(&mut self, a: Reg, n: i32, to: Label) {
        self.put_jump(UNLESS_NUMBER, a, 0, n, to);
    }

    /// Compares all 64 bits.
    pub fn jump_unless_equal(&mut self, a: Reg, b: Reg, to: Label) {
        self.put_jump(UNLESS, a, b as u8, 0, to);
    }

    /// The instructions, unless a jump is too far for its 16 bits.
    pub fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("every label has a place");
            let far = i16::try_from(to - at - 1).ok()?;
            let [low, high] = far.to_ne_bytes();
            let mut bytes = self.instructions[at].to_ne_bytes();
            (bytes[2], bytes[3]) = (low, high);
            self.instructions[at] = u64::from_ne_bytes(bytes);
        }
        Some(self.instructions)
    }
}
