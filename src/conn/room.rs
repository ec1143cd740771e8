// SPDX-License-Identifier: GPL-2.0-only

//! Repeats the check for send-queue space before a call or poll(2) reports that there is none.
//! Independent of the kernel: `tests/host/loom` compiles this file and frees space at every step.

/// Returns the result of the `first` check if it has found space. Otherwise registers a waiter
/// (`register`) and checks again (`check`): space that appears later is notified.
pub(crate) fn last_check<T>(
    first: T,
    is_full: impl FnOnce(&T) -> bool,
    register: impl FnOnce(),
    check: impl FnOnce() -> T,
) -> T {
    if !is_full(&first) {
        return first;
    }
    register();
    check()
}
