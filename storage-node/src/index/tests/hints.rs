//! Hints of an index (rule A2).

use std::time::Duration;

use martlet_protocol::Term;

use super::*;

async fn kept(bed: &IndexFixture) -> Vec<(RegisterKey, Stamp)> {
    let hints = bed.index.hints(None, 100).await.unwrap();
    hints.into_iter().map(|hint| (hint.key, hint.entry.order)).collect()
}

/// Opens the folder as a device whose votes its peers have not confirmed, such as a disk that was put back.
fn unconfirmed(folder: &Path) -> IndexFixture {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let with = IndexContext { confirmed: false, clock: clock.clone(), ..surroundings(folder) };
    bed_with(folder, with, clock)
}

fn listing(prefix: &'static [u8]) -> ListRequest {
    ListRequest {
        bucket: BUCKET,
        shards: (0..4).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::from_static(prefix),
        start: ListStart::First,
        limit: 100,
        fold: None,
        term: Term::ANY,
    }
}

/// Returns the kinds of refusals of all calls that give hints away; none for those that answer.
async fn refusals(bed: &IndexFixture) -> [Option<ErrorKind>; 4] {
    [
        hint_calls::arrivals(&bed.index, None, 10).await.err().map(|error| error.kind()),
        bed.index.hints(None, 10).await.err().map(|error| error.kind()),
        bed.index.read_hint(&key("a"), Want::Entry).await.err().map(|error| error.kind()),
        bed.index.list_hints(&listing(b"")).await.err().map(|error| error.kind()),
    ]
}

/// Tombstones of what the hints hold may have been collected while another disk was in the place.
#[tokio::test]
async fn g1_a_device_that_may_not_use_its_votes_gives_no_hints_away() {
    let folder = tempfile::tempdir().unwrap();
    {
        let bed = bed(folder.path());
        bed.index.keep_hint(inline(&key("a"), stamp(5), b"deleted")).await.unwrap();
    }
    let bed = unconfirmed(folder.path());
    assert_eq!(bed.index.voting_snapshot().hints, 1, "operators see it");
    assert_eq!(refusals(&bed).await, [Some(ErrorKind::Unavailable); 4]);
    bed.index.set_confirmed(true);
    assert_eq!(refusals(&bed).await, [None; 4]);
    assert_eq!(kept(&bed).await, [(key("a"), stamp(5))]);
    // A device that lost its votes delivers after its sync.
    bed.index.set_voting(false).await.unwrap();
    assert_eq!(refusals(&bed).await, [Some(ErrorKind::Unavailable); 4]);
    bed.index.set_voting(true).await.unwrap();
    assert_eq!(refusals(&bed).await, [None; 4]);
    // A device without hints says so, whatever its votes: collectors ask every device.
    bed.index.forget_hint(&key("a"), stamp(5)).await.unwrap();
    bed.index.set_confirmed(false);
    assert_eq!(refusals(&bed).await, [None; 4]);
}

/// A disk that was put back begins anew, and its hints go to quarantine with its index.
#[tokio::test]
async fn a1_a_device_that_may_not_use_its_votes_keeps_no_hints() {
    let folder = tempfile::tempdir().unwrap();
    let bed = unconfirmed(folder.path());
    let root = RegisterKey { bucket: BucketId::ROOT, ..key("b") };
    for key in [&key("a"), &root] {
        let refusal =
            bed.index.keep_hint(write(key, stamp(5), Value::Tombstone)).await.unwrap_err();
        assert!(refusal.kind() == ErrorKind::Unavailable && refusal.had_no_effect(), "{refusal}");
    }
    assert_eq!(bed.index.voting_snapshot().hints, 0);
    bed.index.set_confirmed(true);
    let hint = write(&key("a"), stamp(5), Value::Tombstone);
    assert_eq!(bed.index.keep_hint(hint).await.unwrap(), WriteReply::Stored);
    assert_eq!(kept(&bed).await, [(key("a"), stamp(5))]);
}

#[tokio::test]
async fn a_hint_outlives_its_process_and_stays_apart_from_the_registers() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = vec![3; 5000];
    let hint = EntryWrite { keep_body: true, ..inline(&key("a"), stamp(5), &bytes) };
    {
        let bed = bed(folder.path());
        assert_eq!(bed.index.keep_hint(hint.clone()).await.unwrap(), WriteReply::Stored);
        assert_eq!(bed.counters.snapshot().hints_kept, 1);
    }
    let bed = bed(folder.path());
    let snapshot = bed.index.voting_snapshot();
    assert_eq!((snapshot.voting, snapshot.hints), (true, 1));
    let held = bed.index.read(&key("a"), Want::EntryAndInline, Term::ANY).await.unwrap();
    assert_eq!(held.entry, None);
    let view = bed.index.read_hint(&key("a"), Want::EntryAndInline).await.unwrap();
    assert_eq!((view.promise, view.entry.as_ref()), (Stamp::ZERO, Some(&hint.entry)));
    assert_eq!(view.inline.unwrap(), bytes);
    assert_eq!(bed.index.read_hint(&key("a"), Want::Entry).await.unwrap().inline, None);
    let page = bed.index.hints(None, 10).await.unwrap().remove(0);
    assert_eq!((page.keep_body, page.since_ms), (true, NOW_MS));
    assert_eq!(page.inline.unwrap(), bytes);
}

#[tokio::test]
async fn the_highest_order_is_kept_and_only_it_or_a_lower_one_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let keep = |order| bed.index.keep_hint(write(&key("a"), stamp(order), Value::Tombstone));
    assert_eq!(keep(5).await.unwrap(), WriteReply::Stored);
    assert_eq!(keep(4).await.unwrap(), WriteReply::Superseded);
    assert_eq!(keep(6).await.unwrap(), WriteReply::Stored);
    assert_eq!(kept(&bed).await, [(key("a"), stamp(6))]);
    bed.index.forget_hint(&key("a"), stamp(5)).await.unwrap();
    assert_eq!(bed.index.voting_snapshot().hints, 1, "a newer hint came meanwhile");
    bed.index.forget_hint(&key("a"), stamp(6)).await.unwrap();
    bed.index.forget_hint(&key("a"), stamp(6)).await.unwrap();
    assert_eq!((kept(&bed).await.len(), bed.index.voting_snapshot().hints), (0, 0));
}

#[tokio::test]
async fn hints_are_judged_as_first_hand_writes_are() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let fence = BucketFence { bucket: BUCKET, generation: 4, open: true };
    bed.index.fence(fence).await.unwrap();
    let hint = EntryWrite { generation: 4, ..write(&key("a"), stamp(1), Value::Tombstone) };
    let fenced = EntryWrite { generation: 3, ..hint.clone() };
    assert_eq!(bed.index.keep_hint(fenced).await.unwrap(), WriteReply::Fenced);
    let late = EntryWrite { commit_by_ms: NOW_MS - 1, ..hint.clone() };
    assert_eq!(bed.index.keep_hint(late).await.unwrap(), WriteReply::OutOfTime);
    let mut ahead = hint.clone();
    ahead.entry.order = Stamp::at_ms(NOW_MS + CLOCK_SKEW_MS_MAX + 2);
    assert_eq!(bed.index.keep_hint(ahead).await.unwrap(), WriteReply::OutOfTime);
    bed.clock.advance_ms(FIRST_HAND_AGE_MS_MAX + 1000);
    assert_eq!(bed.index.keep_hint(hint.clone()).await.unwrap(), WriteReply::OutOfTime);
    let mut empty = inline(&key("b"), Stamp::at_ms(NOW_MS + FIRST_HAND_AGE_MS_MAX), b"xyz");
    (empty.inline, empty.generation) = (None, 4);
    assert_eq!(bed.index.keep_hint(empty).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(kept(&bed).await, []);
}

#[tokio::test]
async fn hints_list_by_name_and_page_by_register() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    for number in 0..20u64 {
        let hint = inline(&key(&format!("{number:02}")), stamp(number + 1), b"xyz");
        bed.index.keep_hint(hint).await.unwrap();
    }
    let request = listing(b"1");
    let listed = bed.index.list_hints(&request).await.unwrap().entries;
    let names: Vec<_> = listed.iter().map(|(name, _)| name.clone()).collect();
    let wanted: Vec<Bytes> = (10..20).map(|number| Bytes::from(number.to_string())).collect();
    assert_eq!(names, wanted);
    assert_eq!(bed.index.list(&request).await.unwrap().entries, []);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = bed.index.hints(after.as_ref(), 7).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        all.extend(page.into_iter().map(|hint| hint.key));
    }
    assert!(all.len() == 20 && all.is_sorted(), "{all:?}");
}

#[tokio::test]
async fn a_purged_bucket_takes_its_hints_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let other = RegisterKey { bucket: BucketId([6; 16]), ..key("a") };
    for key in [key("a"), key("b"), other.clone()] {
        bed.index.keep_hint(write(&key, stamp(1), Value::Tombstone)).await.unwrap();
    }
    let fence = BucketFence { bucket: BUCKET, generation: 4, open: false };
    bed.index.fence(fence).await.unwrap();
    bed.index.purge(BUCKET).await.unwrap();
    assert_eq!(kept(&bed).await, [(other, stamp(1))]);
    assert_eq!(bed.index.voting_snapshot().hints, 1);
}

#[tokio::test]
async fn an_opening_begins_the_arrivals_anew() {
    let folder = tempfile::tempdir().unwrap();
    let position = {
        let bed = bed(folder.path());
        let start = hint_calls::arrivals(&bed.index, None, 10).await.unwrap().last;
        bed.index.keep_hint(write(&key("a"), stamp(5), Value::Tombstone)).await.unwrap();
        let page = hint_calls::arrivals(&bed.index, Some(start), 10).await.unwrap();
        assert_eq!((page.hints.len(), page.missed, page.last), (1, false, start + 1));
        page.last
    };
    let clock = Arc::new(ManualClock::at(NOW_MS + 1));
    let with = IndexContext { clock: clock.clone(), ..surroundings(folder.path()) };
    let bed = bed_with(folder.path(), with, clock);
    let page = hint_calls::arrivals(&bed.index, Some(position), 10).await.unwrap();
    assert!(page.missed && page.hints.is_empty(), "{page:?}");
}

/// The number rises and falls while the rows of the opening are counted.
#[tokio::test]
async fn a_device_with_many_hints_reports_some_at_once_and_their_number_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let count = 2 * kept_hints::AT_OPENING_MAX + 500;
    let name = |number: usize| key(&format!("{number:05}"));
    {
        let bed = bed(folder.path());
        let keep = (0..count)
            .map(|number| bed.index.keep_hint(write(&name(number), stamp(5), Value::Tombstone)));
        for reply in futures::future::join_all(keep).await {
            assert_eq!(reply.unwrap(), WriteReply::Stored);
        }
    }
    let bed = bed(folder.path());
    assert!(bed.index.voting_snapshot().hints > 0);
    bed.index.forget_hint(&name(0), stamp(5)).await.unwrap();
    bed.index.forget_hint(&name(count - 1), stamp(5)).await.unwrap();
    bed.index.keep_hint(write(&name(count), stamp(5), Value::Tombstone)).await.unwrap();
    let expected = (count - 1) as u64;
    let mut number = 0;
    for _ in 0..2000 {
        number = bed.index.voting_snapshot().hints;
        assert!(number > 0, "there are hints");
        if number == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(number, expected, "within seconds");
}
