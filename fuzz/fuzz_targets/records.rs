//! See `haul_fuzz::records`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::records(bytes));
