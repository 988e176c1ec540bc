//! Each kind of wrong reply about sets is reported by its name; right ones are accepted.

use super::*;
use crate::checkers::generated::{V, of};
use crate::checkers::{Invocation, Response};

use Invocation::{Delete, Put};
use Response::{Done, Unknown};
use SetCall::{Commit, Get, List, Marker, Withdraw};
use SetReply::{Absent, Committed, Found, Gone, Listed, Pending};

const SET: &str = "s/";

type RawOperation = (&'static str, u64, u64, Invocation, Response);

/// A save of a shard and a marker from 0 to 40, which was answered `committed`.
fn saved() -> (Vec<RawOperation>, Vec<SetOperation>) {
    let objects = vec![("s/a", 0, 10, Put(V(1)), Done), ("s/.m", 20, 40, Put(V(2)), Done)];
    (objects, vec![set(20, 40, Marker(V(2)), Committed(1))])
}

/// A second save from 100 to 140.
fn saved_twice() -> (Vec<RawOperation>, Vec<SetOperation>) {
    let (mut objects, mut sets) = saved();
    objects.extend([("s/a", 100, 110, Put(V(3)), Done), ("s/.m", 120, 140, Put(V(4)), Done)]);
    sets.push(set(120, 140, Marker(V(4)), Committed(2)));
    (objects, sets)
}

fn set(invoked_at: u64, returned_at: u64, call: SetCall, reply: SetReply) -> SetOperation {
    SetOperation { client: 1, set: SET.to_owned(), call, invoked_at, returned_at, reply }
}

fn listed(shard: u64, marker: u64) -> SetReply {
    Listed([("a".to_owned(), V(shard)), (".m".to_owned(), V(marker))].into())
}

fn nothing() -> SetReply {
    Listed(Objects::new())
}

fn get(generation: Option<u64>) -> SetCall {
    Get { rest: "a".to_owned(), generation }
}

fn rules(keep: Option<usize>) -> SetRules {
    let keep = keep.map(|keep| (String::new(), keep)).into_iter().collect();
    SetRules { marker: ".m".to_owned(), named: vec!["a".to_owned()], keep }
}

fn history(objects: &[RawOperation]) -> History {
    let mut history = History::default();
    for (key, invoked_at, returned_at, call, outcome) in objects {
        let one = of(&[(1, *invoked_at, *returned_at, call.clone(), outcome.clone())]);
        let of_key = |it: crate::checkers::Operation| crate::checkers::Operation {
            key: (*key).to_owned(),
            ..it
        };
        history.operations.extend(one.operations.into_iter().map(of_key));
    }
    history
}

fn verdict(
    (objects, mut sets): (Vec<RawOperation>, Vec<SetOperation>),
    more: &[SetOperation],
    keep: Option<usize>,
) -> Result<(), SetViolation> {
    sets.extend_from_slice(more);
    check(&SetHistory { rules: rules(keep), operations: sets }, &history(&objects))
}

#[track_caller]
fn accepted(saves: (Vec<RawOperation>, Vec<SetOperation>), more: &[SetOperation]) {
    if let Err(violation) = verdict(saves, more, None) {
        panic!("{violation}");
    }
}

#[track_caller]
fn caught(saves: (Vec<RawOperation>, Vec<SetOperation>), more: &[SetOperation], kind: &str) {
    let violation = verdict(saves, more, None).unwrap_err();
    assert_eq!(violation.kind, kind, "{violation}");
}

#[test]
fn whole_generations_in_their_order_are_right() {
    let reads = [
        set(0, 5, List(None), nothing()),
        set(45, 50, List(None), listed(1, 2)),
        set(45, 50, get(None), Found(V(1))),
        set(100, 135, List(None), listed(1, 2)),
        set(125, 135, List(None), listed(3, 4)),
        set(150, 160, List(Some(1)), listed(1, 2)),
        set(150, 160, get(Some(1)), Found(V(1))),
        set(150, 160, get(None), Found(V(3))),
        set(150, 160, List(Some(7)), nothing()),
        set(150, 160, List(None), SetReply::Unknown),
    ];
    accepted(saved_twice(), &reads);
}

#[test]
fn a_mixture_is_caught() {
    caught(saved_twice(), &[set(150, 160, List(None), listed(3, 2))], "of a later save");
    caught(saved_twice(), &[set(150, 160, List(None), listed(1, 4))], "stale");
    let both =
        [set(150, 160, List(None), listed(3, 4)), set(150, 160, List(Some(2)), listed(1, 4))];
    caught(saved_twice(), &both, "changed");
    let part = Listed([(".m".to_owned(), V(2))].into());
    caught(saved(), &[set(50, 60, List(None), part)], "torn");
    let unmarked = Listed([("a".to_owned(), V(1))].into());
    caught(saved(), &[set(50, 60, List(None), unmarked)], "torn");
    caught(saved(), &[set(50, 60, get(None), Found(V(9)))], "invented");
}

#[test]
fn a_shorter_generation_is_caught() {
    let (mut objects, sets) = saved();
    objects.push(("s/b", 0, 10, Put(V(7)), Done));
    caught((objects.clone(), sets.clone()), &[set(50, 60, List(None), listed(1, 2))], "shorter");
    objects.push(("s/b", 30, 90, Delete, Unknown));
    accepted((objects, sets), &[set(50, 60, List(None), listed(1, 2))]);
}

#[test]
fn a_lost_generation_is_caught() {
    caught(saved(), &[set(50, 60, List(None), nothing())], "lost");
    caught(saved(), &[set(41, 60, get(None), Absent)], "lost");
    // Its reply was on its way.
    accepted(saved(), &[set(39, 60, List(None), nothing())]);
    let withdrawn = |reply| set(45, 55, Withdraw(Some(1)), reply);
    accepted(saved(), &[withdrawn(SetReply::Unknown), set(50, 60, List(None), nothing())]);
    accepted(saved(), &[withdrawn(SetReply::Done), set(50, 60, List(None), listed(1, 2))]);
    let seen = [set(50, 60, List(Some(1)), listed(1, 2)), set(70, 80, List(Some(1)), nothing())];
    caught(saved(), &seen, "lost");
    // An open outcome that a client saw.
    let (objects, _) = saved();
    let open = vec![set(20, 90, Marker(V(2)), SetReply::Unknown)];
    let seen = [set(50, 60, List(None), listed(1, 2)), set(70, 80, List(None), nothing())];
    caught((objects, open), &seen, "lost");
}

#[test]
fn an_older_generation_is_caught() {
    caught(saved_twice(), &[set(150, 160, List(None), listed(1, 2))], "older");
    caught(saved_twice(), &[set(150, 160, get(None), Found(V(1)))], "older");
    let withdrawn = set(145, 155, Withdraw(Some(2)), SetReply::Done);
    accepted(saved_twice(), &[withdrawn, set(150, 160, List(None), listed(1, 2))]);
}

#[test]
fn a_withdrawn_generation_that_comes_back_is_caught() {
    for number in [Some(1), None] {
        let withdrawn = set(45, 55, Withdraw(number), SetReply::Done);
        for call in [List(None), List(Some(1))] {
            caught(saved(), &[withdrawn.clone(), set(60, 70, call, listed(1, 2))], "came back");
        }
        caught(saved(), &[withdrawn, set(60, 70, get(Some(1)), Found(V(1)))], "came back");
    }
}

#[test]
fn a_version_that_is_gone_is_caught() {
    caught(saved(), &[set(50, 60, get(None), Gone)], "unpinned");
}

#[test]
fn a_pending_generation_takes_missing_objects_and_no_later_ones() {
    let objects = vec![("s/.m", 20, 40, Put(V(2)), Done), ("s/a", 50, 60, Put(V(1)), Done)];
    let pending = vec![set(20, 40, Marker(V(2)), Pending(Some(1)))];
    let read = [set(70, 80, List(None), listed(1, 2))];
    accepted((objects.clone(), pending.clone()), &read);
    let before = ("s/a", 0, 10, Put(V(9)), Done);
    caught(([vec![before], objects].concat(), pending), &read, "of a later save");
}

#[test]
fn an_explicit_commit_is_exactly_the_requested_set() {
    let objects: Objects = [("x".to_owned(), V(5))].into();
    let commit = vec![set(20, 40, Commit(objects.clone()), Committed(1))];
    let read = |objects| [set(50, 60, List(None), Listed(objects))];
    accepted((Vec::new(), commit.clone()), &read(objects));
    let other = [("x".to_owned(), V(6))].into();
    assert!(verdict((Vec::new(), commit), &read(other), None).is_err());
}

#[test]
fn retention_keeps_the_newest() {
    let gone = [set(150, 160, List(Some(1)), nothing())];
    assert_eq!(verdict(saved_twice(), &gone, Some(1)), Ok(()));
    assert_eq!(verdict(saved_twice(), &gone, Some(2)).unwrap_err().kind, "lost");
    let newest = [set(150, 160, List(Some(2)), nothing())];
    assert_eq!(verdict(saved_twice(), &newest, Some(1)).unwrap_err().kind, "lost");
    let held = [set(50, 60, SetCall::Hold(1), SetReply::Done), gone[0].clone()];
    assert_eq!(verdict(saved_twice(), &held, Some(1)).unwrap_err().kind, "lost");
}

#[test]
fn a_folder_without_objects_may_go() {
    let (mut objects, sets) = saved();
    objects.push(("s/a", 50, 60, Delete, Done));
    let read = [set(80, 90, List(None), nothing())];
    caught((objects.clone(), sets.clone()), &read, "lost");
    objects.push(("s/.m", 60, 70, Delete, Done));
    accepted((objects, sets), &read);
}
