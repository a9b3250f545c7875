//! See `haul_fuzz::sftp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::sftp(bytes));
