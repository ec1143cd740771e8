// SPDX-License-Identifier: GPL-2.0-only

use super::*;

#[test]
fn credits_follow_the_formula() {
    let mut send = SendWindow::new(64);
    assert_eq!(send.credits(), 64);
    assert_eq!(send.take(true), 1);
    assert_eq!(send.take(true), 2);
    assert_eq!(send.credits(), 62);
    assert_eq!(send.unacknowledged(), 2);
    // The peer had received the first and posted its buffer again.
    assert_eq!(send.update(1, 64), Ok(true));
    assert_eq!(send.credits(), 63);
    assert_eq!(send.update(2, 63), Ok(false));
    assert_eq!(send.credits(), 63);
    // A peer that has fewer buffers than messages are on their way gives none.
    for _ in 0..10 {
        send.take(true);
    }
    assert_eq!(send.update(2, 7), Ok(false));
    assert_eq!(send.credits(), 0);
}

#[test]
fn acknowledgements_stay_between_the_last_one_and_what_was_sent() {
    let mut send = SendWindow::new(64);
    for _ in 0..5 {
        send.take(true);
    }
    assert_eq!(send.update(6, 64), Err(Violation::AckBeyondSent));
    assert_eq!(send.update(1 << 31, 64), Err(Violation::AckBeyondSent));
    assert_eq!(send.update(3, 64), Ok(true));
    assert_eq!(send.update(2, 64), Err(Violation::AckBackwards));
    assert_eq!(send.update(0x8000_0006, 64), Err(Violation::AckBackwards));
    assert_eq!(send.update(5, 64), Ok(true));
}

#[test]
fn sequence_numbers_wrap() {
    let start = u32::MAX - 1;
    let mut send = SendWindow {
        sent: start,
        acked: start,
        bufs: 8,
        last_substantial: start,
    };
    assert_eq!(send.take(true), u32::MAX);
    assert_eq!(send.take(true), 0);
    assert_eq!(send.take(true), 1);
    assert_eq!(send.credits(), 5);
    assert_eq!(send.update(2, 8), Err(Violation::AckBeyondSent));
    assert_eq!(send.update(0, 8), Ok(true));
    assert_eq!(send.credits(), 7);

    let mut receive = ReceiveWindow {
        received: start,
        edge: start.wrapping_add(4),
        only_updates: false,
    };
    for mseq in [u32::MAX, 0, 1, 2] {
        assert_eq!(receive.receive(mseq, true), Ok(()));
    }
    assert_eq!(receive.credits(), 0);
    assert_eq!(receive.receive(3, true), Err(Violation::CreditsOverrun));
    receive.advertise(1);
    assert_eq!(receive.receive(3, true), Ok(()));
}

#[test]
fn a_message_must_be_the_next_one_and_have_a_buffer() {
    let mut receive = ReceiveWindow::new(2);
    assert_eq!(receive.receive(0, true), Err(Violation::Sequence));
    assert_eq!(receive.receive(2, true), Err(Violation::Sequence));
    assert_eq!(receive.receive(1, true), Ok(()));
    assert_eq!(receive.receive(1, true), Err(Violation::Sequence));
    assert_eq!(receive.receive(2, true), Ok(()));
    assert_eq!(receive.receive(3, true), Err(Violation::CreditsOverrun));
}

#[test]
fn buffers_once_advertised_stay_so() {
    let mut receive = ReceiveWindow::new(8);
    receive.advertise(3);
    assert_eq!(receive.credits(), 8);
    for mseq in 1..=8 {
        assert_eq!(receive.receive(mseq, true), Ok(()));
    }
    assert_eq!(receive.credits(), 0);
}

#[test]
fn windows_of_all_sizes_fit() {
    let receive = ReceiveWindow::new(u16::MAX);
    assert_eq!(receive.credits(), u16::MAX);
    let send = SendWindow::new(u16::MAX);
    assert_eq!(send.credits(), u16::MAX);
}

/// What is left of `posted` credits after so many messages.
fn used(posted: u16, messages: u32) -> ReceiveWindow {
    let mut receive = ReceiveWindow::new(posted);
    for mseq in 1..=messages {
        receive.receive(mseq, true).unwrap();
    }
    receive
}

#[test]
fn an_update_is_due_when_half_is_used() {
    for posted in 6..=64u16 {
        let due = (0..=u32::from(posted)).find(|n| used(posted, *n).update_due(posted, false));
        let credits = posted - due.unwrap() as u16;
        assert!(
            credits <= 3.max(posted / 2) && credits >= 3,
            "{posted} {credits}"
        );
        assert!(due.unwrap() >= 2);
    }
}

#[test]
fn few_buffers_are_told_of_only_if_that_allows_payload() {
    assert!(used(8, 6).update_due(3, false));
    assert!(!used(8, 6).update_due(2, false));
    assert!(!used(8, 7).update_due(2, false));
    assert!(used(8, 8).update_due(2, false));
    assert!(!used(8, 8).update_due(1, false));
    assert!(!used(8, 5).update_due(4, false));
    assert!(!used(8, 0).update_due(8, false));
}

#[test]
fn updates_alone_do_not_call_for_updates_of_our_own_line() {
    let mut receive = ReceiveWindow::new(3);
    receive.receive(1, false).unwrap();
    assert!(!receive.update_due(3, true));
    assert!(receive.update_due(3, false));
    assert!(receive.update_due(4, true));
    receive.receive(2, false).unwrap();
    assert!(receive.update_due(3, true));
    // Nor if the peer was told of too few buffers before.
    receive.advertise(2);
    assert!(receive.update_due(3, true));
    receive.advertise(3);
    receive.receive(3, true).unwrap();
    assert!(receive.update_due(3, true));
}

#[test]
fn a_nudge_mirrors_the_silence() {
    let mut send = SendWindow::new(3);
    assert!(!send.must_nudge());
    send.take(false);
    assert!(send.must_nudge());
    send.take(false);
    assert!(!send.must_nudge());
    send.update(2, 3).unwrap();
    send.take(true);
    assert!(!send.must_nudge());
    send.update(3, 3).unwrap();
    send.take(false);
    assert!(send.must_nudge());
    send.update(4, 2).unwrap();
    assert!(!send.must_nudge());
}
