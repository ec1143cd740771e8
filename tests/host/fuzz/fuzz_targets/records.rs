// SPDX-License-Identifier: GPL-2.0-only

//! See `records` in tests/host/inputs.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sdp_inputs::records(data));
