//! Planted bugs that the checkers must catch. Each breaks one rule on the way between proxies and
//! nodes, or in a node.

use martlet_protocol::Term;
use std::sync::Arc;

use martlet_protocol::backend::{BucketFence, EntryWrite};
use martlet_protocol::entry::{Mark, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, BackendExt, DeviceId, RegisterKey};

use super::clock::SimulatedClock;

/// A planted bug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bug {
    /// No bug.
    #[default]
    None,
    /// Replicas promise and lose the promise (rule R1).
    ForgetsPromises,
    /// A write that never arrived counts as stored: W=1 (rule R3).
    AcknowledgesAlone,
    /// One replica answers for all: R=1 (rule R5).
    ReadsOneReplica,
    /// A crash loses the last acknowledged writes (rule X6).
    LosesWritesAtCrash,
    /// One replica answers all list requests (rules R5, L1).
    ListsOneReplica,
    /// Replicas have no tombstones: a delete removes the entry (rule T1).
    ForgetsDeletes,
    /// While both sets decide, the old set decides alone: an old holder answers for the new one
    /// (rule P2).
    CountsOneSet,
    /// The new holders decide alone before they hold any entries (rule P3).
    BeginsUnjoined,
    /// A node without a reply counts as agreeing to collect a tombstone (rule T1).
    CollectsInSilence,
    /// A replaced head is not kept as a version (rule R8).
    OverwritesVersions,
    /// Copies are released before the other copies are verified.
    ReleasesUnverified,
    /// Pins are acknowledged and never set, so generations are published unpinned (rule S1).
    PublishesUnpinned,
    /// A worker releases the pins of a set before a generation of it leaves the view (rule S1).
    UnpinsBeforeHiding,
    /// Each write in the folder of a set commits it: all objects are markers (rule S2).
    CommitsAtEachWrite,
}

/// Number of entries that a crash loses.
const LOST: usize = 6;

/// Returns a device without the latest of its entries.
pub(crate) async fn without_latest(
    before: &MemoryBackend,
    device: DeviceId,
    clock: Arc<SimulatedClock>,
) -> MemoryBackend {
    let after = MemoryBackend::new(clock, [device]);
    let mut held =
        BackendExt::registers(before, device, None, usize::MAX).await.expect("it is there");
    held.sort_by_key(|(key, view)| {
        let order = view.entry.as_ref().map(|entry| entry.order);
        // Entries of the root bucket stay, because all other entries depend on them.
        (key.bucket != martlet_protocol::BucketId::ROOT, order)
    });
    held.truncate(held.len().saturating_sub(LOST).max(1));
    for (key, view) in held {
        copy(&after, device, key, view).await;
    }
    for fence in before.fences(device).await.expect("it is there") {
        let fence: BucketFence = fence;
        after.fence(device, fence).await.expect("it is there");
    }
    copy_extents(before, &after, device).await;
    after
}

async fn copy(
    to: &MemoryBackend,
    device: DeviceId,
    key: RegisterKey,
    view: martlet_protocol::backend::RegisterView,
) {
    if let Some(entry) = view.entry {
        let write = EntryWrite {
            key: key.clone(),
            entry,
            inline: view.inline,
            mode: WriteMode::Repair,
            generation: 0,
            commit_by_ms: u64::MAX,
            keep_body: false,
            term: Term::ANY,
        };
        to.write(device, write).await.expect("it is there");
    }
    to.promise(device, &key, view.promise, Term::ANY).await.expect("it is there");
}

async fn copy_extents(from: &MemoryBackend, to: &MemoryBackend, device: DeviceId) {
    let all = from.list_extents(device, None, usize::MAX).await.expect("it is there");
    for record in all {
        let range = 0..u64::from(record.extent.length);
        // An extent with flipped bits is lost, too.
        let Ok(body) = from.read_extent(device, record.extent.id, range).await else { continue };
        let extent = martlet_protocol::backend::NewExtent {
            id: record.extent.id,
            owner: record.owner,
            length: None,
            birth_ms: None,
            layout: martlet_protocol::extent::Layout::default(),
            hashes: None,
        };
        to.write_extent(device, extent, body).await.expect("it is whole");
    }
}

/// Returns a write without the pins of its object.
pub(crate) fn unpinned(mut write: EntryWrite) -> EntryWrite {
    if let Value::Object(object) = &mut write.entry.value {
        object.attributes.marks.remove(Mark::Checkpoint);
    }
    write
}

/// Name of the set that a record is of, if a generation of it is withdrawn.
pub(crate) fn withdrawn_set(write: &EntryWrite) -> Option<&[u8]> {
    let set = write.key.name.strip_prefix(b"s/")?;
    let record: serde_json::Value = serde_json::from_slice(write.inline.as_ref()?).ok()?;
    let generations = record.get("generations")?.as_array()?;
    generations.iter().any(|it| it["state"] == "removing").then_some(set)
}

/// Releases the pins of all versions of a set on a device.
pub(crate) async fn unpin(memory: &MemoryBackend, device: DeviceId, set: &[u8]) {
    let held = BackendExt::registers(memory, device, None, usize::MAX).await.expect("it is there");
    for (key, view) in held {
        let Some(mut entry) = view.entry.filter(|_| key.name.starts_with(set)) else { continue };
        let Value::Object(object) = &entry.value else { continue };
        if object.attributes.marks.get(Mark::Checkpoint).is_none() {
            continue;
        }
        entry.order.time = entry.order.time.max(view.promise.time) + 1;
        let write = EntryWrite {
            key,
            entry,
            inline: view.inline,
            mode: WriteMode::Repair,
            generation: 0,
            commit_by_ms: u64::MAX,
            keep_body: true,
            term: Term::ANY,
        };
        memory.write(device, unpinned(write)).await.expect("it is there");
    }
}
