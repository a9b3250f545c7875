//! JSON as every command writes it.

pub mod error;
pub mod line;
pub mod values;
