//! Hands requests to the kernel, and takes their completions.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use io_uring::{IoUring, cqueue, squeue, types};

pub(super) struct Requests {
    pub(super) ring: IoUring,
    pub(super) in_flight: usize,
    /// After a failed submission, queued requests must never be submitted.
    broken: bool,
}

impl Requests {
    pub(super) fn new(entries: u32) -> io::Result<Requests> {
        Ok(Requests { ring: IoUring::new(entries)?, in_flight: 0, broken: false })
    }

    /// Hands requests to the kernel.
    ///
    /// # Safety
    /// What the requests point to must stay valid until their completions were taken.
    pub(super) unsafe fn submit(&mut self, requests: &[squeue::Entry]) -> io::Result<()> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // SAFETY: the caller keeps what the requests point to.
        unsafe { self.ring.submission().push_multiple(requests) }.map_err(|_| io::Error::other("the ring is full"))?;
        let mut left = requests.len();
        while left > 0 {
            match self.ring.submit() {
                // Zero taken of several could go on for ever.
                Ok(0) => break,
                Ok(taken) => {
                    self.in_flight += taken;
                    left = left.saturating_sub(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.broken = true;
                    return Err(error);
                }
            }
        }
        self.broken = left > 0;
        if self.broken { Err(io::Error::other("the kernel took no request")) } else { Ok(()) }
    }

    pub(super) fn wait(&mut self) -> io::Result<(u64, io::Result<usize>)> {
        // Waiting would submit queued requests, uncounted.
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.in_flight == 0 {
            return Err(io::Error::other("no request is on its way"));
        }
        loop {
            let done: Option<cqueue::Entry> = self.ring.completion().next();
            if let Some(done) = done {
                self.in_flight -= 1;
                let result = usize::try_from(done.result());
                return Ok((done.user_data(), result.map_err(|_| io::Error::from_raw_os_error(-done.result()))));
            }
            match self.ring.submitter().submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs two linked requests, named 0 and 1, and returns both results.
    ///
    /// # Safety
    /// As for `submit`; after a failure, until the ring is gone.
    pub(super) unsafe fn pair(
        &mut self,
        first: squeue::Entry,
        second: squeue::Entry,
    ) -> io::Result<[io::Result<usize>; 2]> {
        // An abandoned pair's completions would count as this one's.
        if self.in_flight > 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let requests = [first.flags(squeue::Flags::IO_LINK).user_data(0), second.user_data(1)];
        // SAFETY: as the caller says.
        unsafe { self.submit(&requests) }?;
        let mut results = [Ok(0), Ok(0)];
        for _ in 0..2 {
            let (name, result) = self.wait()?;
            results[usize::from(name == 1)] = result;
        }
        Ok(results)
    }

    /// Waits until no request is open; false if unknown.
    pub(super) fn settle(&mut self) -> bool {
        while self.in_flight > 0 {
            if self.wait().is_err() {
                return false;
            }
        }
        true
    }
}

pub(super) fn fd(of: BorrowedFd<'_>) -> types::Fd {
    types::Fd(of.as_raw_fd())
}
