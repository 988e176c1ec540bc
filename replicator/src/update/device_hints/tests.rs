//! Walks that begin, pause, and are repeated.

use martlet_protocol::entry::Value;
use martlet_protocol::stamp::WriterId;
use martlet_protocol::{BucketId, Entry, Stamp, WriteId};

use super::*;

const MEMBER: DeviceId = DeviceId(1);
const OTHER: DeviceId = DeviceId(2);

fn hint(bucket: u8, name: &'static str) -> Hint {
    let entry = Entry {
        order: Stamp { time: 7, writer: WriterId(9) },
        write_id: WriteId([3; 16]),
        value: Value::Tombstone,
    };
    let key = RegisterKey::object(BucketId([bucket; 16]), 1, name);
    Hint { key, entry, inline: None, keep_body: false, since_ms: 70 }
}

/// Makes the outcome of an offer that leaves `hints`, for these silent members.
fn offered(hints: u64, silent: &[DeviceId]) -> OfferedHints {
    OfferedHints {
        done: 0,
        left: RemainingHints { hints, oldest_ms: Some(70) },
        silent: silent.iter().copied().collect(),
        is_refused: false,
    }
}

fn arrivals(last: u64, missed: bool) -> ArrivedHints {
    ArrivedHints { hints: Vec::new(), last, missed }
}

fn term() -> ChosenBy {
    ([1; 32], Term(14))
}

fn set(devices: &[DeviceId]) -> HashSet<DeviceId> {
    devices.iter().copied().collect()
}

/// Returns hints of which `left` wait for the member after a walk of this duration.
fn walked(left: u64, took: Duration) -> DeviceHints {
    let mut hints = DeviceHints::default();
    hints.begin(term(), Instant::now());
    hints.note_arrivals(&arrivals(5, true), 64);
    hints.walked(offered(left, &[MEMBER]), took, true);
    hints
}

/// Returns true if hints are to be read by a walk over all of them.
fn walks_all(hints: &mut DeviceHints) -> bool {
    hints.begin(term(), Instant::now());
    hints.walks(&set(&[MEMBER, OTHER]))
}

#[tokio::test(start_paused = true)]
async fn another_ring_or_term_begins_a_walk_and_silence_begins_none() {
    let mut hints = walked(3, Duration::ZERO);
    assert!(!walks_all(&mut hints));
    assert!(hints.note_arrivals(&arrivals(5 + 64, false), 64), "there may be more");
    assert!(!hints.note_arrivals(&arrivals(5 + 64 + 63, false), 64));
    assert!(!walks_all(&mut hints));
    for chosen_by in [([1; 32], Term(15)), ([2; 32], Term(15))] {
        hints.begin(chosen_by, Instant::now());
        assert!(hints.walks(&set(&[MEMBER, OTHER])));
        hints.walked(offered(3, &[MEMBER]), Duration::ZERO, true);
        hints.begin(chosen_by, Instant::now());
        assert!(!hints.goes_on());
    }
}

#[tokio::test(start_paused = true)]
async fn refused_hints_are_read_again_after_a_rest_in_proportion_to_the_walk() {
    let mut hints = walked(3, Duration::from_secs(10));
    hints.offered_arrivals(OfferedHints { is_refused: true, ..offered(1, &[]) });
    assert_eq!(hints.left().hints, 4);
    tokio::time::advance(Duration::from_secs(89)).await;
    assert!(!walks_all(&mut hints));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(walks_all(&mut hints));
    hints.walked(offered(4, &[MEMBER]), Duration::from_secs(10), true);
    tokio::time::advance(Duration::from_mins(59)).await;
    assert!(!walks_all(&mut hints), "nothing was refused since");
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(walks_all(&mut hints), "a walk is repeated after an hour in any case");
}

#[tokio::test(start_paused = true)]
async fn missed_arrivals_lead_to_a_walk_unless_it_begins_anyway() {
    let mut hints = walked(0, Duration::ZERO);
    assert!(!walks_all(&mut hints), "the walk began after the first position was read");
    assert!(!hints.note_arrivals(&arrivals(9000, true), 64));
    assert!(walks_all(&mut hints));
    // Hints that are missed in the middle of a walk lie before its position, too.
    hints.advance(&mut vec![hint(1, "a")], |_| Vec::new());
    hints.note_arrivals(&arrivals(18_000, true), 64);
    hints.walked(offered(0, &[]), Duration::ZERO, true);
    assert!(walks_all(&mut hints));
    hints.walked(offered(0, &[]), Duration::ZERO, true);
    assert!(!walks_all(&mut hints));
    // A device that refuses the call for long may be of an earlier release.
    for _ in 0..REFUSALS_MAX {
        assert!(!walks_all(&mut hints));
        hints.note_refusal();
    }
    assert!(walks_all(&mut hints));
}

#[tokio::test(start_paused = true)]
async fn a_walk_pauses_while_its_members_are_silent_and_is_repeated_for_hints_before_it() {
    let mut hints = walked(3, Duration::ZERO);
    hints.note_returned(&set(&[OTHER]));
    hints.begin(term(), Instant::now());
    assert!(!hints.goes_on(), "no hint waits for this device");
    hints.note_returned(&set(&[MEMBER]));
    hints.begin(term(), Instant::now());
    assert!(hints.walks(&set(&[])));
    let mut page = vec![hint(1, "a"), hint(2, "b")];
    hints.advance(&mut page, |_| vec![MEMBER]);
    assert_eq!((page.len(), hints.position()), (2, Some(&page[1].key)));
    hints.walked(offered(2, &[MEMBER]), Duration::ZERO, false);
    assert!(!hints.walks(&set(&[MEMBER])), "it is silent again");
    hints.note_returned(&set(&[MEMBER]));
    hints.begin(term(), Instant::now());
    assert!(hints.walks(&set(&[])));
    assert_eq!(hints.position(), Some(&page[1].key), "the walk goes on");
    hints.walked(offered(0, &[]), Duration::ZERO, true);
    hints.begin(term(), Instant::now());
    assert!(hints.walks(&set(&[])));
    assert_eq!(hints.position(), None, "the next one begins at the first hint");
    hints.walked(offered(0, &[]), Duration::ZERO, true);
    assert!(!hints.goes_on());
    assert_eq!(hints.left().hints, 0);
}

/// Returns hints whose walk for the member waits, because the member is silent again.
fn paused() -> DeviceHints {
    let mut hints = walked(3, Duration::from_secs(10));
    hints.note_returned(&set(&[MEMBER]));
    hints.begin(term(), Instant::now());
    hints.advance(&mut vec![hint(1, "a")], |_| vec![MEMBER]);
    hints.walked(offered(1, &[MEMBER]), Duration::ZERO, false);
    assert!(!hints.walks(&set(&[MEMBER])));
    hints
}

#[tokio::test(start_paused = true)]
async fn a_paused_walk_keeps_no_hint_of_others() {
    let mut missed = paused();
    missed.note_arrivals(&arrivals(9000, true), 64);
    let mut refused = paused();
    refused.offered_arrivals(OfferedHints { is_refused: true, ..offered(1, &[]) });
    let mut blind = paused();
    (0..REFUSALS_MAX).for_each(|_| blind.note_refusal());
    let mut quiet = paused();
    for hints in [&mut missed, &mut refused, &mut blind, &mut quiet] {
        assert!(!walks_all(hints), "a walk rests");
    }
    tokio::time::advance(Duration::from_secs(90)).await;
    for hints in [&mut missed, &mut refused, &mut blind] {
        assert!(walks_all(hints));
    }
    assert!(!walks_all(&mut quiet));
    tokio::time::advance(REVIEW).await;
    assert!(quiet.begin(term(), Instant::now()), "in any case after an hour");
    assert!(quiet.walks(&set(&[MEMBER, OTHER])));
}

#[tokio::test(start_paused = true)]
async fn walks_for_a_member_that_comes_and_goes_rest_and_put_no_other_off() {
    let mut hints = walked(3, Duration::from_secs(10));
    hints.offered_arrivals(OfferedHints { is_refused: true, ..offered(1, &[]) });
    for _ in 0..5 {
        hints.note_returned(&set(&[MEMBER]));
        hints.begin(term(), Instant::now());
        assert!(hints.walks(&set(&[])));
        hints.walked(offered(1, &[MEMBER]), Duration::from_secs(15), true);
        hints.note_returned(&set(&[MEMBER]));
        hints.begin(term(), Instant::now());
        assert!(!hints.walks(&set(&[])), "as long as the last one took");
        tokio::time::advance(Duration::from_secs(15)).await;
    }
    tokio::time::advance(Duration::from_secs(15)).await;
    assert!(walks_all(&mut hints), "90 s after the walk over all");
}

#[tokio::test(start_paused = true)]
async fn another_term_in_the_middle_of_a_walk_is_followed_by_a_second_one() {
    let mut hints = DeviceHints::default();
    assert!(!hints.begin(term(), Instant::now()), "a first walk");
    hints.note_arrivals(&arrivals(5, true), 64);
    let page = vec![hint(1, "a")];
    hints.advance(&mut page.clone(), |_| Vec::new());
    hints.walked(offered(0, &[]), Duration::from_secs(10), false);
    let later = ([1; 32], Term(15));
    assert!(!hints.begin(later, Instant::now()));
    assert_eq!(hints.position(), Some(&page[0].key), "the walk goes on");
    hints.walked(offered(0, &[]), Duration::from_secs(10), true);
    assert!(hints.goes_on());
    assert_eq!(hints.position(), None);
    hints.walked(offered(0, &[]), Duration::from_secs(10), true);
    assert!(!hints.goes_on());
}

#[tokio::test(start_paused = true)]
async fn a_page_that_cannot_be_read_ends_the_walk_after_many_attempts() {
    let mut hints = paused();
    for _ in 1..FAILURES_MAX {
        hints.note_failure();
    }
    assert!(hints.goes_on());
    hints.note_failure();
    assert!(!hints.goes_on());
    tokio::time::advance(Duration::from_secs(90)).await;
    assert!(walks_all(&mut hints));
}

#[test]
fn hints_with_other_receivers_are_passed_over_up_to_the_next_shard() {
    let mut hints = walked(3, Duration::ZERO);
    hints.note_returned(&set(&[MEMBER]));
    hints.begin(term(), Instant::now());
    let receivers = |key: &RegisterKey| match key.bucket.0[0] {
        1 => vec![MEMBER],
        _ => vec![OTHER],
    };
    let mut page = vec![hint(1, "a"), hint(2, "a"), hint(2, "b")];
    let last = page[2].key.clone();
    hints.advance(&mut page, receivers);
    assert_eq!(page, [hint(1, "a")]);
    let after = hints.position().unwrap();
    assert_eq!((after.bucket, after.shard), (last.bucket, Shard(last.shard.0 + 1)));
    assert!(*after > last && *after < hint(3, "a").key);
    assert!(RegisterKey { shard: Shard(u16::MAX), ..last.clone() } > *after);
    assert_eq!(end_of_run(&RegisterKey { shard: Shard(u16::MAX), ..last }), None);
}
