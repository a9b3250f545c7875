//! See `haul_fuzz::manifest`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::manifest(bytes));
