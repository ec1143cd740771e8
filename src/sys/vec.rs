// SPDX-License-Identifier: GPL-2.0-only

//! Vectors with a maximum length. A [`KVec`] is one allocation, of 4 MiB at most. Clippy denies the
//! growth of vectors elsewhere.

#![expect(clippy::disallowed_methods, reason = "each has a maximum")]

use kernel::alloc::{flags::__GFP_NOWARN, Flags};
use kernel::prelude::*;

/// Makes an empty vector with space for `most` elements.
pub(crate) fn with_capacity<T>(most: usize, flags: Flags) -> Result<KVec<T>> {
    Ok(KVec::with_capacity(most, flags | __GFP_NOWARN)?)
}

pub(crate) fn filled<T>(n: usize, flags: Flags, mut f: impl FnMut() -> T) -> Result<KVec<T>> {
    let mut v = with_capacity(n, flags)?;
    for _ in 0..n {
        v.push_within_capacity(f()).map_err(|_| ENOMEM)?;
    }
    Ok(v)
}

/// Makes space for another element, up to `most` elements in total.
pub(crate) fn reserve<T>(v: &mut KVec<T>, most: usize, flags: Flags) -> Result {
    match v.len() < most {
        true => Ok(v.reserve(1, flags | __GFP_NOWARN)?),
        false => Err(ENOMEM),
    }
}

/// Adds an element, up to a length of `most`. Returns the element if the vector has no space.
pub(crate) fn push<T>(v: &mut KVec<T>, most: usize, item: T, flags: Flags) -> Result<(), T> {
    if reserve(v, most, flags).is_err() {
        return Err(item);
    }
    v.push_within_capacity(item).map_err(|e| e.0)
}
