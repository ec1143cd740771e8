// SPDX-License-Identifier: GPL-2.0-only

//! See the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sdp_inputs::message(data));
