//! Rewrites that race with a client at one key, many times, each from its own seed.

use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::testing::Fault;
use tokio::time::{Instant, sleep};

use super::super::harness::{body, pattern, put};
use super::super::races::Chance;
use super::{RewriteFixture, SIZE, policy_of};
use crate::{ETagCondition, ObjectStore, Result, Rewrite, RewriteOptions, WriteConditions};

const ROUNDS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(30);

/// A store with some delayed calls.
fn straggling(fixture: &RewriteFixture, chance: &Chance) -> ObjectStore {
    let chance = chance.clone();
    fixture.store_that(move |_| match chance.below(24) {
        0 => Fault::Delay(Duration::from_micros(50 + chance.below(1500))),
        _ => Fault::None,
    })
}

/// Rewrites the bucket after a delay. Returns true if the outcome of every object is known.
async fn rewritten(store: ObjectStore, after: Duration) -> bool {
    sleep(after).await;
    let rewrite = Rewrite::new("b", RewriteOptions::default());
    store.rewrite(&rewrite).await.is_ok() && rewrite.progress().failed == 0
}

/// Possible states of the key, and true if all outcomes are known.
struct PossibleStates {
    may_hold: Vec<Option<Bytes>>,
    of_all: bool,
}

impl PossibleStates {
    /// Records a write that leaves `then`, unless it was refused.
    fn note<T>(&mut self, outcome: &Result<T>, then: Option<Bytes>) {
        if outcome.is_ok() {
            self.may_hold.clear();
        } else {
            self.of_all = false;
        }
        self.may_hold.push(then);
    }
}

/// Overwrites, deletes and tags, with and without conditions.
async fn client(fixture: &RewriteFixture, store: ObjectStore, chance: &Chance) -> PossibleStates {
    let mut told = PossibleStates { may_hold: vec![Some(pattern(SIZE, 0))], of_all: true };
    for step in 1..=1 + u32::try_from(chance.below(3)).unwrap() {
        sleep(Duration::from_micros(chance.below(2500))).await;
        let bytes = pattern(SIZE, step);
        let none = WriteConditions::default();
        match (chance.below(4), fixture.bytes("key").await) {
            (0, _) => {
                let outcome = store.delete("b", "key", &none).await;
                told.note(&outcome, None);
            }
            (1, Some(held)) => {
                let outcome =
                    store.versions().set_tags("b", "key", vec![("a".into(), "b".into())]).await;
                told.note(&outcome, Some(held));
            }
            (2, Some(_)) => {
                // A concurrent rewrite does not change the tag.
                let tag = fixture.object("key").await.etag.to_string();
                let same = ETagCondition::OneOf(vec![tag]);
                let conditions = WriteConditions { if_match: Some(same), ..none };
                let outcome = put(&store, "key", body(bytes.clone()), conditions).await;
                told.note(&outcome, Some(bytes));
            }
            _ => {
                let outcome = put(&store, "key", body(bytes.clone()), none).await;
                told.note(&outcome, Some(bytes));
            }
        }
        let held = fixture.bytes("key").await;
        assert!(told.may_hold.contains(&held), "step {step}: it holds what nobody left there");
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_an_acknowledged_write_is_never_undone() {
    let mut told_of_all = 0;
    for seed in 0..ROUNDS {
        println!("seed {seed}");
        let chance = Chance::new(seed);
        let fixture = RewriteFixture::new().await;
        fixture.put("key", &pattern(SIZE, 0)).await;
        fixture.turn_to_second().await;
        let [one, two, theirs] = [(); 3].map(|()| straggling(&fixture, &chance));
        let wait = || Duration::from_micros(chance.below(3000));
        let rewrites = [rewritten(one, wait()), rewritten(two, wait())];
        let [left, right] = rewrites;
        let (left, right, told) = tokio::join!(left, right, client(&fixture, theirs, &chance));
        let held = fixture.bytes("key").await;
        assert!(told.may_hold.contains(&held), "seed {seed}: it holds what nobody left there");
        if let (Some(_), true) = (&held, left && right && told.of_all) {
            // No unnamed extent is left once all spawned tasks have ended.
            told_of_all += 1;
            let begun = Instant::now();
            while fixture.in_use() != fixture.named().await {
                assert!(begun.elapsed() < PATIENCE, "seed {seed}: something is left behind");
                sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(fixture.rewrite_all().await.failed, 0, "seed {seed}");
        assert_eq!(fixture.bytes("key").await, held, "seed {seed}");
        if held.is_some() {
            assert_eq!(
                policy_of(&fixture.object("key").await).map(|it| it.0),
                Some(1),
                "seed {seed}"
            );
        }
    }
    println!("in {told_of_all} of {ROUNDS} rounds everybody could tell what became of it");
    assert!(told_of_all > 0);
}
