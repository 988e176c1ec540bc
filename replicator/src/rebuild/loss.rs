//! Loss of the index, as the index remembers it: the hold on collection, and the devices and
//! partitions that lost their registers.
//!
//! An operator accepts a loss once. Two facts must be durable before votes return: nothing is
//! collected (rule X8), and these devices forgot. Both are one document, in the register
//! `index-loss` of the root bucket:
//!
//! ```text
//! "1 " start of the hold in milliseconds since 1970, or "-"
//! " "  numbers of the lost devices as ranges, such as "3-3,7-66", or "-"
//! " "  part power of the index ring
//! " "  numbers of the lost partitions as ranges, such as "7-9,12-12", or "-"
//! ```
//!
//! The partitions are stored, since the ring may change under the hold.
//!
//! The primaries of that register may have lost their votes too, and no ballot can decide then. So
//! the document is written to all primaries, with or without votes, above the newest that any of
//! them holds. It is read from most of them. Replicas, moves and syncs treat the register like others.
//!
//! This is no compare-and-set. A change reads the document again after each refusal, and ends once each
//! primary returns its own write: a device may hold a later one of a change that failed, and repairs
//! would spread it. Another change that read the document before can still overwrite it unseen. It can
//! do so for [`CHANGE_MS`], after which devices refuse its writes, by their own clocks. So votes and
//! entries wait for longer ([`HOLD_SETTLES_MS`]), and read the hold again. A change that is lost before
//! is seen there. A device whose clock is late by more than the difference accepts a write that hung
//! for longer: the hold is read before each vote and each entry for this reason too.
//!
//! A worker that stands still after its look at the hold must not delete what an entry needs again. So a
//! delete of extents carries the end of its time ([`DELETE_MS`]), which the device compares as it writes
//! the delete marks.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use martlet_protocol::backend::{DeleteCondition, EntryWrite, Want, WriteReply};
use martlet_protocol::entry::{AccountDocument, Entry, Value};
use martlet_protocol::lost::HOLD_REGISTER as NAME;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{
    BackendExt, Clock, DeviceId, Error, RegisterKey, Result, Stamp, StampSource, Term, WriteId,
};
use martlet_topology::Topology;
use parking_lot::Mutex;

use super::partitions::LostPartitions;
use super::ranges::Ranges;
use crate::cluster::{StepTopology, in_time};

/// Name below that of the register, with none between them.
const BEFORE: &str = "index-los";
/// Version of the document.
const VERSION: &str = "1";
/// Milliseconds for which a worker keeps the state of the hold.
const KEPT_MS: u64 = 10_000;
/// Milliseconds after which a hold is in force: workers have read it, and devices refuse the deletes of
/// extents that were sent before.
pub const HOLD_SETTLES_MS: u64 = 3 * KEPT_MS;
/// Milliseconds after a look at the hold in which extents may be deleted by it. The state was kept for
/// half of them at most. Clocks may differ by what is left of [`HOLD_SETTLES_MS`].
const DELETE_MS: u64 = 2 * KEPT_MS;
const _: () = assert!(KEPT_MS < DELETE_MS && DELETE_MS < HOLD_SETTLES_MS);
/// Milliseconds after which devices refuse the writes of a change.
const CHANGE_MS: u64 = KEPT_MS;
/// Maximum size of the document, in bytes: below that of entries in calls. 1,500 ranges of partitions
/// take up to 27,000 of them. The rest suffices for 1,700 ranges of devices.
const DOCUMENT_BYTES_MAX: usize = 48 * 1024;
/// Most devices of a document: more than a ring has.
const DEVICES_MAX: u64 = 1 << 20;
/// Attempts to write the document above the floors of all primaries.
const TRIES: u32 = 8;

/// State of the index after a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexLoss {
    /// Start of the hold on collection, in milliseconds since 1970; none if nothing is held.
    pub held_since_ms: Option<u64>,
    /// Devices that lost their registers, and got their votes back without a sync of all of them.
    pub lost: BTreeSet<DeviceId>,
    /// Partitions of which most replicas were on such devices.
    pub partitions: LostPartitions,
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

    /// Holds collection, and records devices that lost their registers. The hold starts anew with
    /// each record of devices: these may have had votes since the one before, and lost them again.
    /// A rebuild brings back what was written before the start of its hold.
    ///
    /// # Errors
    /// If a primary of the register does not answer.
    pub(super) async fn note_lost(
        topology: &Topology,
        clock: &Arc<dyn Clock>,
        devices: &[DeviceId],
    ) -> Result<Self> {
        let cluster = StepTopology::of(topology);
        let add = |loss: &mut Self| {
            let now_ms = clock.now_ms();
            if devices.is_empty() {
                loss.held_since_ms.get_or_insert(now_ms);
                return;
            }
            // Another start is another hold, also within a millisecond.
            let after_ms = loss.held_since_ms.map_or(0, |since_ms| since_ms.saturating_add(1));
            loss.held_since_ms = Some(now_ms.max(after_ms));
            loss.lost.extend(devices);
            loss.partitions.extend(&LostPartitions::of(&cluster, &loss.lost));
        };
        change(&cluster, clock, add).await
    }

    /// Ends the hold, and forgets which devices lost registers: extents without an entry are
    /// collected from then on.
    ///
    /// # Errors
    /// If a primary of the register or a lost device does not answer, or a device has no votes: an
    /// acceptance may be about to return them.
    pub async fn release(topology: &Topology, clock: &Arc<dyn Clock>) -> Result<Self> {
        let cluster = StepTopology::of(topology);
        let lost = newest(&cluster).await?.1.lost;
        let statuses = cluster.statuses().await;
        let lacks_votes = |device: &DeviceId| match statuses.get(device) {
            Some(status) => !status.voting,
            None => lost.contains(device),
        };
        if let Some(device) = cluster.index_devices().iter().find(|device| lacks_votes(device)) {
            return Err(Error::conflict(format!(
                "device {device} has no votes, or does not answer: wait until it has, accept its \
                 loss, or remove it from the index ring"
            )));
        }
        Self::end(topology, clock).await
    }

    /// Ends the hold, whatever devices have votes.
    pub(super) async fn end(topology: &Topology, clock: &Arc<dyn Clock>) -> Result<Self> {
        change(&StepTopology::of(topology), clock, |loss| *loss = Self::default()).await
    }

    /// Returns an error unless collection is held and these devices are recorded as lost.
    pub(crate) async fn check_accepted(
        topology: &Topology,
        devices: &BTreeSet<DeviceId>,
    ) -> Result<()> {
        let loss = Self::read(topology).await?;
        if loss.held_since_ms.is_some() && loss.lost.is_superset(devices) {
            return Ok(());
        }
        let message = "the hold on collection has ended: start accept-loss again";
        Err(Error::conflict(message))
    }

    /// Returns the value of the register. Without a hold it is a tombstone, which a device that is nearly
    /// full accepts: the end of a hold is what gives space back.
    fn value(&self) -> Value {
        if *self == Self::default() {
            return Value::Tombstone;
        }
        Value::Account(AccountDocument::new(self.document().into_bytes()))
    }

    fn document(&self) -> String {
        let since = self.held_since_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        let devices: Ranges = self.lost.iter().map(|device| device.0).collect();
        format!("{VERSION} {since} {devices} {}", self.partitions.document())
    }

    /// Decodes a document. An unknown one holds collection.
    fn of_entry(entry: &Entry) -> Self {
        let Value::Account(document) = &entry.value else { return Self::default() };
        let text = std::str::from_utf8(document.bytes()).unwrap_or_default();
        let unknown_since = Some(entry.order.time_ms());
        Self::parse(text).unwrap_or(Self { held_since_ms: unknown_since, ..Self::default() })
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let &[VERSION, since, devices, part_power, ranges] = &words[..] else { return None };
        let held_since_ms = match since {
            "-" => None,
            ms => Some(ms.parse().ok()?),
        };
        let devices = Ranges::parse(devices).filter(|of| of.count() <= DEVICES_MAX)?;
        let lost = devices.iter().flat_map(|(first, last)| first..=last).map(DeviceId).collect();
        let partitions = LostPartitions::parse(part_power, ranges)?;
        Some(Self { held_since_ms, lost, partitions })
    }
}

/// Returns the devices that decide about the document.
///
/// # Errors
/// If the ring lacks the change in progress: the document may have moved to other devices.
fn primaries(cluster: &StepTopology) -> Result<Vec<DeviceId>> {
    cluster.check_not_behind()?;
    Ok(cluster.sets(RegisterKey::account(NAME).placement()).members().collect())
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
    let primaries = primaries(cluster)?;
    let held = join_all(primaries.iter().map(|device| held_by(cluster, *device))).await;
    let answers: Vec<Option<Entry>> = held.into_iter().flatten().collect();
    if answers.len() * 2 <= primaries.len() {
        return Err(Error::unavailable("too few devices of the index answer about the hold"));
    }
    let newest = answers.into_iter().flatten().max_by_key(|entry| entry.order);
    Ok(newest.map_or_else(Default::default, |it| (it.order, IndexLoss::of_entry(&it))))
}

/// Changes the document on all primaries. `change` runs again after each concurrent change.
async fn change(
    cluster: &StepTopology,
    clock: &Arc<dyn Clock>,
    change: impl Fn(&mut IndexLoss),
) -> Result<IndexLoss> {
    let stamps = StampSource::new(clock.clone());
    let mut above = Stamp::default();
    for _ in 0..TRIES {
        let (order, mut loss) = newest(cluster).await?;
        change(&mut loss);
        let value = loss.value();
        let is_too_large = |value: &Value| match value {
            Value::Account(document) => document.bytes().len() > DOCUMENT_BYTES_MAX,
            _ => false,
        };
        if is_too_large(&value) {
            return Err(Error::invalid(
                "the numbers of the lost devices are too many and too far apart to record them: bring \
                 some of the devices back",
            ));
        }
        let write_id = WriteId::random();
        let entry = Entry { order: stamps.issue_above(above.max(order)), write_id, value };
        match write_to_all(cluster, clock, entry).await? {
            None if is_held_by_all(cluster, write_id).await => return Ok(loss),
            None => {}
            Some(floor) => above = above.max(floor),
        }
    }
    Err(Error::unavailable("the devices of the index refuse the hold: try again"))
}

/// Writes an entry to all primaries. Returns none once each has it or a newer one, and otherwise the
/// order above which the entry must lie.
async fn write_to_all(
    cluster: &StepTopology,
    clock: &Arc<dyn Clock>,
    entry: Entry,
) -> Result<Option<Stamp>> {
    let write = EntryWrite {
        key: RegisterKey::account(NAME),
        entry,
        inline: None,
        mode: WriteMode::Fresh,
        generation: 0,
        commit_by_ms: clock.now_ms() + CHANGE_MS,
        keep_body: false,
        term: Term::ANY,
    };
    let writes = primaries(cluster)?.into_iter().map(|device| {
        let write = write.clone();
        async move { in_time(cluster.node(device)?.write(device, write)).await }
    });
    let mut above = None;
    for reply in try_join_all(writes).await? {
        match reply {
            WriteReply::Stored | WriteReply::Unvoted | WriteReply::Superseded => {}
            WriteReply::Behind(floor) => above = above.max(Some(floor)),
            WriteReply::Fenced | WriteReply::OutOfTime => {
                let message = "a device of the index refuses the change, which took too long or came \
                               from a clock that differs by seconds: check the clocks, and try again";
                return Err(Error::unavailable(message));
            }
        }
    }
    Ok(above)
}

/// Returns true if all primaries hold this write: no other change replaced it until now, and none that
/// failed lies above it.
async fn is_held_by_all(cluster: &StepTopology, write_id: WriteId) -> bool {
    let Ok(primaries) = primaries(cluster) else { return false };
    let held = primaries.into_iter().map(|device| held_by(cluster, device));
    let is_own = |held: Result<Option<Entry>>| {
        held.ok().flatten().is_some_and(|entry| entry.write_id == write_id)
    };
    join_all(held).await.into_iter().all(is_own)
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
        self.look(cluster, now_ms).await.is_none_or(|(_, is_on)| is_on)
    }

    /// Returns the condition of deletes that are sent now, or none if collection is held or the state
    /// is unknown. Its time begins when the state was read, which may be [`KEPT_MS`] ago.
    pub(crate) async fn deletes(
        &self,
        cluster: &StepTopology,
        now_ms: u64,
    ) -> Option<DeleteCondition> {
        let (looked_ms, is_on) = self.look(cluster, now_ms).await?;
        (!is_on).then(|| deletes_after(looked_ms))
    }

    /// Returns the condition of deletes as [`Self::deletes`], by the state as it is now. `now_ms` is a
    /// time before the call.
    pub(crate) async fn deletes_now(
        cluster: &StepTopology,
        now_ms: u64,
    ) -> Option<DeleteCondition> {
        (!Self::is_on_now(cluster).await).then(|| deletes_after(now_ms))
    }

    /// Returns the time before the state was read, and the state; none if it is unknown.
    async fn look(&self, cluster: &StepTopology, now_ms: u64) -> Option<(u64, bool)> {
        if let Some((at_ms, is_on)) = *self.known.lock()
            && (at_ms..at_ms.saturating_add(KEPT_MS)).contains(&now_ms)
        {
            return Some((at_ms, is_on));
        }
        match Self::read(cluster).await {
            Ok(is_on) => {
                let before = self.known.lock().replace((now_ms, is_on));
                if is_on != before.is_some_and(|(_, was_on)| was_on) {
                    tracing::warn!(is_on, "the hold on collection of an operator begins or ends");
                }
                Some((now_ms, is_on))
            }
            Err(error) => {
                tracing::debug!(%error, "keeping everything: the state of the hold is unknown");
                None
            }
        }
    }

    /// Returns true if collection is held now, or if the state is unknown.
    pub(crate) async fn is_on_now(cluster: &StepTopology) -> bool {
        Self::read(cluster).await.unwrap_or(true)
    }

    /// Reads the state from primaries with votes: others may have forgotten it.
    async fn read(cluster: &StepTopology) -> Result<bool> {
        let (key, primaries) = (RegisterKey::account(NAME), primaries(cluster)?);
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

/// Returns the condition of deletes after a look at the hold.
fn deletes_after(looked_ms: u64) -> DeleteCondition {
    DeleteCondition { not_after_ms: looked_ms.saturating_add(DELETE_MS) }
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
        let lost: BTreeSet<DeviceId> = [DeviceId(3), DeviceId(70_000)].into();
        let partitions = LostPartitions::parse("16", "0-2,9-9,65535-65535").unwrap();
        for loss in [
            IndexLoss::default(),
            IndexLoss { held_since_ms: Some(5), lost, partitions },
            IndexLoss { held_since_ms: Some(u64::MAX), ..IndexLoss::default() },
        ] {
            assert_eq!(IndexLoss::of_entry(&entry(&loss.document())), loss);
        }
        let loss = IndexLoss::of_entry(&entry("1 5 3-3,70000-70000 16 0-2,9-9,65535-65535"));
        assert_eq!((loss.lost.len(), loss.partitions.count()), (2, 5));
        for unknown in [
            "",
            "2 - - 0 -",
            "1",
            "1 x - 0 -",
            "1 - - 0 - -",
            "1 - - 4 0-16",
            "1 - - 99 -",
            "1 - 0-9999999 0 -",
        ] {
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
