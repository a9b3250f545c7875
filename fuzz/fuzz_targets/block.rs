//! See `haul_fuzz::block`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::block(bytes));
