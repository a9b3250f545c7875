//! See `haul_fuzz::key`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::key(bytes));
