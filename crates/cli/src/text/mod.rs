//! Words for a person: safe text, numbers, errors.

pub mod causes;
pub mod failure;
pub mod figures;
pub mod printable;
pub mod proof;
pub mod rows;
