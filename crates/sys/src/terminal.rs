//! The terminal of a standard stream: its width, and its owner.

use std::os::fd::AsFd;

use rustix::termios;

/// The columns of this terminal, if it is one and tells.
pub fn columns(stream: impl AsFd) -> Option<usize> {
    let size = termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Whether another group of processes has the controlling terminal, as when in the background.
pub fn is_in_background(stream: impl AsFd) -> bool {
    termios::tcgetpgrp(stream).is_ok_and(|group| group != rustix::process::getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_terminal_has_no_width_and_no_background() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!((columns(&file), is_in_background(&file)), (None, false));
    }
}
