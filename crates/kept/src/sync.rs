//! Takes locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock even after a panic: the session ends by that failure, not by poison.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
