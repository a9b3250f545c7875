//! See `haul_fuzz::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::journal(bytes));
