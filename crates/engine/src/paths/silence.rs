//! A path that is dead, while others deliver.
