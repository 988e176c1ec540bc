//! Votes, floor and repair of an index (rules G1, G2, R6).

use super::*;
use martlet_protocol::backend::DeviceCondition;
use martlet_protocol::limits::CONDITION_MS;
use martlet_protocol::opening::Uuid;
use martlet_protocol::{DeviceIdentity, Term};

/// Opens the folder as a device that was formatted without votes.
fn voteless(folder: &Path) -> IndexFixture {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let with = IndexContext {
        name: "d7".into(),
        votes: false,
        clock: clock.clone(),
        ..surroundings(folder)
    };
    bed_with(folder, with, clock)
}

fn repair(write: EntryWrite) -> EntryWrite {
    EntryWrite { mode: WriteMode::Repair, ..write }
}

#[tokio::test]
async fn a_device_without_votes_stores_and_does_not_decide() {
    let folder = tempfile::tempdir().unwrap();
    let request = ListRequest {
        bucket: BUCKET,
        shards: vec![key("a").shard],
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: 10,
        fold: None,
        term: Term::ANY,
    };
    {
        let bed = voteless(folder.path());
        let first = write(&key("a"), stamp(5), Value::Tombstone);
        bed.index.set_fenced_of(DeviceCondition::at(IDENTITY, NOW_MS)).await.unwrap();
        for _ in 0..2 {
            assert_eq!(bed.index.write(first.clone()).await.unwrap(), WriteReply::Unvoted);
        }
        let older = repair(write(&key("a"), stamp(4), Value::Tombstone));
        assert_eq!(bed.index.write(older).await.unwrap(), WriteReply::Unvoted);
        let read = bed.index.read(&key("a"), Want::Entry, Term::ANY).await.unwrap_err();
        assert_eq!(read.kind(), ErrorKind::Unavailable);
        assert!(read.to_string().contains("device d7 has no vote"), "{read}");
        assert!(bed.index.list(&request).await.is_err());
        assert!(bed.index.promise(&key("a"), stamp(9), Term::ANY).await.is_err());
        let all = bed.index.registers(None, 10).await.unwrap();
        assert_eq!(all[0].1.entry.as_ref().unwrap().order, stamp(5));
        bed.index.set_voting(true).await.unwrap();
        assert_eq!(bed.index.list(&request).await.unwrap().entries.len(), 1);
    }
    // The recorded votes override the device's formatting, and survive a crash.
    let bed = voteless(folder.path());
    assert!(bed.index.voting_snapshot().voting);
    assert_eq!(
        bed.index.write(write(&key("b"), stamp(5), Value::Tombstone)).await.unwrap(),
        WriteReply::Stored
    );
    bed.index.set_voting(false).await.unwrap();
    assert!(bed.index.read(&key("a"), Want::Entry, Term::ANY).await.is_err());
    drop(bed);
    assert!(!super::bed(folder.path()).index.voting_snapshot().voting);
}

#[tokio::test]
async fn the_floor_stands_under_every_promise_and_never_falls() {
    let folder = tempfile::tempdir().unwrap();
    {
        let bed = bed(folder.path());
        bed.index.write(write(&key("a"), stamp(5), Value::Tombstone)).await.unwrap();
        bed.index.promise(&key("b"), stamp(90), Term::ANY).await.unwrap();
        bed.index.raise_floor(stamp(50)).await.unwrap();
        bed.index.raise_floor(stamp(40)).await.unwrap();
    }
    let bed = bed(folder.path());
    for (name, promise) in [("a", 50), ("b", 90), ("c", 50)] {
        let view = bed.index.read(&key(name), Want::Entry, Term::ANY).await.unwrap();
        assert_eq!(view.promise, stamp(promise), "{name}");
        let low = write(&key(name), stamp(promise - 1), Value::Tombstone);
        let behind = WriteReply::Behind(stamp(promise));
        assert_eq!(bed.index.write(low.clone()).await.unwrap(), behind, "{name}");
        assert_eq!(bed.index.write(repair(low)).await.unwrap(), behind, "{name}");
        let low = bed.index.promise(&key(name), stamp(promise), Term::ANY).await.unwrap();
        assert_eq!(low, PromiseReply::Behind(stamp(promise)), "{name}");
        let high = write(&key(name), stamp(promise + 1), Value::Tombstone);
        assert_eq!(bed.index.write(high).await.unwrap(), WriteReply::Stored, "{name}");
    }
    assert!(matches!(
        bed.index.promise(&key("d"), stamp(51), Term::ANY).await.unwrap(),
        PromiseReply::Promised(view) if view.promise == stamp(51)
    ));
}

#[tokio::test]
async fn a_repair_is_merged_by_order_and_judged_by_its_own_bound_alone() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let fence = BucketFence { bucket: BUCKET, generation: 9, open: false };
    bed.index.fence(fence).await.unwrap();
    bed.clock.advance_ms(10 * FIRST_HAND_AGE_MS_MAX);
    let old = repair(write(&key("a"), stamp(5), object(1, extents(1))));
    let late = EntryWrite { commit_by_ms: bed.clock.now_ms() - 1, ..old.clone() };
    assert_eq!(bed.index.write(late).await.unwrap(), WriteReply::OutOfTime);
    let old = EntryWrite { commit_by_ms: bed.clock.now_ms(), ..old };
    assert_eq!(bed.index.write(old.clone()).await.unwrap(), WriteReply::Stored);
    assert_eq!(bed.index.write(old).await.unwrap(), WriteReply::Stored);
    let ahead = Stamp::at_ms(bed.clock.now_ms() + 2 * CLOCK_SKEW_MS_MAX);
    let far = repair(write(&key("a"), ahead, object(1, extents(2))));
    assert_eq!(bed.index.write(far).await.unwrap(), WriteReply::Stored);
    let between = repair(write(&key("a"), stamp(7), object(1, extents(3))));
    assert_eq!(bed.index.write(between).await.unwrap(), WriteReply::Superseded);
    let garbage = bed.index.garbage(u64::MAX, 10).await.unwrap();
    assert_eq!(garbage.len(), 1, "what a repair brings too late is noted where it was superseded");
    assert_eq!(garbage[0].body, extents(1));
}

#[tokio::test]
async fn all_registers_page_in_their_order_with_bytes_and_promises() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    bed.index.promise(&key("p"), stamp(9), Term::ANY).await.unwrap();
    for number in 0..20u8 {
        let name = format!("{number:02}");
        bed.index.write(inline(&key(&name), stamp(5), &[number; 3000])).await.unwrap();
    }
    bed.index.write(write(&key("t"), stamp(5), Value::Tombstone)).await.unwrap();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = bed.index.registers(after.as_ref(), 6).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.0.clone());
        all.extend(page);
    }
    assert!(all.len() == 22 && all.is_sorted_by_key(|(key, _)| key.clone()));
    for (at, view) in all {
        let single = bed.index.read(&at, Want::EntryAndInline, Term::ANY).await.unwrap();
        assert_eq!(view, single, "{at:?}");
        assert_eq!(view.inline.is_some(), at != key("p") && at != key("t"));
    }
    let fence = BucketFence { bucket: BUCKET, generation: 9, open: true };
    bed.index.fence(fence).await.unwrap();
    assert_eq!(bed.index.fences().all(), [fence]);
}

#[tokio::test]
async fn numbers_of_ring_changes_that_none_could_follow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    bed.index.raise_term(Term(9)).await.unwrap();
    bed.index.set_joined(4).await.unwrap();
    for far in [u64::MAX, u64::MAX - 1, 10 + martlet_protocol::limits::RING_AHEAD_MAX] {
        let refusal = bed.index.raise_term(Term(far)).await.unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::Invalid);
        assert_eq!(bed.index.set_joined(far).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    let snapshot = bed.index.voting_snapshot();
    assert_eq!((snapshot.term, snapshot.joined), (Term(9), 4));
    bed.index.raise_term(Term(100_000)).await.unwrap();
    bed.index.set_joined(50_000).await.unwrap();
}

#[tokio::test]
async fn an_index_of_another_formatting_does_not_open() {
    let folder = tempfile::tempdir().unwrap();
    let with = surroundings(folder.path());
    let open = |device| {
        let with = IndexContext { device, ..with.clone() };
        Index::open(&folder.path().join("index"), with).map(drop)
    };
    open(Uuid([1; 16])).unwrap();
    let error = open(Uuid([2; 16])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("earlier formatting"), "{error}");
    open(Uuid([1; 16])).unwrap();
}

/// The identity of [`surroundings`].
const IDENTITY: DeviceIdentity = DeviceIdentity([7; 16]);

#[tokio::test]
async fn changes_of_another_device_and_late_ones_leave_nothing_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let condition = DeviceCondition::at(IDENTITY, NOW_MS);
    {
        let bed = voteless(folder.path());
        let swapped = DeviceCondition { identity: DeviceIdentity([8; 16]), ..condition };
        let refusals = [
            bed.index.set_voting_of(swapped, true).await,
            bed.index.raise_floor_of(swapped, stamp(50)).await,
            bed.index.set_joined_of(swapped, 4).await,
            bed.index.set_fenced_of(swapped).await,
        ];
        for refusal in refusals.map(Result::unwrap_err) {
            assert!(refusal.kind() == ErrorKind::Conflict && refusal.had_no_effect());
        }
        bed.clock.advance_ms(CONDITION_MS + 1);
        let refusals = [
            bed.index.set_voting_of(condition, true).await,
            bed.index.raise_floor_of(condition, stamp(50)).await,
            bed.index.set_joined_of(condition, 4).await,
            bed.index.set_fenced_of(condition).await,
        ];
        for refusal in refusals.map(Result::unwrap_err) {
            assert!(refusal.kind() == ErrorKind::Unavailable && refusal.had_no_effect());
        }
        let snapshot = bed.index.voting_snapshot();
        assert_eq!((snapshot.has_votes, snapshot.joined), (false, 0));
    }
    let bed = voteless(folder.path());
    assert!(!bed.index.voting_snapshot().has_votes);
    bed.index.raise_floor_of(condition, stamp(50)).await.unwrap();
    bed.index.set_joined_of(condition, 4).await.unwrap();
    bed.index.set_voting_of(condition, true).await.unwrap();
    drop(bed);
    let bed = voteless(folder.path());
    let snapshot = bed.index.voting_snapshot();
    assert_eq!((snapshot.has_votes, snapshot.joined), (true, 4));
    let view = bed.index.read(&key("a"), Want::Entry, Term::ANY).await.unwrap();
    assert_eq!(view.promise, stamp(50));
}

/// The clock of a condition is read when its turn comes, not when the call arrives.
#[tokio::test]
async fn a_change_that_waits_behind_others_is_judged_at_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let bed = voteless(folder.path());
    let condition = DeviceCondition { identity: IDENTITY, not_after_ms: NOW_MS };
    bed.index.set_voting_of(condition, true).await.unwrap();
    bed.index.set_voting_of(condition, false).await.unwrap();
    bed.clock.advance_ms(1);
    let first = bed.index.write(write(&key("a"), stamp(5), Value::Tombstone));
    let (_, late) = tokio::join!(first, bed.index.set_voting_of(condition, true));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(!bed.index.voting_snapshot().has_votes);
}

/// Returns true if a device refuses first-hand writes and hints until it has its peers' fences.
async fn lacks_fences(bed: &IndexFixture) -> bool {
    let new = write(&key("new"), stamp(7), Value::Tombstone);
    let replies = [bed.index.write(new.clone()).await, bed.index.keep_hint(new).await];
    let refused = |reply: &Result<WriteReply>| {
        let refusal = reply.as_ref().err();
        refusal.is_some_and(|it| it.kind() == ErrorKind::Unavailable && it.had_no_effect())
    };
    // A device without votes keeps no hints, with fences or without.
    let keeps_none = refused(&replies[0]) || !bed.index.voting_snapshot().voting;
    assert_eq!(keeps_none, refused(&replies[1]), "{replies:?}");
    refused(&replies[0])
}

#[tokio::test]
async fn m2_a_device_takes_first_hand_writes_once_it_has_the_fences_of_its_peers() {
    let condition = DeviceCondition::at(IDENTITY, NOW_MS);
    for way in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        {
            let bed = voteless(folder.path());
            assert!(lacks_fences(&bed).await);
            // Copies are taken: they were judged when they were written first.
            let copy = repair(write(&key("a"), stamp(5), Value::Tombstone));
            assert_eq!(bed.index.write(copy).await.unwrap(), WriteReply::Unvoted);
            // A new member gets its votes before it decides.
            bed.index.set_voting_of(condition, true).await.unwrap();
            assert!(lacks_fences(&bed).await);
        }
        let bed = voteless(folder.path());
        assert!(bed.index.voting_snapshot().has_votes && lacks_fences(&bed).await, "after a crash");
        match way {
            0 => bed.index.set_fenced_of(condition).await.unwrap(),
            // The caller copied fences before.
            1 => bed.index.set_joined_of(condition, 1).await.unwrap(),
            _ => {
                bed.index.raise_floor_of(condition, stamp(1)).await.unwrap();
                bed.index.set_voting_of(condition, true).await.unwrap();
            }
        }
        assert!(!lacks_fences(&bed).await, "way {way}");
        bed.index.set_voting(false).await.unwrap();
        drop(bed);
        assert!(!lacks_fences(&voteless(folder.path())).await, "the votes went, the fences stay");
    }
}
