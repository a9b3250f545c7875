//! See `haul_fuzz::ftp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::ftp(bytes));
