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
