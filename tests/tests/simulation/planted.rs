//! Bugs that are planted to see them caught. Each breaks one rule on the way between proxies and
//! nodes, or in a node.

use martlet_protocol::Term;
use std::sync::Arc;

use martlet_protocol::backend::{BucketFence, EntryWrite};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, RegisterKey};

use super::clock::SimulatedClock;

/// What is wrong with the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    #[default]
    None,
    /// Replicas promise and forget it (rule R1).
    ForgetsPromises,
    /// A write that never arrived counts as stored: W=1 (rule R3).
    AcknowledgesAlone,
    /// Whoever is asked, the same replica answers: R=1 (rule R5).
    ReadsOneReplica,
    /// A crash takes the writes that were acknowledged last (rule X6).
    LosesWritesAtCrash,
    /// Whoever is asked to list, the same replica answers (rules R5, L1).
    ListsOneReplica,
    /// Replicas have no tombstones: a delete removes the entry (rule T1).
    ForgetsDeletes,
    /// While both sets decide, the old one decides alone: the new holder's word is that of the old
    /// one (rule P2).
    CountsOneSet,
    /// The new holders decide alone before they hold anything (rule P3).
    BeginsUnjoined,
    /// Who does not answer counts as one that agrees to forget a delete (rule T1).
    CollectsInSilence,
    /// What a head takes the place of is not kept beside it (rule R8).
    OverwritesVersions,
    /// Copies are let go before others are known to have them.
    ReleasesUnverified,
}

/// Entries that a crash takes.
const LOST: usize = 6;

/// A device as it was before the latest of its entries came.
pub(crate) async fn without_latest(
    before: &MemoryBackend,
    device: DeviceId,
    clock: Arc<SimulatedClock>,
) -> MemoryBackend {
    let after = MemoryBackend::new(clock, [device]);
    let mut held = Backend::registers(before, device, None, usize::MAX).await.expect("it is there");
    held.sort_by_key(|(key, view)| {
        let order = view.entry.as_ref().map(|entry| entry.order);
        // What everything else hangs on stays.
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
        // One whose bits were flipped is lost with the rest.
        let Ok(body) = from.read_extent(device, record.extent.id, range).await else { continue };
        let extent = martlet_protocol::backend::NewExtent {
            id: record.extent.id,
            owner: record.owner,
            length: None,
            birth_ms: None,
            layout: martlet_protocol::extent::Layout::default(),
        };
        to.write_extent(device, extent, body).await.expect("it is whole");
    }
}
