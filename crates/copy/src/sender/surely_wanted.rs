//! Knows which files the target will ask for: those that it lacks, if the target is a disk of this host and no rule leaves files
//! out.
//!
//! The receiver decides all the same. A wrong guess costs a server's body that nobody reads, or one more request.

use std::sync::Once;

use haul_store::{SourceTree, SurelyWanted};
use haul_wire::control::{AskedClass, Carriage, Selection};

use super::job::SenderJob;

pub(super) fn of(job: &SenderJob, sources: &dyn SourceTree) -> Option<SurelyWanted> {
    // The target may give a single file another name.
    if sources.is_single_file() || leaves_files_out(&job.selection) || is_held_back(&job.carriage) {
        return None;
    }
    let (hand_over, waited) = (job.hand_over.clone()?, Once::new());
    Some(SurelyWanted::by(move |path| {
        waited.call_once(|| hand_over.await_target());
        hand_over.target().and_then(|target| target.local()).is_some_and(|tree| tree.lacks(path))
    }))
}

fn leaves_files_out(selection: &Selection) -> bool {
    let Selection { max_size_bytes, min_size_bytes, modified_since_s, modified_until_s, .. } = *selection;
    let by_size = max_size_bytes.is_some() || min_size_bytes.is_some();
    let by_age = modified_since_s.is_some() || modified_until_s.is_some();
    // An earlier run, or another tree, may have the file.
    let stands_elsewhere = selection.references.is_some() || !selection.drafts.delayed_in.is_empty();
    selection.dry_run || selection.existing || by_size || by_age || stands_elsewhere
}

/// Whether lanes read as slowly, or over as few connections, as the user asked. A walk keeps to no rate.
fn is_held_back(carriage: &Carriage) -> bool {
    let service = carriage.service;
    let yields = service.class == AskedClass::Background || service.time_left_ms.is_some();
    carriage.rate_bytes_per_s.is_some() || carriage.lanes.is_some() || yields
}

#[cfg(test)]
mod tests {
    use haul_wire::control::{Drafts, OfReference, References, Service};

    use super::*;

    #[test]
    fn a_rule_that_may_leave_a_missing_file_out_makes_no_file_surely_wanted() {
        assert!(!leaves_files_out(&Selection { delete: true, update: true, checksum: true, ..Selection::default() }));
        let references = References { directories: vec![b"r".to_vec()], made: OfReference::HardLink };
        for selection in [
            Selection { dry_run: true, ..Selection::default() },
            Selection { existing: true, ..Selection::default() },
            Selection { max_size_bytes: Some(1), ..Selection::default() },
            Selection { modified_until_s: Some(1), ..Selection::default() },
            Selection { references: Some(references), ..Selection::default() },
            Selection { drafts: Drafts { delayed_in: b"d".to_vec(), ..Drafts::default() }, ..Selection::default() },
        ] {
            assert!(leaves_files_out(&selection), "{selection:?}");
        }
    }

    #[test]
    fn a_copy_with_a_rate_or_a_number_of_lanes_or_one_that_yields_reads_nothing_ahead_of_its_lanes() {
        let of = |service| Carriage { service, ..Carriage::default() };
        let priority = of(Service { class: AskedClass::Priority, ..Service::default() });
        assert!(!is_held_back(&Carriage::default()) && !is_held_back(&priority));
        for carriage in [
            Carriage { rate_bytes_per_s: Some(1), ..Carriage::default() },
            Carriage { lanes: Some(1), ..Carriage::default() },
            of(Service { class: AskedClass::Background, ..Service::default() }),
            of(Service { time_left_ms: Some(1), ..Service::default() }),
        ] {
            assert!(is_held_back(&carriage), "{carriage:?}");
        }
    }
}
