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
    hints.note_arrivals(&arrivals(5, true));
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
    assert!(hints.note_arrivals(&arrivals(6, false)), "there may be more");
    assert!(!hints.note_arrivals(&arrivals(6, false)));
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
    assert!(!hints.note_arrivals(&arrivals(9000, true)));
    assert!(walks_all(&mut hints));
    // Hints that are missed in the middle of a walk lie before its position, too.
    hints.advance(&mut vec![hint(1, "a")], |_| Vec::new());
    hints.note_arrivals(&arrivals(18_000, true));
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
