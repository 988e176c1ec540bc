//! Versions while calls are refused, late or unanswered: no acknowledged version is lost, restored
//! after removal, or duplicated, and a refused write leaves none (rules R4, R8).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::testing::Fault;
use martlet_protocol::{ErrorKind, VersionId};

use super::super::conditional::create_only;
use super::super::harness::{Harness, body, faulty, put, settle};
use super::super::races::Chance;
use super::{all_versions, get_version, put_version, versioned};
use crate::{Error, ListedVersion, ObjectStore, WriteConditions};

const SEEDS: u64 = 40;

/// A store of which three calls in `odds` fail somehow.
fn failing(harness: &Harness, chance: &Chance, odds: u64) -> ObjectStore {
    let chance = chance.clone();
    faulty(&harness.memory, 3, 3, move |_| match chance.below(odds) {
        0 => Fault::Refuse(ErrorKind::Unavailable),
        1 => Fault::LoseReply(ErrorKind::Unavailable),
        2 => Fault::Delay(Duration::from_millis(chance.below(400))),
        _ => Fault::None,
    })
}

/// A listed version and its bytes; `None` for a delete marker or a removed version.
type ListedBody = (ListedVersion, Option<Bytes>);

/// Outcomes of the clients' calls on one key.
#[derive(Default)]
struct WriteLog {
    /// Acknowledged versions with their content.
    put: HashMap<VersionId, String>,
    /// Removed versions, and those whose removal has an unknown outcome.
    removed: HashMap<VersionId, bool>,
    /// Contents of refused writes, of which nothing may be stored.
    refused: HashSet<String>,
    /// Contents of writes of unknown outcome.
    unknown: HashSet<String>,
}

impl WriteLog {
    fn put(&mut self, text: &str, outcome: &Result<VersionId, Error>) {
        let text = text.to_owned();
        match outcome {
            Ok(id) => drop(self.put.insert(*id, text)),
            Err(Error::PreconditionFailed(_)) => drop(self.refused.insert(text)),
            Err(_) => drop(self.unknown.insert(text)),
        }
    }

    async fn check(&self, store: &ObjectStore, what: &str) {
        let all = all_versions(store).await;
        let listed: HashSet<_> = all.iter().map(|version| version.id).collect();
        assert_eq!(listed.len(), all.len(), "{what}: a version is there twice");
        assert_eq!(all.iter().filter(|it| it.is_latest).count(), usize::from(!all.is_empty()));
        for (id, text) in &self.put {
            let is_there = listed.contains(id);
            match self.removed.get(id) {
                None => assert!(is_there, "{what}: {text} was acknowledged and is gone"),
                Some(true) => assert!(!is_there, "{what}: {text} was removed and is there"),
                Some(false) => {}
            }
            match get_version(store, "k", *id).await {
                Ok(bytes) => assert!(is_there && bytes == text, "{what}: {text}"),
                // A removal of unknown outcome may take effect after the listing.
                Err(error) if self.removed.get(id) != Some(&false) => {
                    assert!(!is_there, "{what}: {text}: {error}");
                }
                Err(error) => assert!(matches!(error, Error::NoSuchVersion), "{what}: {error}"),
            }
        }
        let (all, current) = self.seen(store, what).await;
        let mut texts = HashSet::new();
        for (version, bytes) in &all {
            let Some(bytes) = bytes else { continue };
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(!self.refused.contains(&text), "{what}: {text} was refused and is there");
            let is_known = self.put.contains_key(&version.id) || self.unknown.contains(&text);
            assert!(is_known, "{what}: nobody wrote {text}");
            assert!(texts.insert(text.clone()), "{what}: {text} is there twice");
        }
        let latest = all.iter().find(|(version, _)| version.is_latest);
        let first = latest.and_then(|(_, bytes)| bytes.clone());
        assert_eq!(current, first, "{what}: the first of the list is not the current one");
    }

    /// Returns the versions with their bytes, and the current bytes, between two equal listings. A
    /// removal of unknown outcome may take effect at any time.
    async fn seen(&self, store: &ObjectStore, what: &str) -> (Vec<ListedBody>, Option<Bytes>) {
        let mut all = all_versions(store).await;
        for _ in 0..=self.removed.len() {
            let mut seen = Vec::new();
            for version in all {
                let bytes = match get_version(store, "k", version.id).await {
                    _ if version.object.is_none() => None,
                    Ok(bytes) => Some(bytes),
                    Err(Error::NoSuchVersion) if self.is_removal_unknown(version.id) => None,
                    Err(error) => panic!("{what}: {error}"),
                };
                seen.push((version, bytes));
            }
            let current = get_version(store, "k", None).await.ok();
            all = all_versions(store).await;
            if all.iter().map(|it| it.id).eq(seen.iter().map(|(it, _)| it.id)) {
                return (seen, current);
            }
        }
        panic!("{what}: the listing changes without an unknown removal")
    }

    fn is_removal_unknown(&self, id: VersionId) -> bool {
        self.removed.get(&id) == Some(&false)
    }
}

/// One client after the other, each through a proxy with occasional faults.
#[tokio::test(start_paused = true)]
async fn r8_one_after_the_other() {
    for seed in 0..SEEDS {
        let what = format!("seed {seed}");
        let chance = Chance::new(seed + 1);
        let harness = versioned().await;
        let stores: Vec<_> = (0..3).map(|_| failing(&harness, &chance, 24)).collect();
        let mut told = WriteLog::default();
        for step in 0..30 {
            let store = &stores[usize::try_from(chance.below(3)).unwrap()];
            let text = format!("{step}");
            match chance.below(10) {
                0..5 => told.put(&text, &put_version(store, "k", text.clone()).await),
                5 => {
                    let bytes = Bytes::from(text.clone());
                    let outcome = put(store, "k", body(bytes), create_only()).await;
                    let outcome = outcome.map(|it| it.object.version.unwrap().name());
                    told.put(&text, &outcome);
                }
                6 => drop(store.delete("b", "k", &WriteConditions::default()).await),
                _ => {
                    let all = all_versions(&harness.store).await;
                    if all.is_empty() {
                        continue;
                    }
                    let most = 2 * u64::try_from(all.len()).unwrap();
                    let at = usize::try_from(chance.below(most)).unwrap();
                    let id = all.get(at).unwrap_or(&all[0]).id;
                    let is_gone = store.versions().delete("b", "k", id).await.is_ok();
                    let known = told.removed.entry(id).or_default();
                    *known |= is_gone;
                }
            }
            settle().await;
            told.check(&harness.store, &format!("{what}, step {step}")).await;
        }
        // All delayed calls have arrived by now.
        tokio::time::sleep(Duration::from_secs(5)).await;
        told.check(&harness.store, &what).await;
    }
}

/// Many concurrent clients through three proxies.
#[tokio::test(start_paused = true)]
async fn r8_all_at_once() {
    for seed in 0..SEEDS {
        let what = format!("seed {seed}");
        let chance = Chance::new(seed + 101);
        let harness = versioned().await;
        let first = put_version(&harness.store, "k", "first").await.unwrap();
        let racers = (0..8u64).map(|racer| {
            let store = failing(&harness, &chance, 60);
            async move {
                let text = format!("{racer}");
                match racer {
                    0 => {
                        let removed = store.versions().delete("b", "k", first).await.is_ok();
                        (text, None, Some(removed))
                    }
                    1 => {
                        let made = put(&store, "k", body(text.clone().into()), create_only()).await;
                        let made = made.map(|it| it.object.version.unwrap().name());
                        (text, Some(made), None)
                    }
                    _ => {
                        let made = put_version(&store, "k", text.clone()).await;
                        (text, Some(made), None)
                    }
                }
            }
        });
        let mut told = WriteLog::default();
        told.put("first", &Ok(first));
        for (text, made, removed) in join_all(racers).await {
            if let Some(made) = made {
                told.put(&text, &made);
            }
            if let Some(removed) = removed {
                told.removed.insert(first, removed);
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        told.check(&harness.store, &what).await;
        assert!(told.put.len() > 1, "{what}: some were acknowledged");
    }
}
