//! See `haul_fuzz::saved_settings`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::saved_settings(bytes));
