//! See `haul_fuzz::known_paths`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::known_paths(bytes));
