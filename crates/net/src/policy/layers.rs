//! Who asks for a value.

use std::sync::Arc;

use super::class::NetworkClass;
use super::values::Policy;

/// A policy, and who asks for it.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// The values.
    pub policy: &'a Policy,
    /// The person or program that asks for them.
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

/// The person or program that asks for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user, by name.
    User,
    /// The operator or the user, in this network class; or the class is built in.
    Class(Arc<NetworkClass>),
    /// The program asks, for this reason. `None`: for the usual reason of the option.
    Haul(Option<String>),
}
