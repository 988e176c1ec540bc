//! Each kind of wrong read is reported by its name; correct reads are accepted.

use super::{ReadScope, census, check, going_back};
use crate::checkers::generated::{RegisterFault, SMALL, V, history, of};
use crate::checkers::{Invocation, Response};

use Invocation::{Create, Delete, Get, Put};
use Response::{Done, Read, Refused, Unknown};

#[track_caller]
fn caught(operations: &[(u32, u64, u64, Invocation, Response)], kind: &str) {
    let violation = check(&of(operations)).unwrap_err();
    assert_eq!(violation.kind, kind, "{violation}");
}

#[track_caller]
fn accepted(operations: &[(u32, u64, u64, Invocation, Response)]) {
    if let Err(violation) = check(&of(operations)) {
        panic!("{violation}");
    }
}

#[test]
fn a_lost_write_is_called_so() {
    let write = (1, 0, 10, Put(V(1)), Done);
    let absent = (2, 20, 30, Get, Read(None));
    caught(&[write.clone(), absent.clone()], "lost write");
    accepted(&[write.clone(), (3, 5, 25, Delete, Done), absent.clone()]);
    accepted(&[write.clone(), (3, 11, 12, Delete, Unknown), absent.clone()]);
    accepted(&[(1, 0, 25, Put(V(1)), Done), absent.clone()]);
    // A delete that ended before the write began, or began after the read, explains nothing.
    let before = (3, 0, 4, Delete, Done);
    caught(&[before, (1, 5, 10, Put(V(1)), Done), absent.clone()], "lost write");
    caught(&[write, absent, (3, 40, 50, Delete, Done)], "lost write");
}

#[test]
fn a_delete_undone_is_called_so() {
    let (write, delete) = ((1, 0, 10, Put(V(1)), Done), (1, 20, 30, Delete, Done));
    let back = (2, 40, 50, Get, Read(Some(V(1))));
    caught(&[write.clone(), delete.clone(), back.clone()], "resurrected");
    accepted(&[write.clone(), (1, 20, 45, Delete, Done), back.clone()]);
    accepted(&[(1, 0, 25, Put(V(1)), Done), delete, back]);
}

#[test]
fn a_stale_read_is_called_so() {
    let (one, two) = ((1, 0, 10, Put(V(1)), Done), (1, 20, 30, Put(V(2)), Done));
    caught(&[one.clone(), two.clone(), (2, 40, 50, Get, Read(Some(V(1))))], "stale read");
    accepted(&[one.clone(), two.clone(), (2, 25, 50, Get, Read(Some(V(1))))]);
    accepted(&[one, two, (2, 40, 50, Get, Read(Some(V(2))))]);
}

#[test]
fn reads_of_values_never_written_are_reported() {
    caught(&[(2, 40, 50, Get, Read(Some(V(7))))], "invented");
    caught(&[(2, 0, 1, Get, Read(Some(V(7)))), (1, 5, 6, Put(V(7)), Done)], "invented");
    let refused = [(1, 0, 1, Put(V(1)), Done), (1, 2, 3, Create(V(2)), Refused)];
    let seen = (2, 4, 5, Get, Read(Some(V(2))));
    caught(&[&refused[..], &[seen]].concat(), "a refused write was seen");
}

#[test]
fn reads_that_go_back_are_called_so() {
    let writes = [(1, 0, 10, Put(V(1)), Done), (1, 20, 90, Put(V(2)), Done)];
    let new = (2, 30, 40, Get, Read(Some(V(2))));
    let old = (2, 50, 60, Get, Read(Some(V(1))));
    caught(&[&writes[..], &[new.clone(), old.clone()]].concat(), "reads go back");
    // Another client's read matters only if the reads of all clients count.
    let others = of(&[&writes[..], &[new, (3, 50, 60, Get, Read(Some(V(1))))]].concat());
    assert!(going_back(&others, ReadScope::EachClient).is_ok());
    assert!(going_back(&others, ReadScope::Everyone).is_err());
    accepted(&[&writes[..], &[old, (2, 65, 70, Get, Read(Some(V(2))))]].concat());
}

#[test]
fn degraded_answers_promise_less() {
    use martlet_protocol::consistency::AchievedLevel;
    let mut history = of(&[(1, 0, 10, Put(V(1)), Done), (2, 20, 30, Get, Read(None))]);
    history.operations[0].given = AchievedLevel::Degraded;
    assert!(check(&history).is_err());
    assert!(check(&history.firm()).is_ok(), "its write may be unseen (rule A1)");
    let mut history = of(&[(1, 0, 10, Put(V(1)), Done), (2, 20, 30, Get, Read(None))]);
    history.operations[1].given = AchievedLevel::Degraded;
    assert!(check(&history.firm()).is_ok(), "its read may miss a write (rule A1)");
    history.operations[1].given = AchievedLevel::Quorum;
    assert!(check(&history.firm()).is_err());
}

#[test]
fn a_census_looks_at_every_key_after_everything() {
    let write = (1, 0, 10, Put(V(1)), Done);
    let early = (2, 5, 20, Get, Read(Some(V(1))));
    assert_eq!(census(&of(&[write.clone(), early])).unwrap_err().kind, "no census");
    assert!(census(&of(&[write.clone(), (2, 15, 20, Get, Read(Some(V(1))))])).is_ok());
    assert_eq!(census(&of(&[write, (2, 15, 20, Get, Read(None))])).unwrap_err().kind, "lost write");
    for seed in 0..200 {
        let lossy = history(seed, SMALL, RegisterFault::None);
        assert!(census(&lossy).is_ok(), "seed {seed}");
    }
}
