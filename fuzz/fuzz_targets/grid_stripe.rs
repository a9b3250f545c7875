//! See `haul_fuzz::grid_stripe`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::grid_stripe(bytes));
