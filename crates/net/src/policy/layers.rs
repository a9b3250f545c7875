//! Who asks for a value.

use std::sync::Arc;

use super::class::NetworkClass;
use super::values::Policy;

/// A policy, and who asks for it.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// The values.
    pub policy: &'a Policy,
    /// The person or program that asks.
    pub source: Source,
}

impl Source {
    pub(super) fn is_by_name(&self) -> bool {
        match self {
            Source::User => true,
            Source::Class(class) => class.file.is_some(),
            Source::Haul(_) => false,
        }
    }
}

/// The person or program that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user, by name.
    User,
    /// The operator or user, in this class, or a built-in class.
    Class(Arc<NetworkClass>),
    /// The program, for this reason or the option's usual one.
    Haul(Option<String>),
}
