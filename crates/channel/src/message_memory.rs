//! Weighs messages in memory: many small elements must not get a peer more memory.

use haul_wire::control::{
    Answer, Control, FilterRule, MoverWord, Notice, Outcome, OutcomeKind, Receipt, Role, SenderSummary, Wanted,
};
use haul_wire::manifest::PackedItem;
use haul_wire::summary::OnePath;

/// Bytes of the message and all it owns, without the allocator's overhead.
pub fn memory_bytes(message: &Control) -> usize {
    size_of::<Control>() + owned_bytes(message)
}

fn owned_bytes(message: &Control) -> usize {
    match message {
        Control::Items(items) => items.iter().map(item_bytes).sum(),
        Control::Answers(answers) => answers.iter().map(answer_bytes).sum(),
        Control::Receipts(receipts) => size_of::<Receipt>() * receipts.len(),
        Control::Outcomes(outcomes) => outcomes.iter().map(outcome_bytes).sum(),
        Control::Listed(paths) => paths_bytes(paths),
        Control::Withdraw(withdraw) => withdraw.why.len() + withdraw.retry.as_ref().map_or(0, PackedItem::weight_bytes),
        Control::Notice(notice) => notice_bytes(notice),
        Control::Start(start) => {
            let rule_bytes = |rule: &FilterRule| size_of::<FilterRule>() + rule.pattern.len();
            let rules: usize = start.selection.rules.iter().map(rule_bytes).sum();
            let carriage = &start.carriage;
            let words = carriage.ciphers.len() + carriage.congestion_control.as_ref().map_or(0, String::len);
            let role = match &start.role {
                Role::Sender { sources } | Role::SourceMover { sources } => paths_bytes(sources),
                Role::Receiver { target } | Role::Mover { target } => target.len(),
                Role::Probe { .. } => 0,
                Role::Place { question } => question.weight_bytes(),
            };
            rules + words + role
        }
        Control::AgentHello(hello) => {
            let allowed = &hello.limits.allowed_congestion_controls;
            let names: usize = allowed.iter().map(|name| size_of::<String>() + name.len()).sum();
            hello.version.len() + size_of_val(&hello.addresses[..]) + hello.limits.congestion_control.len() + names
        }
        Control::Dial(dial) => size_of_val(&dial.candidates[..]),
        Control::DialFailed { why } => why.len(),
        Control::Named(name) => name.as_bytes().len(),
        Control::Abort(abort) => {
            let more = [&abort.cause, &abort.hint].into_iter().flatten();
            abort.what.len() + more.map(String::len).sum::<usize>()
        }
        Control::PathNow(path) => size_of_val(&path.subflows[..]),
        Control::Place(word) => word.weight_bytes(),
        Control::Bye(summary) | Control::Findings(summary) => sender_bytes(summary),
        Control::ProbeSent(sent) => sender_bytes(&sent.sender) + size_of_val(&sent.steady_bytes[..]),
        Control::Addresses(addresses) => size_of_val(&addresses[..]),
        Control::SharedRoot(root) => root.path.len(),
        Control::OpenDraft(draft) => draft.path.len(),
        Control::Moved(chunks) => size_of_val(&chunks[..]),
        Control::Standing(standing) => size_of_val(&standing.pieces[..]),
        Control::OfMover { word, .. } => match word {
            MoverWord::Takes { .. } => 0,
            MoverWord::Portion(portion) => portion.path.len(),
            MoverWord::Returns { chunks, .. } => size_of_val(&chunks[..]),
            MoverWord::Proofs(proofs) => size_of_val(&proofs[..]),
        },
        Control::Dialled { .. }
        | Control::Admit { .. }
        | Control::WantLanes { .. }
        | Control::SmallerSegments { .. }
        | Control::PathLost { .. }
        | Control::Begin { .. }
        | Control::EndOfManifest
        | Control::Again { .. }
        | Control::Void(_)
        | Control::LaneLost { .. }
        | Control::Summary(_)
        | Control::ProbeArrived(_)
        | Control::Ping { .. }
        | Control::DeleteNothing
        | Control::Repair { .. }
        | Control::Counted(_)
        | Control::ReadAgain { .. }
        | Control::Gathers { .. }
        | Control::Rate { .. }
        | Control::SameRoot
        | Control::JobEnd { .. }
        | Control::Leave
        | Control::CloseDraft { .. } => 0,
    }
}

fn sender_bytes(summary: &SenderSummary) -> usize {
    let paths = size_of_val(&summary.paths[..]) + summary.paths.iter().map(one_path_bytes).sum::<usize>();
    summary.path.congestion_control.len() + paths
}

fn one_path_bytes(path: &OnePath) -> usize {
    path.device.len() + path.summary.congestion_control.len() + size_of_val(&path.subflows[..])
}

fn item_bytes(item: &PackedItem) -> usize {
    size_of::<PackedItem>() + item.weight_bytes()
}

fn answer_bytes(answer: &Answer) -> usize {
    let ranges = match &answer.wanted {
        Wanted::All | Wanted::Hash => 0,
        Wanted::Chunks(ranges) => size_of_val(&ranges[..]),
    };
    size_of::<Answer>() + ranges
}

fn outcome_bytes(outcome: &Outcome) -> usize {
    let why = match &outcome.result {
        OutcomeKind::Failed { why, .. } => why.len(),
        _ => 0,
    };
    size_of::<Outcome>() + why
}

fn paths_bytes(paths: &[Vec<u8>]) -> usize {
    paths.iter().map(|path| size_of::<Vec<u8>>() + path.len()).sum()
}

fn notice_bytes(notice: &Notice) -> usize {
    match notice {
        Notice::Deleted { path, .. } | Notice::Withheld { path, .. } => path.len(),
        Notice::Failed { path, why } | Notice::Skipped { path, why } => path.len() + why.len(),
        Notice::Warning { text } => text.len(),
        Notice::Chose { what, choice, reason } => what.len() + choice.len() + reason.len(),
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::RelPath;
    use haul_wire::limits::{MAX_BATCH_ITEMS, MAX_CONTROL_FRAME_BYTES};
    use haul_wire::manifest::{Attributes, Item, ItemKind, Packer};

    use super::*;

    #[test]
    fn small_elements_weigh_what_they_take_and_not_what_they_took_on_the_wire() {
        let receipt = Receipt { index: 0, chunk: 0, data_bytes: 0, matched_bytes: 0 };
        let receipts = Control::Receipts(vec![receipt; MAX_BATCH_ITEMS]);
        assert!(memory_bytes(&receipts) >= MAX_BATCH_ITEMS * size_of::<Receipt>());
        let outcome = Outcome::of(0, OutcomeKind::Nothing);
        assert!(memory_bytes(&Control::Outcomes(vec![outcome; 100])) >= 100 * size_of::<Outcome>());
        let mut packer = Packer::default();
        let path = RelPath::new(b"name".to_vec()).unwrap();
        let item =
            Item { path, kind: ItemKind::Symlink { target: vec![b'x'; 1000] }, attributes: Attributes::default() };
        let items = Control::Items(vec![packer.pack(&item)]);
        assert_eq!(memory_bytes(&items), size_of::<Control>() + size_of::<PackedItem>() + 1004);
        let listed = Control::Listed(vec![Vec::new(); 1000]);
        assert!(
            memory_bytes(&listed) >= 1000 * size_of::<Vec<u8>>() && memory_bytes(&listed) < MAX_CONTROL_FRAME_BYTES
        );
    }
}
