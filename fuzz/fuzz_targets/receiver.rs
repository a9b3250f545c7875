//! See `haul_fuzz::receiver`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::receiver(bytes));
