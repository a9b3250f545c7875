//! See `haul_fuzz::filter`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::filter(bytes));
