// SPDX-License-Identifier: GPL-2.0-only

//! States of a connection. Independent of the kernel: `tests/host/conn` compiles this file, too.

/// States of a connection, with the names and numbers of `/proc/net/sdp` and `TCP_INFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Established = 1,
    SynSent = 2,
    SynRecv = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
}

impl State {
    pub(super) fn from_raw(v: u8) -> Self {
        match v {
            1 => State::Established,
            2 => State::SynSent,
            3 => State::SynRecv,
            4 => State::FinWait1,
            5 => State::FinWait2,
            6 => State::TimeWait,
            8 => State::CloseWait,
            9 => State::LastAck,
            10 => State::Listen,
            11 => State::Closing,
            _ => State::Close,
        }
    }
}
