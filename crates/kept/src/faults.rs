//! Makes the errors that several crates raise.

use std::io;
use std::time::Duration;

use haul_job::{Error, Fault};
use haul_net::NetError;
use haul_store::StoreError;
use haul_store::recording::RecordingError;
use haul_sys::own::NotOurs;
use haul_wire::control::Control;

/// Adds the remedy if `why` is a [`haul_sys::own`] refusal.
pub fn advised(error: Error, why: &io::Error) -> Error {
    match NotOurs::of(why) {
        Some(not_ours) => error.try_this(not_ours.remedy()),
        None => error,
    }
}

/// Makes the error of an interruption.
pub fn interrupted() -> Error {
    Error::new(Fault::Interrupted, "interrupted")
        .try_this("run the same command again to go on: what is verified is not sent again")
}

/// Makes the error of a silence for `timeout`.
pub fn silent(timeout: Duration) -> Error {
    Error::new(Fault::Timeout, format!("the far side has been silent for {} s", timeout.as_secs()))
        .because("the network is gone, or the host")
        .try_this("run the same command again to go on: what is verified is not sent again")
}

/// Makes the error of an unexpected message.
pub fn unexpected(message: &Control) -> Error {
    let name = format!("{message:?}");
    let name = name.split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
    Error::broke_the_protocol(format!("unexpected message {name}"))
}

/// Converts errors of the network.
pub fn net_error(error: &NetError) -> Error {
    let fault = match error {
        NetError::WrongKey { .. } | NetError::KeyRefused | NetError::Key { .. } => Fault::Authentication,
        NetError::Timeout { .. } => Fault::Timeout,
        _ => Fault::Network,
    };
    let error_of_job = Error::new(fault, error.to_string());
    match error {
        NetError::NoCommonCipher { .. } => {
            error_of_job.try_this("leave --cipher out, so that the strongest that both ends have is taken")
        }
        _ => error_of_job,
    }
}

/// Converts a store's error that ends the job.
pub fn store_error(error: &StoreError) -> Error {
    store_error_in(error, b"")
}

/// Converts an error in a tree; `root` as typed.
pub fn store_error_in(error: &StoreError, root: &[u8]) -> Error {
    if error.is_no_space() {
        let hint = "free some space and run the same command again: what is there is not sent again";
        return Error::new(Fault::Space, error.seen_from(root)).try_this(hint);
    }
    if error.is_of_login() {
        return Error::new(Fault::Authentication, error.seen_from(root));
    }
    if error.is_lost() {
        let hint = "run the same command again to go on: what is there is not sent again";
        return Error::new(Fault::Network, error.seen_from(root)).try_this(hint);
    }
    if error.is_of_no_server() {
        return Error::new(Fault::Network, error.seen_from(root));
    }
    let plain = Error::new(Fault::FileIo, error.seen_from(root));
    if error.is_read_only() {
        return plain.try_this("look at the target's file system; once it takes writes, run the same command again");
    }
    if error.is_out_of_files() {
        return plain.try_this("name the directory above them, with --files-from, or raise the limit (ulimit -n)");
    }
    plain
}

/// Converts a recording's error.
pub fn recording_error(error: &RecordingError) -> Error {
    match error {
        RecordingError::Unreadable { path, source } => Error::of_disk("read", path, source),
        RecordingError::NoIndex { why, .. } => Error::new(Fault::Usage, error.to_string())
            .because(why)
            .try_this("stripes:FILE.stripes is what haul record --stripe-dir has left beside FILE"),
        RecordingError::NoDirectories { recorded_to } => Error::new(Fault::Usage, error.to_string())
            .because(format!("its index says that it was recorded to {recorded_to}"))
            .try_this("--stripe-dir DIR for each of them, in any order"),
        RecordingError::Store(error) => store_error(error),
    }
}

#[cfg(test)]
mod tests {
    use haul_store::LoginRefused;

    use super::*;

    #[test]
    fn a_store_that_does_not_know_the_key_is_a_refused_login_and_one_that_forbids_a_file_is_not() {
        let fault = |cause: io::Error| store_error(&StoreError::new("look at", b"file", cause)).fault;
        assert_eq!(fault(LoginRefused::because("SignatureDoesNotMatch")), Fault::Authentication);
        assert_ne!(fault(io::ErrorKind::PermissionDenied.into()), Fault::Authentication);
    }
}
