//! The terminal of a standard stream: its width, and whether this process may draw on it.

use std::os::fd::AsFd;

use rustix::termios;

/// The columns of this terminal. `None`: it is none, or does not tell.
pub fn columns(stream: impl AsFd) -> Option<usize> {
    let size = termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Whether a shell has this process in the background: another group of processes has the terminal.
///
/// A terminal that is not the controlling one has no such group, and nobody else draws there.
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
