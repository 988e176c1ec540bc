//! Loss of the index, as the index remembers it: the hold on collection, and the devices that lost
//! their registers.
//!
//! An operator accepts a loss once. Two facts must be durable before votes return: nothing is
//! collected (rule X8), and these devices forgot. Both are one document, in the register
//! `index-loss` of the root bucket:
//!
//! ```text
//! "1 " start of the hold in milliseconds since 1970, or "-", then " " and the number of each lost device
//! ```
//!
//! The primaries of that register may have lost their votes too, and no ballot can decide then. So
//! the document is written to all primaries, with or without votes, above the newest that any of
//! them holds. It is read from most of them. Replicas, moves and syncs treat the register like others.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use martlet_protocol::backend::{EntryWrite, Want, WriteReply};
use martlet_protocol::entry::{AccountDocument, Entry, Value};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{
    BackendExt, Clock, DeviceId, Error, RegisterKey, Result, Stamp, StampSource, Term, WriteId,
};
use martlet_topology::Topology;
use parking_lot::Mutex;

use crate::cluster::{StepTopology, in_time};

/// Name of the register, and a name below it with none between them.
const NAME: &str = "index-loss";
const BEFORE: &str = "index-los";
/// Version of the document.
const VERSION: &str = "1";
/// Milliseconds for which a worker keeps the state of the hold.
const KEPT_MS: u64 = 10_000;
/// Milliseconds after which a hold is in force: workers have read it, and deletes that they had begun
/// have ended.
pub const HOLD_SETTLES_MS: u64 = 3 * KEPT_MS;
/// Attempts to write the document above the floors of all primaries.
const TRIES: u32 = 8;

/// State of the index after a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexLoss {
    /// Start of the hold on collection, in milliseconds since 1970; none if nothing is held.
    pub held_since_ms: Option<u64>,
    /// Devices that lost their registers, and got their votes back without a sync of all of them.
    pub lost: BTreeSet<DeviceId>,
}

impl IndexLoss {
    /// Reads the state.
    ///
    /// # Errors
    /// If too few primaries of its register answer.
    pub async fn read(topology: &Topology) -> Result<Self> {
        Ok(newest(&StepTopology::of(topology)).await?.1)
    }

    /// Holds collection: no extent and no tombstone is deleted until [`IndexLoss::release`]. A hold
    /// keeps its start.
    ///
    /// # Errors
    /// If a primary of the register does not answer.
    pub async fn hold(topology: &Topology, clock: &Arc<dyn Clock>) -> Result<Self> {
        Self::note_lost(topology, clock, &[]).await
    }

    /// Holds collection, and records devices that lost their registers. The hold starts anew with a
    /// device that is not recorded yet.
    ///
    /// # Errors
    /// If a primary of the register does not answer.
    pub(super) async fn note_lost(
        topology: &Topology,
        clock: &Arc<dyn Clock>,
        devices: &[DeviceId],
    ) -> Result<Self> {
        let add = |loss: &mut Self| {
            if devices.iter().any(|device| !loss.lost.contains(device)) {
                // A rebuild brings back what was written before this moment.
                loss.held_since_ms = None;
            }
            loss.held_since_ms.get_or_insert(clock.now_ms());
            loss.lost.extend(devices);
        };
        change(&StepTopology::of(topology), clock, add).await
    }

    /// Ends the hold, and forgets which devices lost registers: extents without an entry are
    /// collected from then on.
    ///
    /// # Errors
    /// If a primary of the register does not answer.
    pub async fn release(topology: &Topology, clock: &Arc<dyn Clock>) -> Result<Self> {
        change(&StepTopology::of(topology), clock, |loss| *loss = Self::default()).await
    }

    fn document(&self) -> String {
        let since = self.held_since_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        self.lost.iter().fold(format!("{VERSION} {since}"), |mut text, device| {
            write!(text, " {}", device.0).expect("writing to a String can't fail");
            text
        })
    }

    /// Decodes a document. An unknown one holds collection.
    fn of_entry(entry: &Entry) -> Self {
        let Value::Account(document) = &entry.value else { return Self::default() };
        let text = std::str::from_utf8(document.bytes()).unwrap_or_default();
        let mut words = text.split(' ');
        let unknown = Self { held_since_ms: Some(entry.order.time_ms()), lost: BTreeSet::new() };
        if words.next() != Some(VERSION) {
            return unknown;
        }
        let held_since_ms = match words.next() {
            Some("-") => None,
            Some(ms) => Some(ms.parse().unwrap_or(entry.order.time_ms())),
            None => return unknown,
        };
        let lost = words.filter_map(|word| Some(DeviceId(word.parse().ok()?))).collect();
        Self { held_since_ms, lost }
    }

    /// Returns the number of index partitions of which most replicas lost their registers.
    pub fn partitions(&self, topology: &Topology) -> Vec<u32> {
        let cluster = StepTopology::of(topology);
        let index = cluster.index();
        let partitions = index.partitions().filter(|at| most_of(index.primaries(*at), &self.lost));
        partitions.map(|at| at.0).collect()
    }
}

/// Returns true if most replicas of a placement's partition lost their registers.
pub(super) fn is_lost(cluster: &StepTopology, placement: u64, lost: &BTreeSet<DeviceId>) -> bool {
    let index = cluster.index();
    most_of(index.primaries(index.partition(placement)), lost)
}

/// A write needs most replicas. So writes may have been lost if most of them forgot.
fn most_of(primaries: impl Iterator<Item = DeviceId>, lost: &BTreeSet<DeviceId>) -> bool {
    let (mut all, mut gone) = (0, 0);
    for device in primaries {
        all += 1;
        gone += usize::from(lost.contains(&device));
    }
    gone > all / 2
}

fn primaries(cluster: &StepTopology) -> Vec<DeviceId> {
    cluster.sets(RegisterKey::account(NAME).placement()).members().collect()
}

/// Returns what a device holds, with or without votes.
async fn held_by(cluster: &StepTopology, device: DeviceId) -> Result<Option<Entry>> {
    let key = RegisterKey::account(NAME);
    let before = RegisterKey { name: BEFORE.into(), ..key.clone() };
    let node = cluster.node(device)?;
    let next = in_time(node.registers(device, Some(&before), 1)).await?;
    let held = next.into_iter().find(|(at, _)| *at == key);
    Ok(held.and_then(|(_, view)| view.entry))
}

/// Returns the newest document, with its order.
async fn newest(cluster: &StepTopology) -> Result<(Stamp, IndexLoss)> {
    let primaries = primaries(cluster);
    let held = join_all(primaries.iter().map(|device| held_by(cluster, *device))).await;
    let answers: Vec<Option<Entry>> = held.into_iter().flatten().collect();
    if answers.len() * 2 <= primaries.len() {
        return Err(Error::unavailable("too few devices of the index answer about the hold"));
    }
    let newest = answers.into_iter().flatten().max_by_key(|entry| entry.order);
    Ok(newest.map_or_else(Default::default, |it| (it.order, IndexLoss::of_entry(&it))))
}

/// Changes the document on all primaries.
async fn change(
    cluster: &StepTopology,
    clock: &Arc<dyn Clock>,
    change: impl FnOnce(&mut IndexLoss),
) -> Result<IndexLoss> {
    let (mut above, mut loss) = newest(cluster).await?;
    change(&mut loss);
    let stamps = StampSource::new(clock.clone());
    let document = AccountDocument::new(loss.document().into_bytes());
    let write_id = WriteId::random();
    for _ in 0..TRIES {
        let order = stamps.issue_above(above);
        let value = Value::Account(document.clone());
        let write = EntryWrite {
            key: RegisterKey::account(NAME),
            entry: Entry { order, write_id, value },
            inline: None,
            mode: WriteMode::Fresh,
            generation: 0,
            commit_by_ms: clock.now_ms() + COMMIT_WINDOW_MS,
            keep_body: false,
            term: Term::ANY,
        };
        let writes = primaries(cluster).into_iter().map(|device| {
            let write = write.clone();
            async move { in_time(cluster.node(device)?.write(device, write)).await }
        });
        let mut is_stored = true;
        for reply in try_join_all(writes).await? {
            match reply {
                WriteReply::Stored | WriteReply::Unvoted => {}
                WriteReply::Behind(floor) => {
                    is_stored = false;
                    above = above.max(floor);
                }
                WriteReply::Superseded | WriteReply::Fenced | WriteReply::OutOfTime => {
                    let message = "the state of the index changed meanwhile: try again";
                    return Err(Error::unavailable(message));
                }
            }
        }
        if is_stored {
            return Ok(loss);
        }
    }
    Err(Error::unavailable("the devices of the index refuse the hold: try again"))
}

/// State of the hold, as a worker knows it.
#[derive(Debug, Default)]
pub(crate) struct CollectionHold {
    /// The state, and the time before it was read, in milliseconds since 1970.
    known: Mutex<Option<(u64, bool)>>,
}

impl CollectionHold {
    /// Returns true if collection is held, or if the state is unknown. The state is at most
    /// [`KEPT_MS`] old.
    pub(crate) async fn is_on(&self, cluster: &StepTopology, now_ms: u64) -> bool {
        if let Some((at_ms, is_on)) = *self.known.lock()
            && (at_ms..at_ms.saturating_add(KEPT_MS)).contains(&now_ms)
        {
            return is_on;
        }
        match self.read(cluster).await {
            Ok(is_on) => {
                let before = self.known.lock().replace((now_ms, is_on));
                if is_on != before.is_some_and(|(_, was_on)| was_on) {
                    tracing::warn!(is_on, "the hold on collection of an operator begins or ends");
                }
                is_on
            }
            Err(error) => {
                tracing::debug!(%error, "keeping everything: the state of the hold is unknown");
                true
            }
        }
    }

    /// Reads the state from primaries with votes: others may have forgotten it.
    async fn read(&self, cluster: &StepTopology) -> Result<bool> {
        let (key, primaries) = (RegisterKey::account(NAME), primaries(cluster));
        let reads = primaries.iter().map(|device| {
            let key = &key;
            async move {
                in_time(cluster.node(*device)?.read(*device, key, Want::Entry, Term::ANY)).await
            }
        });
        let views: Vec<_> = join_all(reads).await.into_iter().flatten().collect();
        if views.len() * 2 <= primaries.len() {
            return Err(Error::unavailable("too few devices of the index answer with votes"));
        }
        let newest = views.into_iter().filter_map(|view| view.entry).max_by_key(|it| it.order);
        Ok(newest.is_some_and(|entry| IndexLoss::of_entry(&entry).held_since_ms.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(document: &str) -> Entry {
        let value = Value::Account(AccountDocument::new(document.as_bytes().to_vec()));
        Entry { order: Stamp::at_ms(7), write_id: WriteId([1; 16]), value }
    }

    #[test]
    fn a_document_is_read_back_and_an_unknown_one_holds() {
        let lost = [DeviceId(3), DeviceId(70_000)].into();
        for loss in [
            IndexLoss::default(),
            IndexLoss { held_since_ms: Some(5), lost },
            IndexLoss { held_since_ms: Some(u64::MAX), lost: BTreeSet::new() },
        ] {
            assert_eq!(IndexLoss::of_entry(&entry(&loss.document())), loss);
        }
        for unknown in ["", "2 -", "1", "1 x"] {
            let loss = IndexLoss::of_entry(&entry(unknown));
            assert_eq!(loss.held_since_ms, Some(7), "{unknown:?}");
        }
        let none = Entry { value: Value::Tombstone, ..entry("") };
        assert_eq!(IndexLoss::of_entry(&none), IndexLoss::default());
    }

    #[test]
    fn no_name_of_an_account_lies_between_the_two() {
        assert!(BEFORE < NAME && NAME.starts_with(BEFORE));
    }
}
