//! See `haul_fuzz::items`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::items(bytes));
