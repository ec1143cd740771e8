// SPDX-License-Identifier: GPL-2.0-only

//! Message identifiers (MID), the first byte of every SDP message.

macro_rules! mids {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Type of an SDP message (IBA Annex A4, message catalogue).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Mid {
            $($(#[$doc])* $name = $code,)*
        }

        impl Mid {
            /// All messages, in the order of their codes.
            pub const ALL: [Mid; [$($code),*].len()] = [$(Mid::$name),*];

            /// Returns the message with this code, or `None` if the code is reserved or
            /// experimental.
            pub const fn from_code(code: u8) -> Option<Mid> {
                match code {
                    $($code => Some(Mid::$name),)*
                    _ => None,
                }
            }

            /// Returns the name of the message in the annex.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mid::$name => stringify!($name),)*
                }
            }
        }
    };
}

mids! {
    /// Opens a connection; sent as private data of the CM's REQ.
    Hello = 0x00,
    /// Accepts a connection; sent as private data of the CM's REP.
    HelloAck = 0x01,
    /// Ends the sender's stream.
    DisConn = 0x02,
    /// Ends the connection abortively.
    AbortConn = 0x03,
    /// Message of a data sink: requests the unread rest of the adverts as Data.
    SendSm = 0x04,
    /// Message of a data source: reports bytes written to the oldest advertised sink buffer.
    RdmaWrCompl = 0x05,
    /// Message of a data sink: reports bytes read from the oldest advertised source buffer.
    RdmaRdCompl = 0x06,
    /// Changes the flow-control mode of one half of the connection.
    ModeChange = 0x07,
    /// Message of a data source: takes back all its source adverts.
    SrcAvailCancel = 0x08,
    /// Message of a data sink: takes back all its sink adverts.
    SinkAvailCancel = 0x09,
    /// Message of a data source: confirms that cancelled sink adverts are void.
    SinkCancelAck = 0x0a,
    /// Requests larger receive buffers of the peer.
    ChRcvBuf = 0x0b,
    /// Replies to ChRcvBuf with the size in effect.
    ChRcvBufAck = 0x0c,
    /// Suspends the connection, to be rebuilt at another service ID.
    SuspComm = 0x0d,
    /// Confirms the suspension.
    SuspCommAck = 0x0e,
    /// Message of a data sink: advertises a buffer for RDMA WRITE.
    SinkAvail = 0xfd,
    /// Message of a data source: advertises a buffer for RDMA READ.
    SrcAvail = 0xfe,
    /// Contains stream bytes. A Data without payload is a credit update.
    Data = 0xff,
}

impl Mid {
    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns a dense index below the length of [`Mid::ALL`], for counters per message.
    pub const fn index(self) -> usize {
        match self {
            Mid::SinkAvail => 15,
            Mid::SrcAvail => 16,
            Mid::Data => 17,
            low => low as usize,
        }
    }

    /// Returns the offset of the payload: the length of the BSDH and the extended header.
    pub const fn header_len(self) -> usize {
        match self {
            Mid::Hello => super::HELLO_LEN,
            Mid::HelloAck => super::HELLO_ACK_LEN,
            Mid::RdmaWrCompl
            | Mid::RdmaRdCompl
            | Mid::ModeChange
            | Mid::ChRcvBuf
            | Mid::ChRcvBufAck => 20,
            Mid::SuspComm => 24,
            Mid::SrcAvail => 32,
            Mid::SinkAvail => 36,
            _ => super::BSDH_LEN,
        }
    }

    /// Returns true if bytes of the sender's stream may follow the headers.
    pub const fn carries_payload(self) -> bool {
        matches!(self, Mid::Data | Mid::SrcAvail | Mid::SinkAvail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_indices_and_names_are_one_to_one() {
        for (index, mid) in Mid::ALL.into_iter().enumerate() {
            assert_eq!(mid.index(), index);
            assert_eq!(Mid::from_code(mid.code()), Some(mid));
            assert!(Mid::ALL.iter().filter(|m| m.name() == mid.name()).count() == 1);
        }
        let known = (0..=u8::MAX).filter_map(Mid::from_code).count();
        assert_eq!(known, Mid::ALL.len());
    }
}
