//! Parts of an upload: pages of them on a device, and their removal.
//!
//! Only live parts are listed, since what was removed stays as tombstones for days. A replica that missed a removal
//! lists a part that is gone: the ballot finds its tombstone, and writes nothing. A page is freed before the next
//! one is read, so memory and replies don't grow with the upload.

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::{Detail, ListRequest, ListStart, RowKinds, RowSelection};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::{
    BackendExt, DeviceId, Error, RegisterKey, RegisterKind, Result, Stamp, StampSource, UploadId,
    WriteId,
};

use crate::cluster::{StepTopology, in_time};
use crate::identity::{Candidate, replace};

/// Rows that are read of parts and uploads: none of tombstones.
pub(super) const ROWS: RowSelection =
    RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };
/// Parts of a page. Each names up to 1,024 extents, so a page has 4 MiB at most.
const PAGE: usize = 64;
/// Parts freed concurrently.
const AT_ONCE: usize = 16;

/// Makes a new write, whose order the ballot sets.
pub(super) fn written(value: Value) -> Candidate {
    let entry = Entry { order: Stamp::ZERO, write_id: WriteId::random(), value };
    Candidate { entry, inline: None, keep_body: false }
}

/// Parts of one upload that has ended or is gone.
#[derive(Clone, Copy)]
pub(super) struct EndedParts<'a> {
    pub(super) cluster: &'a StepTopology,
    pub(super) stamps: &'a StampSource,
    /// Any register in the upload's shard.
    pub(super) at: &'a RegisterKey,
    pub(super) upload: UploadId,
}

/// Pages of the live parts of an upload on a device.
struct PartPages<'a> {
    of: EndedParts<'a>,
    device: DeviceId,
    /// Start of the next page; none behind the last one.
    start: Option<ListStart>,
}

impl<'a> EndedParts<'a> {
    /// Frees all parts that a quorum knows; returns their number.
    pub(super) async fn free_all(self) -> Result<usize> {
        let sets = self.cluster.sets(self.at.placement());
        let (mut freed, mut listed) = (0, Vec::new());
        for device in sets.members() {
            let mut pages = self.pages(device);
            loop {
                match pages.next().await {
                    Ok(Some(names)) => freed += self.free(names).await?,
                    Ok(None) => {
                        listed.push(device);
                        break;
                    }
                    Err(error) => {
                        self.cluster.learn(&error);
                        break;
                    }
                }
            }
        }
        if !sets.has_quorum(|id| listed.contains(&id)) {
            return Err(Error::unavailable("no quorum of primaries lists the parts of an upload"));
        }
        Ok(freed)
    }

    /// Frees the parts that one device lists; returns their number.
    pub(super) async fn free_on(self, device: DeviceId) -> Result<usize> {
        let (mut pages, mut freed) = (self.pages(device), 0);
        while let Some(names) = pages.next().await? {
            freed += self.free(names).await?;
        }
        Ok(freed)
    }

    fn pages(self, device: DeviceId) -> PartPages<'a> {
        PartPages { of: self, device, start: Some(ListStart::First) }
    }

    /// Frees parts; returns the number of those that weren't free yet.
    async fn free(self, names: Vec<Bytes>) -> Result<usize> {
        let Self { cluster, stamps, at, .. } = self;
        let freed = names.into_iter().map(|name| async move {
            let key = RegisterKey { kind: RegisterKind::Part, name, ..at.clone() };
            let decide = |found: Option<Candidate>| {
                let is_part = matches!(found?.entry.value, Value::Part(_));
                is_part.then(|| written(Value::Tombstone))
            };
            replace(cluster, stamps, &key, decide).await
        });
        let mut freed = futures::stream::iter(freed).buffer_unordered(AT_ONCE);
        let mut count = 0;
        while let Some(part) = freed.next().await {
            count += usize::from(part?.is_some());
        }
        Ok(count)
    }
}

impl PartPages<'_> {
    /// Returns the names of the next page, which may be empty; none behind the last page.
    async fn next(&mut self) -> Result<Option<Vec<Bytes>>> {
        let Some(start) = self.start.take() else { return Ok(None) };
        let EndedParts { cluster, at, upload, .. } = self.of;
        let request = ListRequest {
            bucket: at.bucket,
            shards: vec![at.shard],
            kind: RegisterKind::Part,
            prefix: Bytes::copy_from_slice(&upload.0),
            start,
            limit: PAGE,
            fold: None,
            term: cluster.named()?,
        };
        let node = cluster.node(self.device)?;
        let page = in_time(node.list_rows(self.device, &request, ROWS)).await?;
        let last = page.entries.last().filter(|_| page.truncated);
        self.start = last.map(|(name, _)| ListStart::After(name.clone()));
        // The page may end with a position, which is no part.
        let live = page.entries.into_iter().filter(|(_, entry)| !entry.value.is_tombstone());
        Ok(Some(live.map(|(name, _)| name).collect()))
    }
}
