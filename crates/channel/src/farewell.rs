//! Ends sessions: the peer is told why one failed.

use std::io::Write as _;
use std::time::Duration;

use haul_job::{Error, Fault};
use haul_net::Stream;
use haul_wire::control::Control;
use haul_wire::{PROTOCOL_VERSION, codec};

use crate::channel::{Channel, Events, PING_EVERY};
use crate::{convert, farewell};

/// The longest farewell.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// Sends the error, and ends the channel.
pub fn abort(channel: &Channel, error: &Error) {
    channel.outbox().send(Control::Abort(convert::abort(error)));
    channel.close(FAREWELL);
}

/// Ends the channel, with the error if any.
pub fn close<T>(channel: &Channel, result: &Result<T, Error>) {
    end(channel, result, Ending::Begun { stays: false });
}

/// The progress of an ended job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Lanes were used.
    Begun {
        /// Whether another job may follow.
        stays: bool,
    },
    /// Waiting lanes can carry the next job.
    NotBegun {
        /// Whether another job may follow.
        stays: bool,
    },
}

impl Ending {
    /// Tells how a job ended.
    pub fn of<T>(begun: &Result<T, Error>, events: &Events) -> Self {
        let stays = events.stay();
        if begun.is_err() {
            events.spare_lanes();
            return Ending::NotBegun { stays };
        }
        Ending::Begun { stays }
    }
}

/// Ends a job, and the channel unless another may follow.
pub fn end<T>(channel: &Channel, result: &Result<T, Error>, ending: Ending) {
    let (Ending::Begun { stays } | Ending::NotBegun { stays }) = ending;
    if let Err(error) = result {
        channel.outbox().send(Control::Abort(convert::abort(error)));
    }
    match result {
        Err(error) if !lets_others_follow(error) => channel.close(FAREWELL),
        _ if !stays => channel.close(FAREWELL),
        _ => {
            let lanes = result.is_ok() || matches!(ending, Ending::NotBegun { .. });
            channel.outbox().send(Control::JobEnd { lanes });
        }
    }
}

/// Whether a session can go on after this error.
pub fn lets_others_follow(error: &Error) -> bool {
    match error.fault {
        Fault::Usage | Fault::FileIo | Fault::Missing | Fault::Space | Fault::Verification => true,
        // The next job's rights may suffice.
        Fault::Authentication | Fault::Busy | Fault::Allowance => true,
        Fault::Protocol
        | Fault::Network
        | Fault::Ssh
        | Fault::SftpOnly
        | Fault::Install
        | Fault::Timeout
        | Fault::Storage
        | Fault::Interrupted => false,
    }
}

/// Tells an initiator why it gets no session.
pub fn turn_away(stream: Stream, error: &Error) {
    let events = Events::new();
    if let Ok(channel) = Channel::open(stream, events.sender(), PING_EVERY) {
        farewell::abort(&channel, error);
    }
}

/// Tells an initiator, in its version, that versions differ.
pub fn turn_away_version(mut stream: Stream, version: u32) {
    let error = Error::new(Fault::Protocol, "the daemon speaks another version of the protocol")
        .because(format!("it speaks version {PROTOCOL_VERSION}, this program version {version}"))
        .try_this("use the same version of haul on both hosts");
    if let Ok(frame) = codec::encode_refusal(&convert::abort(&error), version) {
        let _ = stream.write_all(&frame).and_then(|()| stream.finish_write());
    }
}
