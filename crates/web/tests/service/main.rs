//! The service as its readers see it: over loopback, byte by byte.

mod conformance;
mod directories;
mod floods;
mod harness;
mod hostile;
mod http2;
mod rates;
mod readers;
mod resting;
mod tls;
