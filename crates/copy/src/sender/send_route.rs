//! Chooses one route for the bytes of all lanes, and tells the user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_job::Subject;
use haul_pump::{Dropped, Routes, SendPump, SendRoute};
use haul_wire::control::{Carriage, Notice};
use haul_wire::limits::BLOCK_BYTES;

use haul_channel::convert;
use haul_channel::teller::Teller;

pub(super) struct ChosenRoute {
    /// The requested route and what is left of it. `None`: lanes copy through their own buffers.
    asked: Option<(SendRoute, Arc<Routes<SendRoute>>)>,
    refused: AtomicBool,
    sealing_told: AtomicBool,
    teller: Teller,
}

impl ChosenRoute {
    pub(super) fn of(carriage: &Carriage, teller: Teller) -> Self {
        // The lanes' own way to copy sends many small files at once.
        let asked = asked_for(carriage).filter(|route| *route != SendRoute::Copy);
        let asked = asked.map(|route| (route, Arc::new(Routes::new(&[route], SendRoute::Copy))));
        Self { asked, refused: AtomicBool::new(false), sealing_told: AtomicBool::new(false), teller }
    }

    pub(super) fn pump(&self) -> Option<SendPump> {
        let (_, routes) = self.asked.as_ref()?;
        (routes.current() != SendRoute::Copy).then(|| SendPump::new(Arc::clone(routes), BLOCK_BYTES))
    }

    /// Whether the requested route is in use. Tells a refusal once.
    pub(super) fn is_kept(&self) -> bool {
        let Some((asked, routes)) = &self.asked else { return false };
        if routes.current() == *asked {
            return true;
        }
        if !self.refused.swap(true, Ordering::Relaxed) {
            for dropped in routes.dropped() {
                let Dropped { route, instead, why } = dropped;
                let text = format!("the route {route} cannot be used ({why}): {instead} is used instead");
                self.teller.notice(Notice::Warning { text: convert::bounded(text) });
            }
        }
        false
    }

    /// Tells once that the kernel seals.
    pub(super) fn tell_kernel_seals(&self) {
        if !self.sealing_told.swap(true, Ordering::Relaxed) {
            let (what, choice) = (Subject::Encryption, "by the kernel".to_owned());
            let reason = "the route hands on pages of the file, which only the kernel can seal".to_owned();
            self.teller.notice(convert::chose(what, choice, reason));
        }
    }
}

/// Compressed data can only be copied.
pub(super) fn asked_for(carriage: &Carriage) -> Option<SendRoute> {
    carriage.route.and_then(convert::route).filter(|_| !carriage.compress)
}
