//! See `haul_fuzz::networks`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::networks(bytes));
