//! Each kind of wrong listing is reported by its name; correct listings are accepted.

use martlet_protocol::consistency::AchievedLevel;

use super::check;
use crate::checkers::generated::{RegisterFault, SMALL, history};
use crate::checkers::{History, Invocation, ListedKey, Listing, Operation, Response, Value};

fn operation(at: u64, key: &str, call: Invocation, outcome: Response) -> Operation {
    let (invoked_at, returned_at) = (at, at + 5);
    let key = key.to_owned();
    Operation {
        client: 1,
        key,
        call,
        invoked_at,
        returned_at,
        outcome,
        given: AchievedLevel::Quorum,
    }
}

fn put(at: u64, key: &str) -> Operation {
    operation(at, key, Invocation::Put(Value(at)), Response::Done)
}

fn delete(at: u64, key: &str) -> Operation {
    operation(at, key, Invocation::Delete, Response::Done)
}

fn list(at: u64, keys: &[&str]) -> Operation {
    page(at, "", keys, false)
}

fn page(at: u64, after: &str, keys: &[&str], truncated: bool) -> Operation {
    let found = |key: &&str| ListedKey { key: (*key).to_owned(), value: None };
    let found = keys.iter().map(found).collect();
    let listing = Listing { after: after.to_owned(), found, truncated };
    operation(at, "", Invocation::List, Response::Listed(listing))
}

#[track_caller]
fn accepted(operations: Vec<Operation>) {
    if let Err(violation) = check(&History { operations }) {
        panic!("{violation}");
    }
}

#[track_caller]
fn caught(operations: Vec<Operation>, kind: &str) {
    let violation = check(&History { operations }).unwrap_err();
    assert_eq!(violation.kind, kind, "{violation}");
}

#[test]
fn acknowledged_keys_missing_from_a_listing_are_caught() {
    accepted(vec![put(0, "a"), put(10, "b"), list(20, &["a", "b"])]);
    caught(vec![put(0, "a"), put(10, "b"), list(20, &["b"])], "missing from a listing");
    accepted(vec![put(0, "a"), put(18, "b"), list(20, &["a"])]);
    accepted(vec![put(0, "a"), delete(18, "a"), list(20, &[])]);
    caught(vec![delete(0, "a"), put(10, "a"), list(20, &[])], "missing from a listing");
}

#[test]
fn a_page_speaks_of_its_own_range_only() {
    let puts = || vec![put(0, "a"), put(10, "b"), put(20, "c")];
    accepted([puts(), vec![page(30, "", &["a", "b"], true)]].concat());
    accepted([puts(), vec![page(30, "b", &["c"], false)]].concat());
    caught([puts(), vec![page(30, "", &["a", "c"], true)]].concat(), "missing from a listing");
    caught([puts(), vec![page(30, "b", &["b", "c"], false)]].concat(), "out of bounds");
}

#[test]
fn deleted_and_invented_keys_in_a_listing_are_caught() {
    caught(vec![put(0, "a"), delete(10, "a"), list(20, &["a"])], "resurrected");
    accepted(vec![put(0, "a"), delete(18, "a"), list(20, &["a"])]);
    accepted(vec![put(0, "a"), delete(10, "a"), put(18, "a"), list(20, &["a"])]);
    caught(vec![list(20, &["a"])], "invented");
    caught(vec![list(20, &["a"]), put(30, "a")], "invented");
    let refused = operation(0, "a", Invocation::Create(Value(1)), Response::Refused);
    caught(vec![refused, list(20, &["a"])], "invented");
}

#[test]
fn keys_come_in_order_and_once() {
    let puts = || vec![put(0, "a"), put(10, "b")];
    caught([puts(), vec![list(20, &["b", "a"])]].concat(), "out of order");
    caught([puts(), vec![list(20, &["a", "a", "b"])]].concat(), "listed twice");
}

#[test]
fn listings_of_an_atomic_map_are_accepted_and_faulty_ones_caught() {
    let caught = |fault| {
        let refused = move |seed: &u64| check(&history(*seed, SMALL, fault)).is_err();
        (0..200).filter(refused)
    };
    assert_eq!(caught(RegisterFault::None).count(), 0);
    for fault in
        [RegisterFault::ListsTooLittle, RegisterFault::ListsTheDeleted, RegisterFault::ListsTwice]
    {
        let caught = caught(fault).count();
        println!("{fault:?}: {caught} of 200 histories refused");
        assert!(caught >= 50, "{fault:?} is caught in {caught} of 200 histories only");
    }
}
