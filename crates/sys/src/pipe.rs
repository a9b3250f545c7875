//! Whether a pipe's reader has taken what was written: FIONREAD (pipe(7)), /proc.

use std::fs;
use std::os::fd::AsFd;

/// Whether this process has emptied the pipe and waits for more: with one thread, its work is done. True if it is gone.
pub fn is_taken(pipe: impl AsFd, reader: u32) -> bool {
    // In this order: asleep after the pipe was empty, it has had the last bytes.
    let is_empty = rustix::io::ioctl_fionread(pipe).map_or(true, |unread| unread == 0);
    let text = fs::read_to_string(format!("/proc/{reader}/stat")).unwrap_or_default();
    // The name in parentheses may hold some (proc_pid_stat(5)).
    let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    match state {
        Some('S') => is_empty,
        Some('R' | 'D' | 'I') => false,
        Some(_) | None => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    fn soon(is_so: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !is_so() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_so()
    }

    #[test]
    fn a_pipe_is_taken_when_its_reader_has_all_of_it_or_is_gone() {
        let mut reader = Command::new("sh").args(["-c", "read x; read y; exec sleep 60"]).stdin(Stdio::piped()).spawn();
        let reader = reader.as_mut().unwrap();
        let mut pipe = reader.stdin.take().unwrap();
        assert!(soon(|| is_taken(&pipe, reader.id())), "it waits for a line");
        pipe.write_all(b"one\n").unwrap();
        assert!(soon(|| is_taken(&pipe, reader.id())));
        pipe.write_all(b"two\n").unwrap();
        assert!(soon(|| is_taken(&pipe, reader.id())));
        pipe.write_all(b"nobody reads this").unwrap();
        assert!(!is_taken(&pipe, reader.id()), "it sleeps, and does not read");
        reader.kill().unwrap();
        assert!(soon(|| is_taken(&pipe, reader.id())));
        reader.wait().unwrap();
    }
}
