//! See `haul_fuzz::handshake`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::handshake(bytes));
