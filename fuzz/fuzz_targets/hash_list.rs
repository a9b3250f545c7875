//! See `haul_fuzz::hash_list`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::hash_list(bytes));
