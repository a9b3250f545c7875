//! Tests when a receiver leaves without the sender's Bye.

use haul_wire::control::Withdraw;

use super::*;

const NEVER_MS: u32 = 600_000;

fn findings() -> Control {
    Control::Findings(SenderSummary::default())
}

fn has_everything(change: impl FnOnce(&mut ReceiverJob)) -> Target {
    let mut target = Target::of(|job| {
        job.carriage.timeout_ms = NEVER_MS;
        change(job);
    });
    target.announces(&[file("file", 3)]);
    target.peer.is_asked_for(0);
    target.peer.says(&Control::EndOfManifest);
    target.peer.says(&findings());
    target.peer.sends(&unit(UnitKind::Whole, 0, 0, 3, b"new"));
    target.peer.hears(|message| matches!(message, Control::Summary(_)).then_some(()));
    target
}

#[test]
fn a_pull_ends_with_its_summary_where_the_sender_has_told_its_findings() {
    let target = has_everything(|_| ());
    let to = target.to("file");
    let Target { dir, peer, .. } = target;
    peer.only_lives(|_| ()).unwrap();
    assert_eq!(std::fs::read(to).unwrap(), b"new");
    drop(dir);
}

#[test]
fn findings_that_cross_the_summary_end_a_pull_too() {
    let mut target = Target::of(|job| job.carriage.timeout_ms = NEVER_MS);
    target.peer.says(&Control::EndOfManifest);
    target.peer.hears(|message| matches!(message, Control::Summary(_)).then_some(()));
    target.peer.says(&findings());
    target.peer.only_lives(|_| ()).unwrap();
}

#[test]
fn a_receiver_waits_for_the_bye_where_another_host_or_the_result_needs_it() {
    let needs_it: [fn(&mut ReceiverJob); 2] = [|job| job.far = true, |job| job.selection.remove_source_files = true];
    for change in needs_it {
        let mut target = has_everything(change);
        // It still listens: a version that came too late has its outcome.
        let retry = Some(target.packer.pack(&file("file", 5)));
        let withdraw = Withdraw { index: 0, why: "it changed".into(), kind: FailureKind::Changed, retry };
        target.peer.says(&Control::Withdraw(withdraw));
        assert_eq!(target.peer.outcome_of(1), OutcomeKind::Superseded);
        target.peer.hears(|message| matches!(message, Control::Summary(_)).then_some(()));
        target.peer.sends(&UnitHeader { kind: UnitKind::End, index: 0, chunk: 0 }.encode());
        target.peer.says(&Control::Bye(SenderSummary::default()));
        target.peer.ended().unwrap();
    }
}

#[test]
fn findings_before_the_end_of_the_manifest_break_the_protocol() {
    let mut target = Target::open();
    target.peer.says(&findings());
    target.peer.broke_the_protocol("findings before the end");
}
