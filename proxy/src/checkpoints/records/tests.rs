//! Tests of the state of a set.

use super::*;

fn noted(marker: &str, order: u64, pending: Option<&str>) -> Noted {
    Noted {
        order,
        marker: Some(marker.to_owned()),
        manifest: Some(format!("of-{marker}")),
        objects: 3,
        bytes: 30,
        now_ms: 5,
        pending: pending.map(str::to_owned),
        refuses_more: false,
        is_published: false,
    }
}

/// A write of a marker that began at this time.
fn begun(token: &str, at_ms: u64) -> MarkerIntent {
    MarkerIntent {
        token: token.into(),
        key: "s/m".into(),
        before: None,
        at_ms,
        after: 0,
        is_given_up: false,
    }
}

const ASKED: Withdrawal<'_> = Withdrawal {
    cause: WithdrawalCause::Other,
    reason: "asked for",
    deletes_objects: false,
    waits_for_holds: false,
};

#[test]
fn rules_wait_for_readers_and_requests_do_not() {
    let mut record = SetRecord::new("s/");
    record.note(noted("v1", 10, None));
    assert!(!record.hold(1, 100), "it isn't committed");
    record.commit(1, "of-v1", 6);
    assert!(record.hold(1, 100) && record.hold(1, 50) && !record.hold(2, 50));
    let by_rule = Withdrawal { waits_for_holds: true, deletes_objects: true, ..ASKED };
    assert!(!record.withdraw(1, by_rule, 99));
    assert!(record.withdraw(1, by_rule, 100));
    assert!(record.find(1).unwrap().deletes_objects);
    record.note(noted("v2", 20, None));
    record.commit(2, "of-v2", 101);
    assert!(record.hold(2, 1000) && record.withdraw(2, ASKED, 102));
    assert_eq!(record.find(2).unwrap().held_until_ms, 1000, "the removal waits for it");
}

fn number(outcome: NoteOutcome) -> u64 {
    match outcome {
        NoteOutcome::Noted(generation) => generation.number,
        NoteOutcome::Refused(why) => panic!("{why}"),
    }
}

#[test]
fn a_version_of_a_marker_makes_one_generation() {
    let mut record = SetRecord::new("s/");
    assert_eq!(number(record.note(noted("v1", 10, None))), 1);
    assert_eq!(number(record.note(noted("v1", 10, None))), 1);
    assert_eq!(number(record.note(noted("v2", 20, None))), 2);
    assert_eq!(record.generations.len(), 2);
    assert!(record.newest().is_none(), "neither is committed");
}

#[test]
fn only_the_pinned_manifest_is_committed() {
    let mut record = SetRecord::new("s/");
    record.note(noted("v1", 10, Some("x is missing")));
    assert_eq!(record.commit(1, "of-v1", 6), Some(GenerationState::Pending));
    assert!(!record.refill(1, "other", &noted("v1", 10, None)));
    let full = Noted { manifest: Some("full".into()), ..noted("v1", 10, None) };
    assert!(record.refill(1, "of-v1", &full));
    assert_eq!(record.commit(1, "of-v1", 7), Some(GenerationState::Pinning));
    assert_eq!(record.commit(1, "full", 7), Some(GenerationState::Committed));
    assert!(!record.refill(1, "full", &full), "it is pending no longer");
    assert_eq!(record.commit(9, "full", 7), None);
}

#[test]
fn the_newest_is_that_of_the_latest_marker() {
    let mut record = SetRecord::new("s/");
    for (marker, order) in [("v1", 10), ("v2", 20)] {
        let number = number(record.note(noted(marker, order, None)));
        record.commit(number, &format!("of-{marker}"), 6);
    }
    let late = record.note(noted("v0", 15, None));
    assert_eq!(late, NoteOutcome::Refused("a later write of the marker was noted".into()));
    let newest = record.newest().unwrap();
    assert!(newest.marker.as_deref() == Some("v2") && newest.has_pins);
    assert!(record.withdraw(2, ASKED, 7));
    assert_eq!(record.newest().unwrap().marker.as_deref(), Some("v1"));
    assert!(!record.withdraw(2, ASKED, 8), "it is out already");
    assert_eq!(record.commit(2, "of-v2", 9), Some(GenerationState::Removing));
    record.forget(1);
    assert!(record.find(1).is_some(), "a committed one is not forgotten");
    record.forget(2);
    assert!(record.find(2).is_none());
    assert_eq!(number(record.note(noted("v3", 30, None))), 3, "numbers are given once");
}

#[test]
fn an_unclear_generation_is_filled_by_the_proxy_that_knows() {
    let mut record = SetRecord::new("s/");
    let unclear = Noted { manifest: None, ..noted("v1", 10, Some("unclear")) };
    assert_eq!(number(record.note(unclear)), 1);
    assert_eq!(number(record.note(noted("v1", 10, None))), 1);
    assert_eq!(record.commit(1, "of-v1", 7), Some(GenerationState::Committed));
}

#[test]
fn nothing_earlier_is_pinned_while_a_later_one_is_removed() {
    let mut record = SetRecord::new("s/");
    record.note(noted("v1", 10, Some("x is missing")));
    record.note(Noted { manifest: None, ..noted("v2", 20, Some("unclear")) });
    record.note(noted("v3", 30, None));
    assert!(record.withdraw(3, ASKED, 7));
    assert!(!record.refill(1, "of-v1", &noted("v1", 10, None)));
    let NoteOutcome::Noted(second) = record.note(noted("v2", 20, None)) else { panic!() };
    assert_eq!(second.state, GenerationState::Pending);
    record.forget(3);
    assert!(record.refill(1, "of-v1", &noted("v1", 10, None)));
    assert!(record.refill(2, "of-v2", &noted("v2", 20, None)));
}

#[test]
fn a_set_may_refuse_a_second_generation() {
    let mut record = SetRecord::new("s/");
    let strict = |marker, order| Noted { refuses_more: true, ..noted(marker, order, None) };
    let refused = NoteOutcome::Refused("generation 1 is committed".into());
    assert_eq!(number(record.note(strict("v1", 10))), 1);
    assert_eq!(record.note(strict("v2", 20)), refused, "it is being pinned");
    record.commit(1, "of-v1", 6);
    assert_eq!(record.note(strict("v2", 20)), refused);
    assert_eq!(number(record.note(strict("v1", 10))), 1, "the same marker again");
    record.withdraw(1, ASKED, 7);
    assert_eq!(number(record.note(strict("v2", 20))), 2);
}

#[test]
fn of_two_that_must_be_alone_one_is_committed() {
    let mut record = SetRecord::new("s/");
    let markers = [("v1", 10), ("v2", 20)];
    for (marker, order) in markers {
        let strict = Noted { refuses_more: true, ..noted(marker, order, Some("x")) };
        number(record.note(strict));
    }
    for (number, (marker, order)) in (1..).zip(markers) {
        assert!(record.refill(number, &format!("of-{marker}"), &noted(marker, order, None)));
    }
    assert_eq!(record.commit(2, "of-v2", 7), Some(GenerationState::Committed));
    assert_eq!(record.commit(1, "of-v1", 7), Some(GenerationState::Removing));
}

#[test]
fn a_commit_that_is_repeated_makes_one_generation_until_it_is_withdrawn() {
    let mut record = SetRecord::new("s/");
    assert_eq!(number(record.note(noted("commit:a", 10, None))), 1);
    assert_eq!(number(record.note(noted("commit:a", 12, None))), 1);
    assert_eq!(number(record.note(noted("commit:b", 11, None))), 2);
    record.withdraw(1, ASKED, 7);
    assert_eq!(number(record.note(noted("commit:a", 9, None))), 3);
    assert!(record.find(3).unwrap().order > record.find(2).unwrap().order);
}

#[test]
fn nothing_is_noted_while_objects_are_deleted() {
    let mut record = SetRecord::new("s/");
    let intent = || begun("t", 1);
    record.note(noted("v1", 10, None));
    assert!(!record.begin_deleting(1), "it isn't withdrawn");
    record.withdraw(1, Withdrawal { deletes_objects: true, ..ASKED }, 7);
    assert!(record.begin(intent()) && !record.begin_deleting(1), "a marker may come");
    record.end("t");
    assert!(record.begin_deleting(1) && !record.begin(intent()));
    assert!(matches!(record.note(noted("v2", 20, None)), NoteOutcome::Refused(_)));
    record.forget(1);
    assert_eq!(number(record.note(noted("v2", 20, None))), 2);
}

#[test]
fn objects_stay_unless_their_deletion_began() {
    let deletes = Withdrawal { deletes_objects: true, ..ASKED };
    let mut record = SetRecord::new("s/");
    record.note(noted("v1", 10, None));
    record.note(noted("v2", 20, None));
    assert!(!record.spare_objects(1), "it isn't withdrawn");
    record.withdraw(1, deletes, 7);
    record.withdraw(2, deletes, 7);
    assert!(record.begin_deleting(1) && !record.spare_objects(1), "some may be gone");
    assert!(record.spare_objects(2) && !record.begin_deleting(2));
    assert!(!record.find(2).unwrap().deletes_objects);
}

#[test]
fn long_reasons_are_cut() {
    let mut record = SetRecord::new("s/");
    let long = "ä".repeat(1_000_000);
    record.note(noted("v1", 10, Some(&long)));
    let reason = record.find(1).unwrap().reason.clone().unwrap();
    assert_eq!(reason.chars().count(), REASON_CHARS_MAX);
}

#[test]
fn generations_and_intents_are_bounded() {
    let mut record = SetRecord::new("s/");
    let intent = |at: usize| MarkerIntent { key: format!("s/{at}"), ..begun(&at.to_string(), 1) };
    for at in 0..INTENTS_MAX {
        assert!(record.begin(intent(at)));
    }
    assert!(!record.begin(intent(INTENTS_MAX)));
    assert!(record.end("3") && !record.end("3"));
    assert!(record.begin(intent(INTENTS_MAX)));
    for _ in 0..2 {
        record.end("5");
        record.end("6");
        assert!(record.begin(intent(7)) && record.begin(intent(7)), "the same again");
    }
    assert!(record.begin(intent(7)), "the oldest of those that say the same makes place");
    assert_eq!(record.intents.len(), INTENTS_MAX);
    for at in 0..GENERATIONS_MAX as u64 {
        record.note(noted(&format!("v{at}"), 10 + at, Some("x")));
    }
    assert!(matches!(record.note(noted("v", 5000, None)), NoteOutcome::Refused(_)));
}

#[test]
fn a_marker_of_a_later_save_is_expected_for_minutes() {
    let mut record = SetRecord::new("s/");
    record.begin(begun("earlier", 1));
    record.note(noted("v1", 10, Some("x is missing")));
    assert!(!record.is_marker_coming(1, 2), "the write began before");
    record.begin(begun("later", 1));
    assert!(record.is_marker_coming(1, 2) && !record.is_marker_coming(2, 2));
    assert!(!record.is_marker_coming(1, 1 + INTENT_AGE_MS), "its process has died");
    record.give_up("later");
    assert!(!record.is_marker_coming(1, 2));
    assert!(!record.may_delete(), "it may still be written");
}

#[test]
fn reasons_of_pending_generations_change() {
    let mut record = SetRecord::new("s/");
    record.note(noted("v1", 10, Some("x is missing")));
    record.explain(1, "y is missing");
    assert_eq!(record.find(1).unwrap().reason.as_deref(), Some("y is missing"));
    record.note(noted("v2", 20, None));
    record.explain(2, "y is missing");
    assert_eq!(record.find(2).unwrap().reason, None, "it is complete");
}

#[test]
fn records_are_written_as_json() {
    let mut record = SetRecord::new("s/");
    record.note(noted("v1", 10, Some("x is missing")));
    let json = serde_json::to_vec(&record).unwrap();
    assert_eq!(serde_json::from_slice::<SetRecord>(&json).unwrap(), record);
}

#[test]
fn intents_of_earlier_versions_delay_each_generation() {
    let old = r#"{"token": "t", "key": "s/m", "before": null, "at_ms": 5}"#;
    let intent: MarkerIntent = serde_json::from_str(old).unwrap();
    assert_eq!((intent.after, intent.is_given_up), (u64::MAX, false));
}
