//! What Linux offers: one file per facility, safe functions out. The only crate with `unsafe`.

pub mod beneath;
pub mod clock;
pub mod file;
#[cfg(any(test, feature = "intercept"))]
pub mod intercept;
pub mod namespace;
pub mod poll;
pub mod process;
pub mod schedule;
pub mod socket;
pub mod tcp_info;
pub mod tun;
pub mod xattr;
