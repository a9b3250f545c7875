//! Whether a path adds capacity.
