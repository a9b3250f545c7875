//! The facilities of Linux: one file for each, with safe functions. The only crate with `unsafe`.

pub mod account;
pub mod affinity;
pub mod beneath;
pub mod cached;
pub mod clock;
#[cfg(any(test, feature = "intercept"))]
pub mod condition;
pub mod direct;
pub mod discard;
pub mod epoll;
pub mod file;
pub mod file_system;
pub mod hand_over;
#[cfg(any(test, feature = "intercept"))]
pub mod intercept;
pub mod interfaces;
pub mod kernel_files;
pub mod kernel_tls;
pub mod mapping;
pub mod medium;
pub mod mptcp;
pub mod mptcp_paths;
pub mod names;
pub mod namespace;
mod netlink;
pub mod outgoing;
pub mod own;
#[cfg(any(test, feature = "intercept"))]
pub mod own_network;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod process_identity;
pub mod retransmission;
pub mod reuseport;
pub mod rights;
pub mod route_events;
pub mod routes;
pub mod sendfile;
pub mod socket;
pub mod splice;
pub mod standard_streams;
pub mod tcp_info;
pub mod terminal;
pub mod tun;
pub mod uring;
pub mod usage;
pub mod whole_file;
pub mod xattr;
