//! A network in a box: hosts are network namespaces, links are emulated, and any command runs in it.
//!
//! `units`, `topology` and `plan` describe the network; `shape` decides each packet's fate. `hosts`, `network` and
//! `emulator` make it real within the `sandbox`, `netem` and `uml` inside another kernel. `calibrate` measures it,
//! `experiment` compares tools in it. The lab knows nothing of haul: it runs built programs and reads their output.
#![forbid(unsafe_code)]

pub mod address;
pub mod args;
pub mod calibrate;
pub mod doctor;
pub mod emulator;
pub mod ending;
pub mod engine;
pub mod experiment;
pub mod experiments;
pub mod frame;
pub mod hosts;
pub mod inside;
pub mod lab;
pub mod limits;
pub mod netem;
pub mod network;
pub mod own_directory;
pub mod pcap;
pub mod plan;
pub mod programs;
pub mod progress;
pub mod request;
pub mod sandbox;
pub mod shape;
pub mod topology;
pub mod traffic;
pub mod uml;
pub mod units;
