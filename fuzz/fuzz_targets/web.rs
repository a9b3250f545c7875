//! See `haul_fuzz::web`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::web(bytes));
