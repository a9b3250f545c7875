//! Words for a person: text that cannot drive a terminal, numbers, errors.

pub mod causes;
pub mod failure;
pub mod figures;
pub mod printable;
pub mod proof;
pub mod rows;
