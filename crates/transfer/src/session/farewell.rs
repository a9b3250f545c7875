//! How a session ends that failed: the peer is told why.

use std::io::Write as _;
use std::time::Duration;

use haul_job::{Error, Fault};
use haul_net::Stream;
use haul_wire::control::Control;
use haul_wire::{PROTOCOL_VERSION, codec};

use crate::session::channel::{Channel, Events, PING_EVERY};
use crate::session::{convert, farewell};

/// How long the last messages may take.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// Tells the peer why, as far as it still listens, and ends the channel.
pub(crate) fn abort(channel: &Channel, error: &Error) {
    channel.outbox().send(Control::Abort(convert::abort(error)));
    channel.close(FAREWELL);
}

/// Ends the channel of a session: in order, or with a word why not.
pub(crate) fn close<T>(channel: &Channel, result: &Result<T, Error>) {
    end(channel, result, Ending::Begun { stays: false });
}

/// How far a job had come that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The job had come to its lanes. `stays`: another job may follow on the session.
    Begun { stays: bool },
    /// It had not: a lane that waits for it can carry the next one.
    NotBegun { stays: bool },
}

impl Ending {
    /// Of a job that began like this.
    pub(crate) fn of<T>(begun: &Result<T, Error>, events: &Events) -> Self {
        let stays = events.stay();
        if begun.is_err() {
            events.spare_lanes();
            return Ending::NotBegun { stays };
        }
        Ending::Begun { stays }
    }
}

/// Ends a job: in order, or with a word why not. If no other job may follow, the channel ends, too.
pub(crate) fn end<T>(channel: &Channel, result: &Result<T, Error>, ending: Ending) {
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

/// Whether a session can go on after a job that ended with this: the two ends understand each other, and answer.
pub(crate) fn lets_others_follow(error: &Error) -> bool {
    match error.fault {
        Fault::Usage | Fault::FileIo | Fault::Missing | Fault::Space | Fault::Verification => true,
        // The rights of the next job may suffice.
        Fault::Authentication | Fault::Busy => true,
        Fault::Protocol
        | Fault::Network
        | Fault::Ssh
        | Fault::Install
        | Fault::Timeout
        | Fault::Storage
        | Fault::Interrupted => false,
    }
}

/// Tells an initiator, in words, why it gets no session.
pub fn turn_away(stream: Stream, error: &Error) {
    let events = Events::new();
    // Without its threads the peer is told nothing, and sees the end all the same.
    if let Ok(channel) = Channel::open(stream, events.sender(), PING_EVERY) {
        farewell::abort(&channel, error);
    }
}

/// Tells an initiator that speaks another version of the protocol so, in words of its own version.
pub fn turn_away_version(mut stream: Stream, version: u32) {
    let error = Error::new(Fault::Protocol, "the daemon speaks another version of the protocol")
        .because(format!("it speaks version {PROTOCOL_VERSION}, this program version {version}"))
        .try_this("use the same version of haul on both hosts");
    if let Ok(frame) = codec::encode_refusal(&convert::abort(&error), version) {
        // Who does not listen any more is turned away all the same.
        let _ = stream.write_all(&frame).and_then(|()| stream.finish_write());
    }
}
