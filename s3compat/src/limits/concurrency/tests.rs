//! Turns, shares, and the queue before them.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::advance;

use super::*;
use crate::limits::meter::Registry;

type Held = (Turn, RequestPermit);

fn limiter(turns: usize, anonymous: usize, waiting: usize) -> ConcurrencyLimiter {
    ConcurrencyLimiter::new(ConcurrencyLimits { turns, anonymous, waiting })
}

fn take(turns: &ConcurrencyLimiter) -> Option<Turn> {
    match turns.enter()? {
        Place::Turn(turn) => Some(turn),
        Place::Seat(_) => None,
    }
}

fn try_acquire(turns: &ConcurrencyLimiter, whose: &Meters) -> Option<Held> {
    Some((take(turns)?, turns.count(Some(whose))?))
}

/// Takes turns for an account until one is refused.
fn grab(turns: &ConcurrencyLimiter, whose: &Meters) -> Vec<Held> {
    std::iter::from_fn(|| try_acquire(turns, whose)).collect()
}

/// Waits in the queue, for 20 s at most.
fn wait<'a>(
    turns: &'a ConcurrencyLimiter,
    whose: Option<&'a Meters>,
    kind: RequestKind,
) -> BoxFuture<'a, Option<Held>> {
    wait_as(turns, whose, kind, 1)
}

/// Waits in the queue as a request of this number.
fn wait_as<'a>(
    turns: &'a ConcurrencyLimiter,
    whose: Option<&'a Meters>,
    kind: RequestKind,
    id: u64,
) -> BoxFuture<'a, Option<Held>> {
    let seat = turns.seat().expect("a seat is free");
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut waiting = turns.wait(seat, WaitRequest { whose, kind, flow: 1, id, deadline }).boxed();
    // From now on it stands in the queue.
    let at_once = (&mut waiting).now_or_never();
    assert!(at_once.is_none_or(|it| it.is_none()), "nobody has a turn to give");
    waiting
}

/// Requests that wait, and free seats.
fn queued(turns: &ConcurrencyLimiter) -> (usize, usize) {
    let state = turns.0.turns.lock();
    (RequestKind::ALL.iter().map(|kind| state.queue.waiting(*kind)).sum(), state.free_seats)
}

#[tokio::test(start_paused = true)]
async fn the_longest_queues_are_named_and_no_more_than_sixteen() {
    let turns = limiter(1, 1, 100);
    let _held = grab(&turns, &Meters::default());
    let registry = Registry::default();
    let keys: Vec<Meters> = (0..20).map(|key| registry.named(&format!("AK{key:02}"))).collect();
    let mut waiting: Vec<_> =
        keys.iter().map(|key| wait(&turns, Some(key), RequestKind::Other)).collect();
    waiting.push(wait(&turns, Some(&keys[7]), RequestKind::Part));
    waiting.extend((0..3).map(|_| wait(&turns, None, RequestKind::Other)));
    let found = turns.waiting_keys();
    let first = |at: usize| (found[at].access_key.as_str(), found[at].waiting);
    assert_eq!(found.len(), 16);
    assert_eq!([first(0), first(1), first(2)], [("anonymous", 3), ("AK07", 2), ("AK00", 1)]);
    drop(waiting);
    assert_eq!(turns.waiting_keys(), []);
}

#[test]
fn one_who_comes_alone_leaves_an_eighth() {
    let turns = limiter(80, 80, 0);
    assert_eq!(grab(&turns, &Meters::default()).len(), 70);
    let few = limiter(3, 3, 0);
    assert_eq!(grab(&few, &Meters::default()).len(), 3);
    let one = limiter(1, 1, 0);
    let held = grab(&one, &Meters::default());
    assert_eq!(held.len(), 1);
    drop(held);
    assert!(try_acquire(&one, &Meters::default()).is_some());
}

#[test]
fn the_client_with_most_turns_yields_to_others() {
    let turns = limiter(80, 80, 0);
    let (greedy, modest) = (Meters::default(), Meters::default());
    let mut most = grab(&turns, &greedy);
    let few = grab(&turns, &modest);
    assert_eq!(few.len(), 10, "all that was left");
    for _ in 0..40 {
        most.pop();
        assert!(try_acquire(&turns, &greedy).is_none() || turns.0.turns.lock().free >= 10);
    }
    let more = grab(&turns, &modest);
    assert!(few.len() + more.len() >= 26, "its third: {}", few.len() + more.len());
}

#[test]
fn newcomers_get_a_turn_though_two_hold_all_that_they_may() {
    let turns = limiter(80, 80, 0);
    let (a, b) = (Meters::default(), Meters::default());
    let (_a, _b) = (grab(&turns, &a), try_acquire(&turns, &b));
    for _ in 0..5 {
        let newcomer = Meters::default();
        let held = try_acquire(&turns, &newcomer);
        assert!(held.is_some() && try_acquire(&turns, &a).is_none());
    }
}

#[test]
fn anonymous_requests_have_a_bound_and_keys_have_none() {
    let turns = limiter(80, 10, 0);
    let take_both = || Some((take(&turns)?, turns.count(None)?));
    let anonymous: Vec<_> = std::iter::from_fn(take_both).collect();
    assert_eq!(anonymous.len(), 10);
    assert_eq!(grab(&turns, &Meters::default()).len(), 60, "all but the last eighth");
    drop(anonymous);
    assert!(take_both().is_some());
}

#[test]
fn turns_are_given_back() {
    let turns = limiter(80, 80, 0);
    let meters = Meters::default();
    for _ in 0..3 {
        assert_eq!(grab(&turns, &meters).len(), 70);
        assert_eq!(turns.0.turns.lock().accounts, 0);
    }
    let anonymous = turns.count(None);
    assert!(anonymous.is_some());
    assert_eq!(turns.0.turns.lock().accounts, 1);
    drop(anonymous);
    assert_eq!(turns.0.turns.lock().free, 80);
}

#[tokio::test(start_paused = true)]
async fn a_returned_turn_goes_to_a_waiting_request() {
    let turns = limiter(1, 1, 8);
    let (a, b) = (Meters::default(), Meters::default());
    let held = try_acquire(&turns, &a).unwrap();
    let first = wait(&turns, Some(&a), RequestKind::Other);
    let second = wait(&turns, Some(&b), RequestKind::Other);
    assert_eq!(queued(&turns), (2, 6));
    drop(held);
    assert!(take(&turns).is_none(), "no newcomer passes them");
    let first = first.await.unwrap();
    assert_eq!(queued(&turns), (1, 7));
    advance(Duration::from_secs(3)).await;
    drop(first);
    let second = second.await.unwrap();
    assert_eq!((a.account.turns.load(Ordering::Relaxed), queued(&turns)), (0, (0, 8)));
    assert!(Arc::ptr_eq(&second.1.meters().account, &b.account));
    let [_, _, other] = turns.figures();
    assert_eq!((other.waiting, other.waits, other.waited_us, other.expired), (0, 2, 3_000_000, 0));
    drop(second);
    assert!(take(&turns).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_and_leaves_nothing() {
    let turns = limiter(1, 1, 8);
    let meters = Meters::default();
    let held = try_acquire(&turns, &meters);
    let begun = Instant::now();
    assert!(wait(&turns, Some(&meters), RequestKind::Upload).await.is_none());
    assert_eq!(begun.elapsed(), Duration::from_secs(20));
    assert_eq!((queued(&turns), turns.figures()[1].expired), ((0, 8), 1));
    drop(held);
    assert!(try_acquire(&turns, &meters).is_some());
    let state = turns.0.turns.lock();
    assert_eq!((state.accounts, state.waiting_accounts, state.free), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_waiter_passes_its_turn_on() {
    let turns = limiter(1, 1, 8);
    let meters = Meters::default();
    let held = try_acquire(&turns, &meters);
    let leaves = wait(&turns, Some(&meters), RequestKind::Other);
    let granted = wait(&turns, Some(&meters), RequestKind::Other);
    let last = wait(&turns, Some(&meters), RequestKind::Other);
    drop(leaves);
    drop(held);
    assert_eq!(queued(&turns), (1, 6), "one was granted the turn and hasn't taken it");
    drop(granted);
    assert!(last.now_or_never().flatten().is_some());
    assert_eq!(turns.figures()[2].expired, 2);
    let state = turns.0.turns.lock();
    assert_eq!((state.free, state.free_seats, state.accounts), (1, 8, 0));
}

#[tokio::test(start_paused = true)]
async fn seats_are_bounded_and_shared_like_turns() {
    let turns = limiter(1, 1, 16);
    let (greedy, modest) = (Meters::default(), Meters::default());
    let _held = try_acquire(&turns, &greedy);
    let mut waiting = Vec::new();
    for _ in 0..15 {
        waiting.push(wait(&turns, Some(&greedy), RequestKind::Other));
    }
    let (seated, _) = queued(&turns);
    assert!((13..=15).contains(&seated), "all but the last: {seated}");
    waiting.push(wait(&turns, Some(&modest), RequestKind::Other));
    assert_eq!(queued(&turns).0, seated + 1, "another account finds a seat");
    waiting.clear();
    for _ in 0..3 {
        waiting.push(wait(&turns, None, RequestKind::Other));
    }
    assert_eq!(queued(&turns).0, 2, "anonymous requests have an eighth");
    waiting.clear();
    assert_eq!(queued(&turns), (0, 16));
    let seats: Vec<_> = std::iter::from_fn(|| turns.seat()).collect();
    assert!(seats.len() == 16 && turns.enter().is_none(), "no turn and no seat");
}

#[tokio::test(start_paused = true)]
async fn turns_go_round_the_keys_and_parts_before_new_uploads() {
    let turns = limiter(1, 1, 64);
    let (busy, other) = (Meters::default(), Meters::default());
    let mut held = try_acquire(&turns, &busy);
    let mut waiting = Vec::new();
    for (name, whose, kind) in [
        ("upload", &busy, RequestKind::Upload),
        ("part", &busy, RequestKind::Part),
        ("complete", &busy, RequestKind::Part),
        ("other", &other, RequestKind::Upload),
    ] {
        waiting.push((name, wait(&turns, Some(whose), kind)));
    }
    let mut order = Vec::new();
    while !waiting.is_empty() {
        drop(held.take());
        let mut ready = None;
        for (at, (_, wait)) in waiting.iter_mut().enumerate() {
            if let Some(turn) = wait.now_or_never() {
                ready = Some((at, turn));
                break;
            }
        }
        let (at, turn) = ready.expect("one has the turn");
        held = turn;
        order.push(waiting.remove(at).0);
    }
    assert_eq!(order, ["part", "other", "complete", "upload"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_repeated_keeps_its_place() {
    let turns = limiter(1, 1, 8);
    let meters = Meters::default();
    let held = try_acquire(&turns, &meters).unwrap();
    let first = wait_as(&turns, Some(&meters), RequestKind::Part, 1);
    advance(Duration::from_secs(10)).await;
    let mut second = wait_as(&turns, Some(&meters), RequestKind::Part, 2);
    assert!(first.await.is_none(), "its time is over");
    assert_eq!(queued(&turns), (1, 7));
    // The client repeats it, and then a stranger comes.
    let again = wait_as(&turns, Some(&meters), RequestKind::Part, 1);
    let _stranger = wait_as(&turns, Some(&meters), RequestKind::Part, 3);
    drop(held);
    let _again = again.await.expect("it is the oldest");
    assert!((&mut second).now_or_never().is_none(), "it came later");
}
