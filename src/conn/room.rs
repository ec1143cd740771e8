// SPDX-License-Identifier: GPL-2.0-only

//! What is done before a call or poll(2) says that there is no room. Needs nothing of the kernel;
//! `tests/host/loom` compiles this file, and has room appear at every step.

/// What there is room for: the `first` look tells, if it has found some. Else somebody is noted down who is to be
/// told (`ask`), and only then comes the last `look`: room that comes behind that is told of.
pub(crate) fn last_look<T>(
    first: T,
    is_full: impl FnOnce(&T) -> bool,
    ask: impl FnOnce(),
    look: impl FnOnce() -> T,
) -> T {
    if !is_full(&first) {
        return first;
    }
    ask();
    look()
}
