//! Steps without a caller: sentences, notes and devices by name.

use std::cell::Cell;
use std::collections::BTreeMap;

use martlet_admin_api::ring_builder::{NewBuilder, NewRingDevice, RingStep};
use martlet_ring::{Builder, MovePace};
use martlet_serving::Failure;

use crate::{PlanOccasion, apply, create, plan, rebalance, record, select};

const HOUR_MS: u64 = 3_600_000;
const NOW_MS: u64 = 500_000 * HOUR_MS;

fn new() -> NewBuilder {
    NewBuilder {
        part_power: 7,
        replicas: Some(2.0),
        erasure: None,
        min_part_hours: 1,
        overload: 0.0,
        policy: 0,
        policy_name: None,
    }
}

fn device(place: &str, weight: f64) -> NewRingDevice {
    NewRingDevice { place: place.to_owned(), weight, meta: "rack 7".to_owned() }
}

/// Builder of three devices of two zones after its first rebalance.
fn made() -> Builder {
    let (mut builder, _) = create(&new(), [7; 16]).unwrap();
    let devices = vec![
        device("r1z1-a@10.0.0.1:6200/sda", 100.0),
        device("r1z1-a@10.0.0.1:6200/sdb", 100.0),
        device("r1z2-b@10.0.0.2:6200/sda", 200.0),
    ];
    apply(&mut builder, &RingStep::Add { devices }).unwrap();
    rebalance(&mut builder, None, NOW_MS, &|| ()).unwrap();
    builder
}

#[test]
fn devices_are_found_by_id_and_place() {
    let builder = made();
    for (text, count) in
        [("d0", 1), ("0", 1), ("r1", 3), ("r1z1", 2), ("r1z1-a", 2), ("r1z1-a/sdb", 1)]
    {
        assert_eq!(select(&builder, text).unwrap().len(), count, "{text}");
    }
    for text in ["", "d3", "r2", "r1z1-", "sda", "R1"] {
        let error = select(&builder, text).unwrap_err();
        assert!(error.to_string().contains("no device of this ring matches"), "{text}: {error}");
    }
}

#[test]
fn new_builders_have_the_names_and_codes_of_their_policies() {
    let named = NewBuilder {
        policy: 1,
        policy_name: Some("ec".into()),
        erasure: Some("2+1".into()),
        replicas: None,
        ..new()
    };
    let (builder, line) = create(&named, [1; 16]).unwrap();
    assert_eq!(builder.settings().replicas.to_bits(), 3.0_f64.to_bits());
    assert_eq!(line.done, "made a builder for policy 1 (ec): 2^7 partitions × 3 fragments (2+1)");
    assert!(line.notes.iter().any(|note| note.contains("one parity fragment")), "{line:?}");
    for wrong in [
        NewBuilder { policy_name: None, ..named.clone() },
        NewBuilder { policy_name: Some("a b".into()), ..named.clone() },
        NewBuilder { erasure: Some("4".into()), ..named },
    ] {
        assert!(matches!(create(&wrong, [1; 16]), Err(Failure::Usage(_))), "{wrong:?}");
    }
}

#[test]
fn a_plan_is_that_of_the_rebalance_and_changes_nothing() {
    let mut builder = made();
    apply(&mut builder, &RingStep::SetWeight { devices: "d2".into(), weight: 100.0 }).unwrap();
    let (usage, before) = (BTreeMap::new(), builder.clone());
    let later = NOW_MS + 2 * HOUR_MS;
    let planned = |high_water: f64, goes_on: &dyn Fn() -> bool| {
        let pace = MovePace { bytes_per_second: 1, high_water };
        plan(&builder, PlanOccasion { seed: None, now_ms: later, goes_on }, &usage, pace)
    };
    let rehearsal = planned(0.9, &|| true).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(builder, before);
    let mut carried_out = builder.clone();
    let assignments = Cell::new(0);
    let observe = || assignments.set(assignments.get() + 1);
    let (line, report) = rebalance(&mut carried_out, None, later, &observe).unwrap();
    assert!((1..=33).contains(&assignments.get()), "{assignments:?}");
    assert_eq!((&rehearsal.done, &rehearsal.report), (&line, &report));
    assert_eq!(rehearsal.builder, carried_out);
    assert_eq!(rehearsal.after.hash(), carried_out.ring().unwrap().hash());
    assert!(matches!(planned(1.5, &|| true), Err(Failure::Usage(_))));
    let Err(Failure::Refused(sentence)) = planned(0.9, &|| false) else { panic!("it went on") };
    assert!(sentence.contains("ended before it was done"), "{sentence}");
}

#[test]
fn authors_without_a_name_are_unknown() {
    let mut builder = made();
    record(&mut builder, NOW_MS, "", "did this");
    record(&mut builder, NOW_MS, "ada", "did that");
    let whos: Vec<&str> = builder.history().iter().map(|entry| entry.who.as_str()).collect();
    assert_eq!(whos, ["unknown", "ada"]);
}

/// Builder of three copies on four nodes, and a second device of the first node, whose moves aren't
/// settled.
fn grown(policy_name: Option<&str>) -> Builder {
    let new = NewBuilder {
        replicas: Some(3.0),
        policy_name: policy_name.map(str::to_owned),
        min_part_hours: 0,
        ..new()
    };
    let (mut builder, _) = create(&new, [7; 16]).unwrap();
    let place = |node| device(&format!("r1z{node}-n{node}@10.0.0.{node}:6200/sda"), 100.0);
    apply(&mut builder, &RingStep::Add { devices: (1..=4).map(place).collect() }).unwrap();
    rebalance(&mut builder, None, NOW_MS, &|| ()).unwrap();
    let devices = vec![device("r1z1-n1@10.0.0.1:6200/sdb", 100.0)];
    apply(&mut builder, &RingStep::Add { devices }).unwrap();
    rebalance(&mut builder, None, NOW_MS, &|| ()).unwrap();
    builder
}

fn remove(devices: &[&str], force: bool) -> RingStep {
    RingStep::Remove { devices: devices.iter().map(|&it| it.to_owned()).collect(), force }
}

/// Error of a plan of the next rebalance.
fn planned(builder: &Builder) -> Option<String> {
    let when = PlanOccasion { seed: None, now_ms: NOW_MS, goes_on: &|| true };
    let pace = MovePace { bytes_per_second: 1, high_water: 0.9 };
    plan(builder, when, &BTreeMap::new(), pace).err().map(|failure| failure.to_string())
}

#[test]
fn a_device_with_unsettled_moves_is_removed_after_a_question() {
    let settled = || {
        let mut builder = grown(None);
        apply(&mut builder, &RingStep::Settle).unwrap();
        builder
    };
    apply(&mut settled(), &remove(&["d4"], false)).unwrap();
    let mut builder = grown(None);
    let before = builder.clone();
    let refusal = apply(&mut builder, &remove(&["d4"], false)).unwrap_err().to_string();
    assert!(refusal.contains("moved to d4 (r1z1-n1/sdb) and aren't settled"), "{refusal}");
    for remedy in ["run `settle` first", "repeat with --force"] {
        assert!(refusal.contains(remedy), "{refusal}");
    }
    assert_eq!(builder, before);
    apply(&mut builder, &remove(&["d0"], false)).unwrap();
    apply(&mut before.clone(), &remove(&["d4"], true)).unwrap();
}

#[test]
fn a_ring_of_the_index_that_nodes_would_refuse_is_not_made() {
    let mut named = grown(Some("index"));
    apply(&mut named, &remove(&["d4"], true)).unwrap();
    let refusal = planned(&named).unwrap();
    assert!(refusal.contains("nodes would refuse this ring"), "{refusal}");
    assert!(refusal.contains("run `settle` when"), "{refusal}");
    let again = rebalance(&mut named.clone(), None, NOW_MS, &|| ()).unwrap_err();
    assert_eq!(again.to_string(), refusal);
    // The order of `remove` and `settle` makes no difference.
    apply(&mut named, &RingStep::Settle).unwrap();
    assert_eq!(planned(&named), None);
    let (line, _) = rebalance(&mut named, None, NOW_MS, &|| ()).unwrap();
    assert!(line.notes.iter().all(|note| !note.contains("nodes refuse")), "{line:?}");

    // A builder of another name may be that of a ring of extents, which nodes take.
    let mut other = grown(None);
    apply(&mut other, &remove(&["d4"], true)).unwrap();
    let (line, _) = rebalance(&mut other, None, NOW_MS, &|| ()).unwrap();
    let note = "as a ring of the index, nodes refuse this one: the new ring moves partition";
    assert!(line.notes[0].starts_with(note), "{line:?}");
}

#[test]
fn most_holders_of_a_partition_of_the_index_do_not_leave_at_once() {
    for (name, is_refused) in [(Some("index"), true), (None, false)] {
        let mut builder = grown(name);
        apply(&mut builder, &RingStep::Settle).unwrap();
        let mut one = builder.clone();
        apply(&mut one, &remove(&["d1"], true)).unwrap();
        assert_eq!(planned(&one), None);
        let devices = vec![device("r1z2-n5@10.0.0.5:6200/sda", 100.0)];
        apply(&mut builder, &RingStep::Add { devices }).unwrap();
        apply(&mut builder, &remove(&["d1", "d2"], true)).unwrap();
        let made = rebalance(&mut builder, None, NOW_MS, &|| ());
        let text = match made {
            Err(refusal) => {
                assert!(is_refused);
                refusal.to_string()
            }
            Ok((line, _)) => {
                assert!(!is_refused);
                line.notes[0].clone()
            }
        };
        assert!(text.contains("takes most holders of partition"), "{text}");
    }
}
