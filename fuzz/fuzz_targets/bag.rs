//! See `haul_fuzz::bag`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::bag(bytes));
