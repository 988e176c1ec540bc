//! Tests of the merge: against a union of all replicas, with pages folded by the devices.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::entry::{Attributes, Body, ETag, Object, Value};
use martlet_protocol::stamp::WriterId;
use martlet_protocol::{Stamp, WriteId};
use proptest::prelude::*;

use super::*;

/// An object if the time is even, a tombstone if it is odd.
fn entry(time: u64) -> Entry {
    let order = Stamp { time, writer: WriterId(0) };
    let value = match time % 2 {
        0 => Value::Object(Box::new(object())),
        _ => Value::Tombstone,
    };
    Entry { order, write_id: WriteId([0; 16]), value }
}

fn object() -> Object {
    Object {
        size: 0,
        etag: ETag::Md5([0; 16]),
        modified_ms: 0,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Empty,
        version: None,
    }
}

fn is_live(time: u64) -> bool {
    time.is_multiple_of(2)
}

type Replica = BTreeMap<Vec<u8>, u64>;

/// A device's page. A device that folds skips the names behind the first live one that share
/// its bytes up to the delimiter.
fn page(replica: &Replica, start: &ListStart, limit: usize, fold: Option<&Fold>) -> ListReply {
    let after = |name: &[u8]| match start {
        ListStart::First => true,
        ListStart::At(at) => name >= at,
        ListStart::After(after) => name > after,
    };
    let (mut entries, mut skipped) = (Vec::new(), None::<Vec<u8>>);
    for (name, time) in replica.iter().filter(|(name, _)| after(name)) {
        if skipped.as_ref().is_some_and(|skipped| name.starts_with(skipped)) {
            continue;
        }
        if entries.len() == limit {
            return ListReply { entries, truncated: true };
        }
        let fold = fold.filter(|_| is_live(*time));
        skipped = fold.and_then(|fold| folded(name, &fold.prefix, &fold.delimiter)).map(Vec::from);
        entries.push((Bytes::from(name.clone()), entry(*time)));
    }
    ListReply { entries, truncated: false }
}

fn any_replicas() -> impl Strategy<Value = Vec<Replica>> {
    let name = proptest::collection::vec(0u8..4, 1..4);
    proptest::collection::vec(proptest::collection::btree_map(name, 0u64..6, 0..20), 1..4)
}

fn union(replicas: &[Replica]) -> Replica {
    let mut union = Replica::new();
    for (name, time) in replicas.iter().flatten() {
        let held = union.entry(name.clone()).or_default();
        *held = (*held).max(*time);
    }
    union
}

proptest! {
    #[test]
    fn merged_names_are_those_of_all_replicas(
        replicas in any_replicas(),
        limit in 1usize..5,
        skip in proptest::option::of(proptest::collection::vec(0u8..4, 1..3)),
    ) {
        let mut union = union(&replicas);
        if let Some(floor) = &skip {
            union.retain(|name, _| name >= floor);
        }
        let mut merge = Merge::new(replicas.len(), ListStart::First, None);
        if let Some(floor) = skip {
            merge.skip_to(floor.into());
        }
        let mut merged = Replica::new();
        loop {
            for (at, wanted) in merge.wanting() {
                merge.refill(at, page(&replicas[at], &wanted.start, limit, None));
            }
            match merge.next() {
                Some((name, entry)) => {
                    let holders = replicas
                        .iter()
                        .filter(|replica| replica.get(&name[..]) == Some(&entry.order.time));
                    prop_assert_eq!(holders.count(), merge.agreeing().len());
                    prop_assert!(merged.last_key_value().is_none_or(|(last, _)| last[..] < name[..]));
                    merged.insert(name.to_vec(), entry.order.time);
                }
                None if merge.is_wanting() => {}
                None => break,
            }
        }
        prop_assert_eq!(merged, union);
    }

    #[test]
    fn folded_pages_hide_no_live_name(
        replicas in any_replicas(),
        limit in 1usize..5,
        prefix in proptest::collection::vec(0u8..4, 0..2),
    ) {
        let fold = Fold { prefix: prefix.clone().into(), delimiter: Bytes::from_static(&[2]) };
        let folded = |name: &[u8]| {
            folded(name, &fold.prefix, &fold.delimiter).map(<[u8]>::to_vec)
        };
        let of_prefix = |replica: &Replica| -> Replica {
            let names = replica.iter().filter(|(name, _)| name.starts_with(&prefix));
            names.map(|(name, time)| (name.clone(), *time)).collect()
        };
        let replicas: Vec<Replica> = replicas.iter().map(of_prefix).collect();
        let live = union(&replicas).into_iter().filter(|(_, time)| is_live(*time));
        let expected: BTreeSet<Vec<u8>> =
            live.map(|(name, _)| folded(&name).unwrap_or(name)).collect();
        let mut merge = Merge::new(replicas.len(), ListStart::First, Some(fold.clone()));
        let mut listed = BTreeSet::new();
        loop {
            for (at, wanted) in merge.wanting() {
                let fold = Some(&fold).filter(|_| wanted.folds);
                merge.refill(at, page(&replicas[at], &wanted.start, limit, fold));
            }
            match merge.next() {
                Some((_, entry)) if !is_live(entry.order.time) => {}
                Some((name, _)) => match folded(&name) {
                    None => prop_assert!(listed.insert(name.to_vec())),
                    Some(fold) => {
                        if let Some(next) = successor(&fold) {
                            merge.skip_to(next);
                        }
                        prop_assert!(listed.insert(fold), "each prefix once");
                    }
                },
                None if merge.is_wanting() => {}
                None => break,
            }
        }
        prop_assert_eq!(listed, expected);
    }
}

/// A device's page of live names, which ends at a position after `rows` names that it passed over.
fn live_page(replica: &Replica, start: &ListStart, limit: usize, rows: usize) -> ListReply {
    let mut reply = ListReply::default();
    let whole = page(replica, start, usize::MAX, None).entries;
    let mut passed = 0;
    for (name, entry) in whole {
        if entry.value.is_tombstone() {
            passed += 1;
            if passed == rows {
                reply.end_at(name);
                break;
            }
        } else if reply.entries.len() == limit {
            reply.truncated = true;
            break;
        } else {
            reply.entries.push((name, entry));
        }
    }
    reply
}

proptest! {
    /// A merge that is left at its frontier, and begun anew there, returns every live name once.
    #[test]
    fn a_merge_begun_at_its_frontier_misses_nothing(
        replicas in any_replicas(),
        limit in 1usize..5,
        rows in 1usize..4,
        pauses in proptest::collection::vec(any::<bool>(), 1..20),
    ) {
        let live = replicas.iter().map(|replica| {
            let live = replica.iter().filter(|(_, time)| is_live(**time));
            live.map(|(name, time)| (name.clone(), *time)).collect()
        });
        let expected = union(&live.collect::<Vec<Replica>>());
        let mut merge = Merge::new(replicas.len(), ListStart::First, None);
        let (mut merged, mut pauses) = (Replica::new(), pauses.iter().cycle());
        let mut steps = 0;
        loop {
            steps += 1;
            prop_assert!(steps < 10_000, "it comes to an end");
            if let Some(frontier) = merge.frontier().filter(|_| *pauses.next().unwrap()) {
                merge = Merge::new(replicas.len(), frontier, None);
            }
            for (at, wanted) in merge.wanting() {
                merge.refill(at, live_page(&replicas[at], &wanted.start, limit, rows));
            }
            match merge.next() {
                Some((name, entry)) => {
                    prop_assert!(merged.last_key_value().is_none_or(|(last, _)| last[..] < name[..]));
                    merged.insert(name.to_vec(), entry.order.time);
                }
                None if merge.is_wanting() => {}
                None => break,
            }
        }
        prop_assert_eq!(merged, expected);
    }
}

#[test]
fn a_device_that_has_passed_a_name_is_not_queried_for_it() {
    let mut merge = Merge::new(2, ListStart::First, None);
    assert_eq!(merge.frontier(), None, "no device has begun");
    let mut passed = ListReply::default();
    passed.end_at(Bytes::from_static(b"m"));
    merge.refill(0, passed.clone());
    let entries = vec![(Bytes::from_static(b"c"), entry(0))];
    merge.refill(1, ListReply { entries, truncated: true });
    assert!(!merge.is_wanting() && merge.frontier().is_none());
    assert_eq!(merge.next().map(|(name, _)| name), Some(Bytes::from_static(b"c")));
    assert_eq!(merge.frontier(), Some(ListStart::After(Bytes::from_static(b"c"))));
    merge.refill(1, passed);
    assert_eq!(merge.frontier(), Some(ListStart::After(Bytes::from_static(b"m"))));
    merge.skip_to(Bytes::from_static(b"x"));
    assert_eq!(merge.frontier(), Some(ListStart::At(Bytes::from_static(b"x"))));
}

#[test]
fn names_skipped_before_a_deleted_object_are_read_unfolded() {
    let replica = |names: &[(&str, u64)]| -> Replica {
        names.iter().map(|(name, time)| (name.as_bytes().to_vec(), *time)).collect()
    };
    let stale = replica(&[("a/1", 0), ("a/2", 0), ("a/3", 0), ("b/1", 0)]);
    let deleted = replica(&[("a/1", 1), ("a/2", 1), ("a/3", 1), ("b/1", 0)]);
    let fold = Fold { prefix: Bytes::new(), delimiter: Bytes::from_static(b"/") };
    let mut merge = Merge::new(2, ListStart::First, Some(fold.clone()));
    let (mut live, mut pages) = (Vec::new(), Vec::new());
    loop {
        for (at, wanted) in merge.wanting() {
            let replica = [&stale, &deleted][at];
            pages.push((at, wanted.folds));
            let fold = Some(&fold).filter(|_| wanted.folds);
            merge.refill(at, page(replica, &wanted.start, 100, fold));
        }
        match merge.next() {
            Some((name, entry)) if is_live(entry.order.time) => live.push(name),
            Some(_) => {}
            None if merge.is_wanting() => {}
            None => break,
        }
    }
    assert_eq!(live, ["b/1"]);
    assert_eq!(pages[..3], [(0, true), (1, true), (0, false)], "one page for all of a/");
}

#[test]
fn names_fold_at_the_first_delimiter_beyond_the_prefix() {
    let fold = |name: &'static str, prefix: &str, delimiter: &str| {
        folded(name.as_bytes(), prefix.as_bytes(), delimiter.as_bytes())
            .map(|fold| std::str::from_utf8(fold).unwrap())
    };
    assert_eq!(fold("a/b/c", "", "/"), Some("a/"));
    assert_eq!(fold("a/b/c", "a/", "/"), Some("a/b/"));
    assert_eq!(fold("a/b/c", "a", "/"), Some("a/"));
    assert_eq!(fold("a/b/c", "a/b/", "/"), None);
    assert_eq!(fold("a/b/c", "x", "/"), None);
    assert_eq!(fold("a--b", "", "--"), Some("a--"));
    assert_eq!(fold("a-b", "", "--"), None);
    assert_eq!(fold("a/b", "", ""), None);
}

#[test]
fn successors() {
    assert_eq!(successor(b"a/"), Some(Bytes::from_static(b"a0")));
    assert_eq!(successor(b"a\xff"), Some(Bytes::from_static(b"b")));
    assert_eq!(successor(b"\xff"), None);
}
