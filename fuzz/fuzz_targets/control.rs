//! See `haul_fuzz::control`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::control(bytes));
