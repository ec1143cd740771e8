// SPDX-License-Identifier: GPL-2.0-only

use super::*;

#[test]
fn credits_follow_the_formula() {
    let mut send = SendWindow::new(64);
    assert_eq!(send.credits(), 64);
    assert_eq!(send.take(), 1);
    assert_eq!(send.take(), 2);
    assert_eq!(send.credits(), 62);
    // The peer has received the first message and posted its buffer again.
    assert_eq!(send.update(1, 64), Ok(()));
    assert_eq!(send.credits(), 63);
    assert_eq!(send.update(2, 63), Ok(()));
    assert_eq!(send.credits(), 63);
    // A peer with fewer buffers than messages in flight grants no credits.
    for _ in 0..10 {
        send.take();
    }
    assert_eq!(send.update(2, 7), Ok(()));
    assert_eq!(send.credits(), 0);
}

#[test]
fn acknowledgements_stay_between_the_last_one_and_what_was_sent() {
    let mut send = SendWindow::new(64);
    for _ in 0..5 {
        send.take();
    }
    assert_eq!(send.update(6, 64), Err(Violation::AckBeyondSent));
    assert_eq!(send.update(1 << 31, 64), Err(Violation::AckBeyondSent));
    assert_eq!(send.update(3, 64), Ok(()));
    assert_eq!(send.update(2, 64), Err(Violation::AckBackwards));
    assert_eq!(send.update(0x8000_0006, 64), Err(Violation::AckBackwards));
    assert_eq!(send.update(5, 64), Ok(()));
}

#[test]
fn sequence_numbers_wrap() {
    let start = u32::MAX - 1;
    let mut send = SendWindow {
        sent: start,
        acked: start,
        bufs: 8,
    };
    assert_eq!(send.take(), u32::MAX);
    assert_eq!(send.take(), 0);
    assert_eq!(send.take(), 1);
    assert_eq!(send.credits(), 5);
    assert_eq!(send.update(2, 8), Err(Violation::AckBeyondSent));
    assert_eq!(send.update(0, 8), Ok(()));
    assert_eq!(send.credits(), 7);

    let mut receive = ReceiveWindow {
        received: start,
        edge: start.wrapping_add(4),
        most: 8,
        known: start,
        sent: (start, start),
    };
    for mseq in [u32::MAX, 0, 1, 2] {
        assert_eq!(receive.receive(mseq), Ok(()));
    }
    assert_eq!(receive.credits(), 0);
    assert_eq!(receive.receive(3), Err(Violation::CreditsOverrun));
    receive.advertise(1);
    assert_eq!(receive.receive(3), Ok(()));
}

#[test]
fn a_message_must_be_the_next_one_and_have_a_buffer() {
    let mut receive = ReceiveWindow::new(2);
    assert_eq!(receive.receive(0), Err(Violation::Sequence));
    assert_eq!(receive.receive(2), Err(Violation::Sequence));
    assert_eq!(receive.receive(1), Ok(()));
    assert_eq!(receive.receive(1), Err(Violation::Sequence));
    assert_eq!(receive.receive(2), Ok(()));
    assert_eq!(receive.receive(3), Err(Violation::CreditsOverrun));
}

#[test]
fn buffers_once_advertised_stay_so() {
    let mut receive = ReceiveWindow::new(8);
    receive.advertise(3);
    assert_eq!(receive.credits(), 8);
    for mseq in 1..=8 {
        assert_eq!(receive.receive(mseq), Ok(()));
    }
    assert_eq!(receive.credits(), 0);
}

/// Returns a receive window with `posted` initial credits, after `messages` messages.
fn used(posted: u16, messages: u32) -> ReceiveWindow {
    let mut receive = ReceiveWindow::new(posted);
    for mseq in 1..=messages {
        receive.receive(mseq).unwrap();
    }
    receive
}

fn due(receive: &ReceiveWindow, posted: u16, own: u16) -> bool {
    receive.update_due(posted, own, false)
}

#[test]
fn an_update_is_due_when_half_is_used() {
    for posted in 5..=64u16 {
        let due = (0..=u32::from(posted)).find(|n| due(&used(posted, *n), posted, 64));
        let messages = due.unwrap() as u16;
        let credits = posted - messages;
        assert!(credits >= 3 && messages >= 2, "{credits} of {posted} left");
        assert!(credits <= 3.max(posted / 2), "{credits} of {posted} left");
    }
}

#[test]
fn an_end_with_three_buffers_tells_of_one() {
    assert!(!due(&used(3, 0), 3, 64));
    assert!(due(&used(3, 1), 3, 64));
    assert!(!due(&used(3, 1), 2, 64));
    let mut receive = used(3, 1);
    receive.advertise(4);
    receive.receive(2).unwrap();
    receive.receive(3).unwrap();
    assert_eq!(receive.credits(), 2);
    assert!(!due(&receive, 3, 64));
    assert!(due(&receive, 4, 64));
}

#[test]
fn the_last_credit_waits_until_the_peer_needs_it() {
    assert!(due(&used(64, 40), 64, 2));
    assert!(!due(&used(64, 40), 64, 1));
    assert!(!due(&used(64, 61), 64, 1));
    assert!(due(&used(64, 62), 64, 1));
    assert!(!due(&used(64, 62), 64, 0));
}

#[test]
fn the_last_credit_may_go_for_new_ones() {
    assert!(used(8, 6).may_use_last(3, 1));
    assert!(!used(8, 6).may_use_last(3, 0));
    assert!(!used(8, 6).may_use_last(2, 1));
    assert!(!used(8, 5).may_use_last(8, 1));
}
