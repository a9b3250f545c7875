//! See `haul_fuzz::banner`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::banner(bytes));
