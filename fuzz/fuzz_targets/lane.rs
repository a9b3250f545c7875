//! See `haul_fuzz::lane`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::lane(bytes));
