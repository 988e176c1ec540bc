//! Changes of a device's state that wait together, and the exact bounds of terms and ages.

use futures::future::join_all;

use super::*;

fn fence_of(number: u8) -> BucketFence {
    BucketFence { bucket: BucketId([number; 16]), generation: 1, open: number.is_multiple_of(2) }
}

/// A group changes one state: each change has to end its group, or a later change hides it.
#[tokio::test]
async fn changes_that_wait_together_all_take_effect() {
    const CHANGES: u8 = 20;
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let index = &bed.index;
    let changes = (1..=CHANGES).map(|number| async move {
        let (fenced, raised, term, joined, voting) = tokio::join!(
            index.fence(fence_of(number)),
            index.raise_floor(stamp(number.into())),
            index.raise_term(Term(number.into())),
            index.set_joined(number.into()),
            index.set_voting(number == CHANGES),
        );
        for done in [fenced, raised, term, joined, voting] {
            done.unwrap();
        }
    });
    join_all(changes).await;
    let mut fences = index.fences().all();
    fences.sort_by_key(|fence| fence.bucket);
    assert_eq!(fences, (1..=CHANGES).map(fence_of).collect::<Vec<_>>());
    let snapshot = index.voting_snapshot();
    let last = u64::from(CHANGES);
    assert_eq!((snapshot.term, snapshot.joined), (Term(last), last));
    assert!(snapshot.voting, "the last change gave the votes");
    let view = index.read(&key("a"), Want::Entry, Term(last)).await.unwrap();
    assert_eq!(view.promise, stamp(last));
}

#[tokio::test]
async fn fences_that_wait_together_share_a_sync() {
    const FENCES: u16 = 2000;
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let fence = |number: u16| {
        let mut bucket = [0; 16];
        bucket[..2].copy_from_slice(&(number / 2).to_be_bytes());
        // Two fences of each bucket. The later one is kept, wherever it is in a group.
        BucketFence { bucket: BucketId(bucket), generation: (number % 2).into(), open: true }
    };
    let before = bed.counters.snapshot().syncs;
    let fences = (0..FENCES).rev().map(|number| bed.index.fence(fence(number)));
    assert!(join_all(fences).await.into_iter().all(|done| done.is_ok()));
    let syncs = bed.counters.snapshot().syncs - before;
    assert!(syncs < u64::from(FENCES) / 4, "{syncs} syncs of {FENCES} fences");
    let mut held = bed.index.fences().all();
    held.sort_by_key(|fence| fence.bucket);
    let wanted: Vec<_> = (0..FENCES).filter(|number| number % 2 == 1).map(fence).collect();
    assert_eq!(held, wanted);
    drop(bed);
    let mut stored = self::bed(folder.path()).index.fences().all();
    stored.sort_by_key(|fence| fence.bucket);
    assert_eq!(stored, wanted, "on disk as in memory");
}

#[tokio::test]
async fn p1_requests_of_the_term_and_of_later_ones_are_taken_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    bed.index.raise_term(Term(8)).await.unwrap();
    for (ticks, term, is_taken) in [(1, 7, false), (2, 8, true), (3, 9, true), (4, 0, false)] {
        let dead = write(&key("a"), stamp(ticks), Value::Tombstone);
        let written = bed.index.write(EntryWrite { term: Term(term), ..dead }).await;
        assert_eq!(written.is_ok(), is_taken, "a write of term {term}");
        let promised = bed.index.promise(&key("b"), stamp(ticks), Term(term)).await;
        assert_eq!(promised.is_ok(), is_taken, "a ballot of term {term}");
        let read = bed.index.read(&key("a"), Want::Entry, Term(term)).await;
        assert_eq!(read.is_ok(), is_taken, "a read of term {term}");
        let newer = written.err().and_then(|refusal| refusal.newer_term());
        assert_eq!(newer, (!is_taken).then_some(Term(8)));
    }
}

/// A ballot that is too old has to begin above the oldest one that is taken.
#[tokio::test]
async fn a_ballot_is_taken_up_to_its_age_and_sent_above_it() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let at = |ms: u64| Stamp { time: ms << 16, writer: WriterId(1) };
    bed.clock.set_ms(NOW_MS + FIRST_HAND_AGE_MS_MAX + 1);
    let refused = bed.index.promise(&key("a"), at(NOW_MS), Term::ANY).await.unwrap();
    assert_eq!(refused, PromiseReply::Behind(Stamp::at_ms(NOW_MS + 1)));
    let oldest = bed.index.promise(&key("a"), at(NOW_MS + 1), Term::ANY).await.unwrap();
    assert!(matches!(oldest, PromiseReply::Promised(_)), "{oldest:?}");
    // A register that promised more says so.
    bed.index.promise(&key("b"), at(NOW_MS + 5), Term::ANY).await.unwrap();
    let refused = bed.index.promise(&key("b"), at(NOW_MS), Term::ANY).await.unwrap();
    assert_eq!(refused, PromiseReply::Behind(at(NOW_MS + 5)));
}

/// A stamp just above one of a fast clock is taken, however late the clock is by now.
#[tokio::test]
async fn c1_a_writer_may_follow_a_fast_clock_by_a_millisecond() {
    let at = |ms: u64| Stamp { time: ms << 16, writer: WriterId(1) };
    let fast = NOW_MS + CLOCK_SKEW_MS_MAX;
    for (ahead, reply) in [(1, WriteReply::Stored), (2, WriteReply::OutOfTime)] {
        let folder = tempfile::tempdir().unwrap();
        let bed = bed(folder.path());
        let dead = |ms| write(&key("a"), at(ms), Value::Tombstone);
        assert_eq!(bed.index.write(dead(fast)).await.unwrap(), WriteReply::Stored);
        bed.index.promise(&key("b"), at(fast), Term::ANY).await.unwrap();
        bed.clock.set_ms(NOW_MS - 1000);
        assert_eq!(bed.index.write(dead(fast + ahead)).await.unwrap(), reply, "{ahead} ms above");
        let promised = bed.index.promise(&key("b"), at(fast + ahead), Term::ANY).await;
        assert_eq!(promised.is_ok(), reply == WriteReply::Stored, "{ahead} ms above");
    }
}

/// A full device takes no new bytes, and a device in its reserve deletes and promises only.
#[tokio::test]
async fn the_reserve_serves_deletes_and_entries_without_bytes_of_their_own() {
    // Reserve in quarters of the free space, and the writes that are taken.
    for (quarters, bytes, entries) in [(0, true, true), (6, false, true), (16, false, false)] {
        let folder = tempfile::tempdir().unwrap();
        let free = Ballast::open(folder.path(), Reserve::Bytes(0)).unwrap().free_bytes();
        let reserve = Reserve::Bytes(free / 4 * quarters);
        let ballast = Arc::new(Ballast::open(folder.path(), reserve).unwrap());
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let with = IndexContext { ballast, clock: clock.clone(), ..surroundings(folder.path()) };
        let bed = bed_with(folder.path(), with, clock);
        for (write, is_taken) in [
            (inline(&key("bytes"), stamp(1), b"new bytes"), bytes),
            (write(&key("entry"), stamp(1), object(1, extents(1))), entries),
            (write(&key("delete"), stamp(1), Value::Tombstone), true),
        ] {
            let name = write.key.name.clone();
            for written in
                [bed.index.write(write.clone()).await, bed.index.keep_hint(write.clone()).await]
            {
                let refused = written.as_ref().err().map(|error| {
                    assert!(error.had_no_effect(), "{error}");
                    error.kind()
                });
                let expected = (!is_taken).then_some(ErrorKind::Full);
                assert_eq!(refused, expected, "{name:?} with {quarters} quarters in reserve");
            }
        }
        bed.index.promise(&key("promise"), stamp(1), Term::ANY).await.unwrap();
    }
}

/// A reply reports only what is on disk, refusals included.
#[tokio::test]
async fn r2_nothing_is_acknowledged_after_a_fault_and_no_state_changes() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let index = &bed.index;
    let dead = |name, ticks| write(&key(name), stamp(ticks), Value::Tombstone);
    index.write(dead("held", 5)).await.unwrap();
    index.reader.database.note_fault("the disk is gone");
    let refused = [
        index.write(dead("new", 1)).await.is_err(),
        index.write(dead("held", 4)).await.is_err(),
        index.promise(&key("b"), stamp(9), Term::ANY).await.is_err(),
        index.keep_hint(dead("hint", 1)).await.is_err(),
        index.fence(fence_of(1)).await.is_err(),
        index.raise_floor(stamp(50)).await.is_err(),
        index.raise_term(Term(7)).await.is_err(),
        index.set_joined(7).await.is_err(),
        index.set_voting(false).await.is_err(),
    ];
    assert_eq!(refused, [true; 9]);
    let snapshot = index.voting_snapshot();
    assert_eq!((snapshot.term, snapshot.joined, snapshot.hints), (Term::NONE, 0, 0));
    assert!(snapshot.voting && index.fences().all().is_empty());
}
