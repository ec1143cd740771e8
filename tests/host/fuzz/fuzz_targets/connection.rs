// SPDX-License-Identifier: GPL-2.0-only

//! See `connection` in tests/host/inputs.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sdp_inputs::connection::play(data, |_| {}));
