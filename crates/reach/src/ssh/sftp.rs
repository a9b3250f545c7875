//! An ssh session with another protocol's server: the host's sftp subsystem, or its server of GridFTP. Options, kept login and
//! words are as for our program.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex};

use haul_job::{Error, Fault};
use haul_wire::banner::{Banner, BannerScanner};

use super::session::{FirstWord, SshSession, kill};
use super::target::{Kept, Login, SshTarget};
use haul_channel::reporter::Watch;
use haul_kept::sync::lock;

/// A session with a server. [`SftpControl::end`] ends it.
pub struct SftpSession {
    /// The server's words, behind `heard`.
    pub output: OwnedFd,
    /// The input; the greeting was written.
    pub input: OwnedFd,
    /// The first byte, if read.
    pub heard: Vec<u8>,
    /// Ends the session.
    pub control: SftpControl,
}

/// Ends a session; shared by threads.
#[derive(Clone)]
pub struct SftpControl {
    child: Arc<Mutex<Child>>,
    session: Arc<Mutex<SshSession>>,
    host: String,
}

impl SftpControl {
    /// Ends ssh.
    pub fn end(&self) {
        kill(&self.child);
    }

    /// ssh's last words.
    pub fn said(&self) -> Option<String> {
        let said = lock(&self.session).said()?;
        said.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }

    /// The error of a silent server's end.
    pub fn why_ended(&self) -> Error {
        let mut session = lock(&self.session);
        if session.said().is_some_and(|said| said.contains(NO_SUBSYSTEM)) {
            return Error::new(Fault::Ssh, format!("{} has no sftp", self.host))
                .because("its sshd offers no subsystem of this name")
                .try_this(format!("copy to {}:PATH, which runs haul there", self.host));
        }
        session.ended(&[])
    }
}

/// A server of ssh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshServer {
    /// sshd's subsystem.
    Sftp,
    /// The host's script for GridFTP.
    GridFtp,
}

impl SshServer {
    fn command(self) -> (Vec<OsString>, &'static str) {
        match self {
            SshServer::Sftp => (vec!["SessionType=subsystem".into()], SUBSYSTEM),
            SshServer::GridFtp => (Vec::new(), GRID_FTP),
        }
    }

    /// The first byte: a packet's length begins with a zero, a greeting with 220.
    fn first_byte(self) -> u8 {
        match self {
            SshServer::Sftp => 0,
            SshServer::GridFtp => b'2',
        }
    }
}

impl SshTarget {
    /// Starts a server, and says `greeting`.
    ///
    /// # Errors
    /// ssh cannot log in, in time or at all.
    pub fn start_server(&self, server: SshServer, greeting: &[u8], watch: &Watch) -> Result<SftpSession, Error> {
        let (options, command) = server.command();
        let subsystem = || options.clone();
        if let Kept::At(kept) = &self.kept
            && kept.stands()
        {
            let mut session = self.spawn_with(subsystem(), command, Login::Kept(kept))?;
            drop(session.send(greeting, self.timeout, watch));
            match session.first_word(kept.patience(), watch)? {
                FirstWord::Came => return self.into_sftp(session),
                FirstWord::Missing => kept.give_up(&self.host),
            }
        }
        let mut session = self.spawn_with(subsystem(), command, Login::New(&self.kept))?;
        // ssh's words explain a failure better than the broken pipe.
        drop(session.send(greeting, self.timeout, watch));
        let (mut scanner, mut first, mut begins_line) = (BannerScanner::default(), None, true);
        loop {
            let Some(byte) = session.next_byte(None, watch)? else { return Err(session.ended(&[])) };
            // Another ssh than OpenSSH may say no word of its own.
            if byte == server.first_byte() && (byte == 0 || begins_line) {
                first = Some(byte);
                break;
            }
            begins_line = byte == b'\n';
            if scanner.push(byte) == Ok(Some(Banner::LoggedIn)) {
                break;
            }
        }
        session.logged_in();
        session.release_words();
        let mut opened = self.into_sftp(session)?;
        opened.heard.extend(first);
        Ok(opened)
    }

    /// Starts a further session of the kept login, if possible.
    pub fn start_server_beside(&self, server: SshServer, greeting: &[u8], watch: &Watch) -> Option<SftpSession> {
        let Kept::At(kept) = &self.kept else { return None };
        if !kept.stands() {
            return None;
        }
        let (options, command) = server.command();
        let mut session = self.spawn_with(options, command, Login::Kept(kept)).ok()?;
        session.send(greeting, self.timeout, watch).ok()?;
        // Data of the first session may be in front of the answer, for seconds.
        match session.first_word(self.timeout, watch).ok()? {
            FirstWord::Came => self.into_sftp(session).ok(),
            FirstWord::Missing => None,
        }
    }

    #[expect(clippy::wrong_self_convention, reason = "the session is what is turned")]
    fn into_sftp(&self, mut session: SshSession) -> Result<SftpSession, Error> {
        let Some((input, output, first)) = session.take_pipes() else { unreachable!("taken once") };
        let child = session.child();
        let control = SftpControl { child, session: Arc::new(Mutex::new(session)), host: self.host.clone() };
        Ok(SftpSession { output: output.into(), input: input.into(), heard: first.into_iter().collect(), control })
    }
}

const SUBSYSTEM: &str = "sftp";

/// Globus looks for its script at these two places. A host may have the server without either.
const GRID_FTP: &str = "sh -c 'PATH=$PATH:/usr/sbin; for found in \"$HOME/.globus/sshftp\" /etc/grid-security/sshftp; do \
    if test -x \"$found\"; then exec \"$found\"; fi; done; exec globus-gridftp-server -ssh'";

/// OpenSSH says "subsystem request failed on channel 0".
const NO_SUBSYSTEM: &str = "subsystem request failed";
