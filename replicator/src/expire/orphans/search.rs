//! Search for the uploads of old parts: candidates that no device holds are forgotten uploads.
//!
//! ```text
//! first primary ──left──▶ everyone answers ──▶ devices outside of their place, hints, all primaries
//!     │ none                                      │ none left          │ the rest, if nothing changed
//!     ▼                                           ▼                    ▼
//!    end                                         end               forgotten
//! ```
//!
//! Each listing is read once for all candidates, page by page over many steps. Registers move one way: from
//! hints, and from devices outside of their place, to primaries. So primaries are read last, and an upload on its
//! way is seen at least once, however long the search takes. Another ring or term ends the search, and so does
//! silence.

use std::collections::{BTreeSet, VecDeque};

use martlet_protocol::backend::{ListReply, ListRequest, ListStart};
use martlet_protocol::{
    BackendExt, DeviceId, Error, RegisterKey, RegisterKind, Result, Term, UploadId,
};
use martlet_ring::RingHash;

use super::{OrphanInputs, ROWS, request};
use crate::cluster::{StepTopology, in_time};
use crate::collect::{OutsideHolders, check_everyone};
use crate::needed_extents::QuerySource;

/// Uploads of a page.
const PAGE: usize = 1000;

/// Search for some uploads of one shard.
#[derive(Debug)]
pub(super) struct UploadSearch {
    candidates: BTreeSet<UploadId>,
    /// Sources that were not read to their end yet, in order.
    sources: VecDeque<(QuerySource, DeviceId)>,
    start: ListStart,
    /// Ring and term under which all sources are read; none while the first primary is.
    under: Option<(RingHash, Term)>,
}

impl UploadSearch {
    /// Begins at the first primary, which has nearly all uploads.
    pub(super) fn new(candidates: BTreeSet<UploadId>, first: DeviceId) -> Self {
        let sources = VecDeque::from([(QuerySource::Registers, first)]);
        Self { candidates, sources, start: ListStart::First, under: None }
    }

    /// Returns the candidates that were not found: after the end, those that are nowhere.
    pub(super) fn left(self) -> BTreeSet<UploadId> {
        self.candidates
    }

    /// Reads a page, or prepares the next sources. `shard` is any register of the shard. Returns true at the end.
    ///
    /// # Errors
    /// A device is silent, a replica moves, or the ring or the term changed: nothing is known of the candidates.
    pub(super) async fn advance(
        &mut self,
        shard: &RegisterKey,
        with: OrphanInputs<'_>,
        outside: &mut OutsideHolders,
    ) -> Result<bool> {
        let cluster = with.cluster;
        if self.candidates.is_empty() {
            return Ok(true);
        }
        if self.under.is_some_and(|under| under != under_of(cluster)) {
            return Err(Error::unavailable("the ring changed while uploads were looked for"));
        }
        let Some((source, device)) = self.sources.front().copied() else {
            let is_end = self.under.is_some();
            let keepers = check_still(cluster, shard).await?;
            if !is_end {
                self.sources = everywhere(shard, with, outside, keepers).await?;
                self.under = Some(under_of(cluster));
            }
            return Ok(is_end);
        };
        let start = self.start.clone();
        let shards = vec![shard.shard];
        let request = request(shard.bucket, shards, RegisterKind::Upload, PAGE, cluster)?;
        let page = read(cluster, source, device, ListRequest { start, ..request }).await?;
        let next = leave_out(&page, &mut self.candidates);
        if next.is_none() {
            self.sources.pop_front();
        }
        self.start = next.unwrap_or(ListStart::First);
        Ok(false)
    }
}

fn under_of(cluster: &StepTopology) -> (RingHash, Term) {
    (cluster.index().hash(), cluster.term())
}

/// Checks that no replica of the shard moves and that all devices answer with votes; returns those with hints.
async fn check_still(cluster: &StepTopology, shard: &RegisterKey) -> Result<BTreeSet<DeviceId>> {
    if cluster.holders(shard.placement()).in_transition {
        return Err(Error::unavailable("a replica of the uploads is moving"));
    }
    check_everyone(cluster).await
}

/// Returns all sources in the order in which registers move.
async fn everywhere(
    shard: &RegisterKey,
    with: OrphanInputs<'_>,
    outside: &mut OutsideHolders,
    keepers: BTreeSet<DeviceId>,
) -> Result<VecDeque<(QuerySource, DeviceId)>> {
    let cluster = with.cluster;
    let primaries = cluster.holders(shard.placement()).primaries;
    let first = primaries.first().copied();
    let first = first.ok_or_else(|| Error::internal("a shard without primaries"))?;
    let partition = cluster.index().partition(shard.placement());
    outside.look(cluster, first, [partition].into(), with.stamps.now_ms()).await?;
    let elsewhere = outside.of(cluster, shard).into_iter();
    let elsewhere = elsewhere.map(|device| (QuerySource::Registers, device));
    let hints = keepers.into_iter().map(|device| (QuerySource::Hints, device));
    let primaries = primaries.into_iter().map(|device| (QuerySource::Registers, device));
    Ok(elsewhere.chain(hints).chain(primaries).collect())
}

async fn read(
    cluster: &StepTopology,
    source: QuerySource,
    device: DeviceId,
    request: ListRequest,
) -> Result<ListReply> {
    let node = cluster.node(device)?;
    match source {
        QuerySource::Registers => in_time(node.list_rows(device, &request, ROWS)).await,
        QuerySource::Hints => in_time(node.list_hints(device, &request)).await,
    }
}

/// Leaves out the uploads of a page; returns the start of the next page.
fn leave_out(page: &ListReply, candidates: &mut BTreeSet<UploadId>) -> Option<ListStart> {
    for (name, _) in page.entries.iter().filter(|(_, it)| !it.value.is_tombstone()) {
        if let Some((_, upload)) = RegisterKey::upload_of(name) {
            candidates.remove(&upload);
        }
    }
    let (last, _) = page.entries.last().filter(|_| page.truncated)?;
    Some(ListStart::After(last.clone()))
}
