// SPDX-License-Identifier: GPL-2.0-only

//! Raw peers: connections that test programs control. Compiled only by `make selftest`.
//!
//! A test program controls raw peers by commands to `ib_sdp/selftest` in debugfs; see [`raw`]. Used
//! by the tests in tests/guest/suites/hostile.

mod raw;

use kernel::debugfs;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::uaccess::UserSliceReader;
use raw::Raws;

/// The debugfs file and its directory.
pub(crate) struct File {
    _file: Pin<KBox<debugfs::File<Raws>>>,
    _dir: debugfs::Dir,
}

pub(crate) fn file() -> Result<File> {
    let dir = debugfs::Dir::new(c"ib_sdp");
    let file = KBox::pin_init(
        dir.write_callback_file(
            c"selftest",
            new_mutex!(KVec::new(), "ib_sdp_selftest"),
            &|raws: &Raws, from: &mut UserSliceReader| {
                let mut text = [0; 160];
                let n = from.len().min(text.len());
                let (text, _) = text.split_at_mut(n);
                from.read_slice(text)?;
                let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
                raw::run(raws, text.split_ascii_whitespace())
            },
        ),
        GFP_KERNEL,
    )?;
    Ok(File {
        _file: file,
        _dir: dir,
    })
}
