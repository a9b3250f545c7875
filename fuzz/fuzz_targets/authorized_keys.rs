//! See `haul_fuzz::authorized_keys`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::authorized_keys(bytes));
