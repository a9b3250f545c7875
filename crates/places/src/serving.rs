//! Serves the far side of a question.

use std::os::fd::AsFd as _;
use std::path::Path;

use haul_job::{Error, Event, Progress};
use haul_store::TargetOptions;
use haul_store::place::{Grounds, Site, SiteOptions};
use haul_sys::rights::Access;
use haul_wire::control::Control;
use haul_wire::place::{PlaceWord, Question, Told, Verb};

use super::answering::answer;
use super::paged::Paged;
use super::{named_hashes, stream};
use haul_channel::farewell;
use haul_channel::grant::Grant;
use haul_channel::role_context::RoleContext;
use haul_copy::rights;
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;

/// Answers a question, and ends the session.
pub fn serve(
    question: &Question,
    timeout_ms: u32,
    (grant, surroundings): (&Grant, &Surroundings),
    context: RoleContext<'_>,
) -> Result<(), Error> {
    let RoleContext { events, channel, watch, .. } = context;
    let options =
        TargetOptions { confine: grant.root.clone(), home: surroundings.home.clone(), ..TargetOptions::default() };
    if question.verb == Verb::Write {
        let result = stream::take(question, &options, (&events, channel, watch), timeout_ms);
        if let Ok(whole) = &result {
            watch.tell(&Event::Progress(Progress { files_done: 1, bytes_moved: whole.bytes, ..Progress::default() }));
            channel.outbox().send(Control::Place(PlaceWord::Told(vec![Told::Whole(*whole)])));
            channel.outbox().send(Control::Place(PlaceWord::End));
        }
        farewell::close(channel, &result);
        return result.map(drop);
    }
    if !question.writes()
        && let Ok(root) = haul_store::open_root(grant.root.as_deref().unwrap_or(Path::new("/")))
    {
        rights::stay_within(&[(root.as_fd(), Access::Read)], false, false);
    }
    if question.verb == Verb::HashNamed {
        let result = named_hashes::serve(question, &options, (&events, channel, watch), timeout_ms);
        if let Ok(bytes) = &result {
            watch.tell(&Event::Progress(Progress { bytes_moved: *bytes, ..Progress::default() }));
        }
        farewell::close(channel, &result);
        return result.map(drop);
    }
    let options = SiteOptions {
        confine: grant.root.clone(),
        home: surroundings.home.clone(),
        expand_globs: true,
        ..SiteOptions::default()
    };
    let mut paged = Paged::new(&events, channel, watch, timeout_ms);
    let result = match Site::open(options) {
        Ok(site) => {
            // `end` returns the reason of a break.
            let _ = answer(question, Grounds::Disk(Box::new(site)), &mut paged);
            paged.end()
        }
        Err(error) => Err(faults::store_error(&error)),
    };
    watch.tell(&Event::Progress(Progress { bytes_moved: paged.data_bytes, ..Progress::default() }));
    farewell::close(channel, &result);
    result
}
