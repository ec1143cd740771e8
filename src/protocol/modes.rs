// SPDX-License-Identifier: GPL-2.0-only

//! Flow-control modes, and the effect of a ModeChange from the peer.
//!
//! Both halves of a connection start Combined and are independent. Four transitions exist. For each
//! transition, one end makes the change, without an acknowledgement:
//!
//! | byte | transition            | made by | our half that changes |
//! |------|-----------------------|---------|-----------------------|
//! | 0x00 | Combined to Buffered  | source  | receiving             |
//! | 0x20 | Combined to Pipelined | source  | receiving             |
//! | 0x10 | Pipelined to Combined | source  | receiving             |
//! | 0x90 | Buffered to Combined  | sink    | sending               |

use super::message::Mode;
use super::Violation;

/// The modes of the two halves of a connection, as this end sees them.
#[derive(Clone, Debug)]
pub(super) struct Modes {
    /// Mode of the half that this end sends on.
    pub(super) send: Mode,
    /// Mode of the half that this end receives on.
    pub(super) receive: Mode,
}

impl Modes {
    pub(super) fn new() -> Self {
        Modes {
            send: Mode::Combined,
            receive: Mode::Combined,
        }
    }

    /// Applies a ModeChange of the peer. `adverts`: the peer has source adverts outstanding.
    pub(super) fn peer_changes(
        &mut self,
        receiver_sends: bool,
        mode: Mode,
        adverts: bool,
    ) -> Result<(), Violation> {
        match (receiver_sends, self.send, self.receive, mode) {
            (true, Mode::Buffered, _, Mode::Combined) => self.send = mode,
            (false, _, Mode::Combined, Mode::Buffered) if !adverts => self.receive = mode,
            (false, _, Mode::Combined, Mode::Pipelined)
            | (false, _, Mode::Pipelined, Mode::Combined) => self.receive = mode,
            _ => return Err(Violation::ModeChange),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Mode; 3] = [Mode::Buffered, Mode::Combined, Mode::Pipelined];

    #[test]
    fn only_four_transitions_exist() {
        let mut legal = std::vec::Vec::new();
        for send in ALL {
            for receive in ALL {
                for receiver_sends in [false, true] {
                    for mode in ALL {
                        let mut modes = Modes { send, receive };
                        if modes.peer_changes(receiver_sends, mode, false).is_ok() {
                            let from = if receiver_sends { send } else { receive };
                            legal.push((receiver_sends, from, mode));
                            let now = if receiver_sends {
                                modes.send
                            } else {
                                modes.receive
                            };
                            assert_eq!(now, mode);
                        }
                    }
                }
            }
        }
        legal.sort_by_key(|(s, from, to)| (*s, *from as u8, *to as u8));
        legal.dedup();
        assert_eq!(
            legal,
            [
                (false, Mode::Combined, Mode::Buffered),
                (false, Mode::Combined, Mode::Pipelined),
                (false, Mode::Pipelined, Mode::Combined),
                (true, Mode::Buffered, Mode::Combined),
            ]
        );
    }

    #[test]
    fn buffered_waits_for_the_adverts() {
        let mut modes = Modes::new();
        assert_eq!(
            modes.peer_changes(false, Mode::Buffered, true),
            Err(Violation::ModeChange)
        );
        assert_eq!(modes.peer_changes(false, Mode::Buffered, false), Ok(()));
    }
}
