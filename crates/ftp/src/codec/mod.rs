//! What FTP says: commands, replies, lists, times. Bytes of a server become types that cannot be wrong.

pub(crate) mod command;
pub(crate) mod features;
pub mod listing;
pub(crate) mod passive;
pub mod reply;
pub(crate) mod time;
