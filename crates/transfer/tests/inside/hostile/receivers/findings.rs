//! Tests which senders tell their findings before their Bye.

use super::*;

fn says_until_bye(change: impl FnOnce(&mut SenderJob, EventSender) + Send + 'static) -> Vec<Control> {
    let mut source = Source::on_lane(0, change);
    let mut said = Vec::new();
    for index in 0..4 {
        source.settles(index, OutcomeKind::Nothing);
    }
    source.peer.says(&Control::Summary(ReceiverSummary::default()));
    source.peer.hears(|message| {
        let is_bye = matches!(message, Control::Bye(_));
        said.push(message);
        is_bye.then_some(())
    });
    source.peer.ended().unwrap();
    said
}

fn tells(said: &[Control]) -> bool {
    said.iter().any(|message| matches!(message, Control::Findings(_)))
}

#[test]
fn a_sender_at_the_far_side_tells_its_findings_behind_its_manifest() {
    let source = Source::on_lane(0, |job, _| job.far = true);
    source.peer.hears(|message| matches!(message, Control::Findings(_)).then_some(()));
}

#[test]
fn a_sender_whose_last_words_belong_to_the_result_tells_nothing_before() {
    let changes: [fn(&mut SenderJob, EventSender); 3] = [
        |_, _| (),
        |job, _| (job.far, job.selection.growing) = (true, true),
        |job, _| (job.far, job.carriage.movers) = (true, 1),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let said = says_until_bye(change);
        assert!(!tells(&said), "{number}: {said:?}");
    }
}
