//! See `haul_fuzz::web_digests`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haul_fuzz::web_digests(bytes));
