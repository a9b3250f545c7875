//! Asks the kernel for values, and reads back what it granted.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crate::mptcp;

use super::granted::{Applied, Granted};
use super::layers::{Layer, Source};
use super::options::{Dscp, Setting};
use super::values::{Policy, Visit, visit_first};

/// Asks for a policy, and reads back what was granted. A refusal never fails the connection.
pub fn apply(socket: impl AsFd, policy: &Policy, peer: IpAddr) -> Granted {
    apply_layers(socket.as_fd(), &[Layer { policy, source: Source::User }], peer)
}

pub(crate) fn mark_of(socket: impl AsFd, peer: IpAddr) -> Option<Dscp> {
    Dscp::read(socket.as_fd(), peer).ok()
}

/// [`apply`] for several policies: the first with a value wins.
pub(super) fn apply_layers(socket: BorrowedFd<'_>, layers: &[Layer<'_>], peer: IpAddr) -> Granted {
    let peer = peer.to_canonical();
    let class = layers.iter().find_map(|layer| match &layer.source {
        Source::Class(class) => Some(class.name.as_str().into()),
        Source::User | Source::Haul(_) => None,
    });
    let mut asking = Asking { socket, layers, peer, applied: Vec::new(), missing: Vec::new() };
    visit_first(layers.iter().map(|layer| layer.policy), &mut asking);
    let Asking { mut applied, missing, .. } = asking;
    applied.extend(told_at_once(&missing));
    Granted { peer, class, settings: applied }
}

struct Asking<'a> {
    socket: BorrowedFd<'a>,
    layers: &'a [Layer<'a>],
    peer: IpAddr,
    applied: Vec<Applied>,
    missing: Vec<NotOverMptcp>,
}

impl Visit for Asking<'_> {
    fn value<S: Setting>(&mut self, value: &S, at: usize) {
        match ask(self.socket, value, self.layers[at].source.clone(), self.peer) {
            Ok(setting) => self.applied.push(setting),
            Err(not_over_mptcp) => self.missing.push(not_over_mptcp),
        }
    }
}

fn ask<S: Setting>(socket: BorrowedFd<'_>, value: &S, source: Source, peer: IpAddr) -> Result<Applied, NotOverMptcp> {
    let refused = value.set(socket, peer).err();
    let is_by_name = source.is_by_name();
    if refused.as_ref().is_some_and(is_no_such_option) && mptcp::is_socket(socket) {
        return Err(NotOverMptcp { asked: format!("{} {value}", S::NAME), is_by_name });
    }
    let granted = S::read(socket, peer);
    let is_granted = refused.is_none() && granted.as_ref().is_ok_and(|granted| value.is_granted(granted));
    let mut reason = match source {
        Source::User => "asked for by the user".to_owned(),
        Source::Class(class) => format!("network class {}", class.name),
        Source::Haul(why) => why.unwrap_or_else(|| S::WHY.to_owned()),
    };
    if let Some(error) = refused {
        reason += &S::refusal(&error);
    }
    Ok(Applied {
        what: S::NAME,
        asked: value.to_string(),
        granted: granted.map_or_else(|error| format!("unknown: {error}"), |granted| granted.to_string()),
        reason,
        refused: !is_granted,
        falls_short: is_by_name && !is_granted,
    })
}

struct NotOverMptcp {
    asked: String,
    is_by_name: bool,
}

fn told_at_once(missing: &[NotOverMptcp]) -> Option<Applied> {
    let asked: Vec<&str> = missing.iter().map(|missing| missing.asked.as_str()).collect();
    (!asked.is_empty()).then(|| Applied {
        what: "options of TCP",
        asked: asked.join(", "),
        granted: "none of them".to_owned(),
        reason: "a connection over MPTCP does not have them".to_owned(),
        refused: true,
        falls_short: missing.iter().any(|missing| missing.is_by_name),
    })
}

/// EOPNOTSUPP and ENOPROTOOPT of an MPTCP socket, on most architectures.
fn is_no_such_option(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(92 | 95))
}
