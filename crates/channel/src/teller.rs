//! Sends notices to both ends: to the observer here, and to the peer.

use std::sync::Arc;

use haul_wire::control::{Control, Notice};

use crate::outbox::Outbox;
use crate::reporter::Watch;

/// Sends notices for one thread.
#[derive(Clone)]
pub struct Teller {
    watch: Arc<Watch>,
    outbox: Arc<Outbox>,
}

impl Teller {
    /// Makes a teller.
    pub fn new(watch: Arc<Watch>, outbox: Arc<Outbox>) -> Self {
        Self { watch, outbox }
    }

    /// Sends a notice once to each end.
    pub fn notice(&self, notice: Notice) {
        self.watch.on_notice(notice.clone());
        self.outbox.send(Control::Notice(notice));
    }
}
