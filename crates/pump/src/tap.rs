//! The tap of a pump: a caller that hashes bytes sees them here as they pass.

/// Sees every passing byte, in order.
pub type Tap<'a> = &'a mut dyn FnMut(&[u8]);

/// The bytes stay in the second-level cache (2 MiB), and hide the system call. Larger pieces hashed 5 to 10 % slower.
pub(crate) const TAP_BYTES: usize = 256 << 10;
