//! See `haul_fuzz::stripes`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::stripes(bytes));
