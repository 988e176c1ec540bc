//! Locks and removals that race: either the lock or the removal is refused, through proxies whose
//! calls are late, refused or unanswered.

use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::ErrorKind;
use martlet_protocol::testing::Fault;

use super::super::super::races::Chance;
use super::*;

const SEEDS: u64 = 60;

/// A store of which six calls in `odds` fail somehow.
fn failing(harness: &Harness, chance: &Chance, odds: u64) -> ObjectStore {
    let chance = chance.clone();
    faulty(&harness.memory, 3, 3, move |_| match chance.below(odds) {
        0 => Fault::Refuse(ErrorKind::Unavailable),
        1 => Fault::LoseReply(ErrorKind::Unavailable),
        2..6 => Fault::Delay(Duration::from_millis(chance.below(300))),
        _ => Fault::None,
    })
}

/// Outcome of a racer.
enum Did {
    Held(bool),
    /// True if the removal found the version.
    Removed(bool),
    Other,
}

/// Runs a race. Returns true for a lock, and true for a removal.
async fn race(seed: u64) -> (bool, bool) {
    let what = format!("seed {seed}");
    let chance = Chance::new(seed + 1);
    let harness = Harness::new(3, 3);
    create_locked(&harness.store).await;
    let target = put_version(&harness.store, "k", "target").await.unwrap();
    // In every other race the target is not the current version.
    if seed.is_multiple_of(2) {
        put_version(&harness.store, "k", "above").await.unwrap();
    }
    let stores: Vec<_> = (0..4).map(|_| failing(&harness, &chance, 40)).collect();
    let tasks = (0..9).map(|racer| {
        let store = stores[racer % stores.len()].clone();
        let wait = Duration::from_millis(chance.below(200));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            match racer % 3 {
                0 => Did::Held(
                    store.versions().set_legal_hold("b", named(target), true).await.is_ok(),
                ),
                1 => {
                    let deleted = store.versions().delete("b", "k", target).await;
                    Did::Removed(deleted.is_ok_and(|deleted| deleted.stamp.is_some()))
                }
                _ => {
                    drop(put_version(&store, "k", "over").await);
                    Did::Other
                }
            }
        })
    });
    let (mut held, mut removed) = (false, false);
    for did in join_all(tasks).await {
        match did.unwrap() {
            Did::Held(is_held) => held |= is_held,
            Did::Removed(is_removed) => removed |= is_removed,
            Did::Other => {}
        }
    }
    super::super::super::harness::settle().await;
    let found = get_version(&harness.store, "k", target).await;
    assert!(!(held && removed), "{what}: it was held, and removed");
    if held {
        assert_eq!(found.unwrap(), "target", "{what}: it was held, and is gone");
        assert_eq!(lock_of(&harness.store, target).await.legal_hold, Some(true), "{what}");
        let again = harness.store.versions().delete("b", "k", target).await;
        assert!(is_locked(&again), "{what}");
    } else if removed {
        assert!(found.is_err(), "{what}: it was removed, and is there");
    }
    (held, removed)
}

#[tokio::test(start_paused = true)]
async fn r8_a_lock_and_a_removal_never_both_succeed() {
    let (mut holds, mut removals) = (0, 0);
    for seed in 0..SEEDS {
        let (held, removed) = race(seed).await;
        holds += u32::from(held);
        removals += u32::from(removed);
    }
    assert!(holds > 5 && removals > 5, "it was held {holds} times, and removed {removals} times");
}
