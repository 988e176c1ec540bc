//! The search accepts histories of an atomic register and rejects those of a faulty one.

use std::time::Instant;

use crate::checkers::generated::{FAULTS, RegisterFault, SMALL, Shape, V, history, of};
use crate::checkers::{Invocation, Response, check, registers};

use Response::{Done, Failed, Read, Refused, Unknown};

fn put(value: u64) -> Invocation {
    Invocation::Put(V(value))
}

fn create(value: u64) -> Invocation {
    Invocation::Create(V(value))
}

fn replace(expected: u64, value: u64) -> Invocation {
    Invocation::Replace { expected: V(expected), value: V(value) }
}

fn read(value: u64) -> Response {
    Read(Some(V(value)))
}

#[track_caller]
fn good(operations: &[(u32, u64, u64, Invocation, Response)]) {
    if let Err(violation) = registers::check(&of(operations)) {
        panic!("{violation}");
    }
}

#[track_caller]
fn bad(operations: &[(u32, u64, u64, Invocation, Response)]) -> String {
    let violation = registers::check(&of(operations)).unwrap_err();
    assert_eq!(violation.kind, "not linearizable");
    violation.to_string()
}

#[test]
fn concurrent_writes_may_come_in_any_order() {
    let writes = [(1, 0, 10, put(1), Done), (2, 5, 15, put(2), Done)];
    for value in [1, 2] {
        good(&[&writes[..], &[(3, 20, 30, Invocation::Get, read(value))]].concat());
    }
    bad(&[&writes[..], &[(3, 20, 30, Invocation::Get, Read(None))]].concat());
}

#[test]
fn reads_that_flip_back_are_caught() {
    let writes = [(1, 0, 10, put(1), Done), (2, 0, 10, put(2), Done)];
    let reads = [(3, 20, 30, Invocation::Get, read(1)), (3, 40, 50, Invocation::Get, read(2))];
    bad(&[&writes[..], &reads[..]].concat());
}

#[test]
fn an_unknown_write_may_take_effect_late_or_never_but_not_twice() {
    let unknown = (1, 0, 10, put(1), Unknown);
    let absent = (2, 20, 30, Invocation::Get, Read(None));
    let there = (2, 40, 50, Invocation::Get, read(1));
    good(&[unknown.clone(), absent.clone()]);
    good(&[unknown.clone(), absent.clone(), there.clone()]);
    let gone = (2, 60, 70, Invocation::Get, Read(None));
    bad(&[unknown.clone(), absent, there.clone(), gone]);
    let other = (3, 52, 53, put(2), Done);
    let back = (2, 60, 70, Invocation::Get, read(1));
    bad(&[unknown, there, other, back]);
}

#[test]
fn a_failed_write_is_never_seen() {
    good(&[(1, 0, 10, put(1), Failed), (2, 20, 30, Invocation::Get, Read(None))]);
    bad(&[(1, 0, 10, put(1), Failed), (2, 20, 30, Invocation::Get, read(1))]);
}

#[test]
fn of_creates_only_one_wins() {
    let racer = |client, outcome| (client, 0, 100, create(u64::from(client)), outcome);
    let mut racers: Vec<_> = (1..=50).map(|client| racer(client, Refused)).collect();
    racers[30].4 = Done;
    good(&racers);
    racers[7].4 = Done;
    let text = bad(&racers);
    assert_eq!(text.lines().count(), 3, "only the two winners matter:\n{text}");
    // Without a winner no client can be refused, unless a call of unknown outcome won.
    let mut racers: Vec<_> = (1..=50).map(|client| racer(client, Refused)).collect();
    bad(&racers);
    racers[3].4 = Unknown;
    good(&racers);
}

#[test]
fn compare_and_set_loses_no_update() {
    let first = (1, 0, 10, put(1), Done);
    let one = (1, 20, 50, replace(1, 2), Done);
    good(&[first.clone(), one.clone(), (2, 20, 50, replace(1, 3), Refused)]);
    good(&[first.clone(), one.clone(), (2, 30, 60, replace(2, 3), Done)]);
    bad(&[first.clone(), one.clone(), (2, 20, 50, replace(1, 3), Done)]);
    bad(&[first.clone(), one, (2, 60, 70, Invocation::DeleteIf(V(1)), Done)]);
    let gone = (1, 20, 30, Invocation::Delete, Done);
    good(&[first.clone(), gone.clone(), (2, 60, 70, Invocation::DeleteIf(V(1)), Done)]);
    bad(&[first.clone(), gone.clone(), (2, 60, 70, Invocation::DeleteIf(V(1)), Refused)]);
    good(&[first.clone(), gone.clone(), (2, 60, 70, Invocation::DeleteIfThere(V(1)), Refused)]);
    bad(&[first.clone(), gone, (2, 60, 70, Invocation::DeleteIfThere(V(1)), Done)]);
    bad(&[first.clone(), (2, 60, 70, Invocation::DeleteIfThere(V(1)), Refused)]);
    bad(&[first, (2, 60, 70, Invocation::DeleteIf(V(1)), Refused)]);
}

#[test]
fn effects_of_refused_writes_are_caught() {
    let first = (1, 0, 10, put(1), Done);
    bad(&[first.clone(), (2, 20, 30, create(2), Refused), (3, 40, 50, Invocation::Get, read(2))]);
    bad(&[first, (2, 20, 30, replace(9, 2), Refused), (3, 40, 50, Invocation::Get, read(2))]);
}

#[test]
fn a_chain_of_unknown_writes_is_followed() {
    let chain = [
        (1, 0, 1, put(1), Unknown),
        (2, 0, 1, replace(1, 2), Unknown),
        (3, 0, 1, replace(2, 3), Unknown),
    ];
    good(&[&chain[..], &[(4, 10, 20, Invocation::Get, read(3))]].concat());
    bad(&[
        &chain[..],
        &[(4, 10, 20, Invocation::Get, read(3)), (4, 30, 40, Invocation::Get, read(2))],
    ]
    .concat());
}

#[test]
fn the_smallest_part_that_fails_is_shown() {
    let mut operations = Vec::new();
    for at in 0..100 {
        operations.push((1, at * 10, at * 10 + 5, put(at), Done));
        operations.push((2, at * 10 + 6, at * 10 + 8, Invocation::Get, read(at)));
    }
    operations[151].4 = read(10);
    let text = bad(&operations);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert!(lines.len() <= 4, "{text}");
    assert!(text.contains("put v10") && text.contains("get → v10"), "{text}");
}

#[test]
fn histories_of_an_atomic_register_are_accepted() {
    let begun = Instant::now();
    for seed in 0..3_000 {
        let history = history(seed, SMALL, RegisterFault::None);
        if let Err(violation) = check(&history) {
            panic!("seed {seed}: {violation}");
        }
    }
    println!("3000 good histories took {:?}", begun.elapsed());
}

#[test]
fn busy_keys_and_many_lost_answers_are_understood() {
    let busy = Shape { clients: 50, operations: 1_000, keys: 2, unknown_percent: 3 };
    let lost = Shape { clients: 8, operations: 200, keys: 2, unknown_percent: 30 };
    for (shape, seeds) in [(busy, 0..8), (lost, 0..50)] {
        for seed in seeds {
            if let Err(violation) = check(&history(seed, shape, RegisterFault::None)) {
                panic!("seed {seed} of {shape:?}: {violation}");
            }
        }
    }
}

#[test]
fn unobserved_writes_may_explain_refused_ones() {
    let unseen = (1, 0, 10, create(1), Unknown);
    good(&[unseen.clone(), (2, 20, 30, create(2), Refused)]);
    good(&[
        (1, 0, 10, put(1), Done),
        (2, 20, 30, Invocation::DeleteIf(V(1)), Unknown),
        (3, 40, 50, Invocation::Get, Read(None)),
    ]);
    bad(&[unseen, (2, 20, 30, create(2), Refused), (3, 40, 50, Invocation::Get, Read(None))]);
}

#[test]
fn planted_faults_are_caught() {
    for fault in FAULTS {
        let mut caught = 0;
        for seed in 0..100 {
            let Err(violation) = check(&history(seed, SMALL, fault)) else { continue };
            assert_ne!(violation.kind, "gave up", "{fault:?}, seed {seed}: {violation}");
            caught += 1;
        }
        println!("{fault:?}: {caught} of 100 histories refused");
        assert!(caught >= 65, "{fault:?} is caught in {caught} of 100 histories only");
    }
}

#[test]
fn the_search_alone_catches_every_fault_of_registers() {
    for fault in &FAULTS[..5] {
        let refused = (0..50).filter(|seed| {
            let found = registers::check(&history(*seed, SMALL, *fault));
            found.is_err_and(|violation| violation.kind == "not linearizable")
        });
        let caught = refused.count();
        assert!(caught >= 40, "{fault:?} is caught in {caught} of 50 histories only");
    }
}

#[test]
fn giving_up_is_a_failure() {
    // Fifty-nine concurrent writes, none of them seen, and a read of nothing after them.
    let mut operations: Vec<_> = (1..60).map(|at| (at, 0, 100, put(u64::from(at)), Done)).collect();
    operations.push((99, 200, 300, Invocation::Get, Read(None)));
    let violation = registers::check(&of(&operations)).unwrap_err();
    assert_eq!(violation.kind, "gave up", "{violation}");
}
