//! Extents of a key that the index still needs (rule X3).
//!
//! Bytes move one way. The decision to complete an upload takes over a part's extents, then the
//! object does; and hints move from handoffs to primaries. So parts are read first, then the
//! upload, then the object, and hints before primaries in each case. An extent on its way is then
//! seen at least once. A version that is not current has a register beside its key's, which exists
//! before the key's register drops the version. So versions are read last. A version that becomes
//! current again leaves a copy in its register. Parts of an upload that has ended need no extents:
//! the object holds the chosen ones. The process that ended the upload may have died before it
//! freed the rest.
//!
//! All primaries must answer, with votes, and every device must return its hints. While a replica
//! is moving, the answer is unknown. The requests carry the term: a device that knows of a change
//! unknown to this process refuses.
//!
//! The answer is also unknown while the primaries differ. One primary may hold a write under a
//! newer one, and a proxy or worker may still bring the older write to the rest by a ballot above
//! the newer. Once all primaries agree, every ballot that none of them has seen yet finds their
//! state.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;
use martlet_protocol::backend::{ListReply, ListRequest, ListStart, Want};
use martlet_protocol::entry::{Body, Entry, UploadState, Value};
use martlet_protocol::key::index_placement;
use martlet_protocol::{
    BackendExt, BucketId, DeviceId, Error, ExtentId, RegisterKey, RegisterKind, Result, Shard,
    Stamp, UploadId,
};

use crate::cluster::{StepTopology, in_time};
use crate::manifest::BodyExtents;

/// Entries of a listing requested at a time.
const PAGE: usize = 1000;

/// Owner of the extents in question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExtentClaim {
    pub(crate) bucket: BucketId,
    pub(crate) shard: Shard,
    pub(crate) key: String,
    pub(crate) upload: Option<UploadId>,
}

/// Answers of one step, so that extents of one owner need one query.
pub(crate) struct NeedCheck<'a> {
    cluster: &'a StepTopology,
    known: HashMap<ExtentClaim, Arc<ClaimAnswer>>,
}

/// The index's answer about a claim.
struct ClaimAnswer {
    extents: HashSet<ExtentId>,
    /// True if all primaries agree.
    is_settled: bool,
}

/// Extents that an upload and its parts need.
struct UploadNeeds {
    extents: HashSet<ExtentId>,
    is_settled: bool,
}

/// Rows of a claim that are listed: a key may have many versions, and an upload many parts.
#[derive(Clone)]
struct ClaimRows {
    kind: RegisterKind,
    prefix: Bytes,
    /// True if tombstones count when two devices are compared.
    with_tombstones: bool,
}

/// Needs of a device's listed rows.
struct ListedRows {
    /// Extents of inline manifests, and those that spilled manifests lie in.
    extents: HashSet<ExtentId>,
    /// Bodies with spilled manifests, by the first extent of the manifest. They are read only if the
    /// rows count: those of an ended upload may be gone.
    spilled: BTreeMap<ExtentId, Body>,
    /// Equal on two devices that hold equal rows.
    sum: blake3::Hash,
}

impl ClaimRows {
    /// Parts of an upload.
    fn parts(upload: UploadId) -> Self {
        let prefix = Bytes::copy_from_slice(&upload.0);
        Self { kind: RegisterKind::Part, prefix, with_tombstones: true }
    }

    /// Versions of a key that are not current. Replicas drop their tombstones one after another.
    fn versions(key: &str) -> Self {
        let prefix = [key.as_bytes(), &[0]].concat().into();
        Self { kind: RegisterKind::Version, prefix, with_tombstones: false }
    }
}

/// Source of a query: a device's registers, or its hints.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QuerySource {
    Registers,
    Hints,
}

impl<'a> NeedCheck<'a> {
    /// Creates an empty set of answers.
    pub(crate) fn new(cluster: &'a StepTopology) -> Self {
        Self { cluster, known: HashMap::new() }
    }

    /// Returns true if any primary, or any hint, needs an extent for a claim's key and upload.
    ///
    /// # Errors
    /// The answer is unknown if a needed device does not answer or has no vote, or if a replica is
    /// moving. It is also unknown if the primaries differ and none of them needs the extent, or if
    /// a manifest can't be read.
    pub(crate) async fn is_needed(&mut self, claim: &ExtentClaim, id: ExtentId) -> Result<bool> {
        let known = self.claim_answer(claim).await?;
        if known.extents.contains(&id) {
            return Ok(true);
        }
        if !known.is_settled {
            return Err(Error::unavailable("the replicas of the key's entries differ"));
        }
        Ok(false)
    }

    async fn claim_answer(&mut self, claim: &ExtentClaim) -> Result<Arc<ClaimAnswer>> {
        if let Some(known) = self.known.get(claim) {
            return Ok(known.clone());
        }
        let holders = self.cluster.holders(index_placement(claim.bucket, claim.shard));
        if holders.in_transition {
            return Err(Error::unavailable("a replica of the key's entries is moving"));
        }
        let everyone = self.cluster.index_devices();
        let mut found = UploadNeeds { extents: HashSet::new(), is_settled: true };
        if let Some(upload) = claim.upload {
            found = self.of_upload(claim, upload, &holders.primaries, &everyone).await?;
        }
        let object = Bytes::copy_from_slice(claim.key.as_bytes());
        let of_object = |source, devices| {
            self.registers(source, devices, claim, RegisterKind::Object, object.clone())
        };
        let hinted = of_object(QuerySource::Hints, &everyone).await?;
        let held = of_object(QuerySource::Registers, &holders.primaries).await?;
        let is_settled = found.is_settled && are_equal(orders(&held));
        let mut extents = found.extents;
        self.add_entries(&[&hinted[..], &held[..]].concat(), &mut extents).await?;
        let versions = ClaimRows::versions(&claim.key);
        let kept = self.listed(QuerySource::Hints, &everyone, claim, &versions).await?;
        let held =
            self.listed(QuerySource::Registers, &holders.primaries, claim, &versions).await?;
        let is_settled = is_settled && are_equal(held.iter().map(|rows| rows.sum));
        self.add_rows(kept.into_iter().chain(held).collect(), &mut extents).await?;
        let known = Arc::new(ClaimAnswer { extents, is_settled });
        self.known.insert(claim.clone(), known.clone());
        Ok(known)
    }

    /// Returns the rows of each of `devices`.
    async fn listed(
        &self,
        source: QuerySource,
        devices: &[DeviceId],
        claim: &ExtentClaim,
        rows: &ClaimRows,
    ) -> Result<Vec<ListedRows>> {
        try_join_all(devices.iter().map(|device| self.listed_on(source, *device, claim, rows)))
            .await
    }

    /// Returns the rows of a device, read page by page.
    async fn listed_on(
        &self,
        source: QuerySource,
        device: DeviceId,
        claim: &ExtentClaim,
        rows: &ClaimRows,
    ) -> Result<ListedRows> {
        let mut request = ListRequest {
            bucket: claim.bucket,
            shards: vec![claim.shard],
            kind: rows.kind,
            prefix: rows.prefix.clone(),
            start: ListStart::First,
            limit: PAGE,
            fold: None,
            term: self.cluster.named()?,
        };
        let (mut extents, mut spilled) = (HashSet::new(), BTreeMap::new());
        let mut sum = blake3::Hasher::new();
        loop {
            let page = page(self.cluster, source, device, &request).await?;
            let counts = |entry: &Entry| rows.with_tombstones || !entry.value.is_tombstone();
            for (name, entry) in page.entries.iter().filter(|(_, entry)| counts(entry)) {
                sum.update(&(name.len() as u64).to_le_bytes());
                sum.update(name).update(&entry.order.to_bytes());
                match needed_body(entry) {
                    Some(Body::Extents(manifest)) => {
                        extents.extend(manifest.extents.iter().map(|extent| extent.id));
                    }
                    Some(body @ Body::Spilled { manifest, .. }) => {
                        extents.extend(manifest.iter().map(|extent| extent.id));
                        let first = manifest.first().map(|extent| extent.id);
                        spilled.extend(first.map(|id| (id, body.clone())));
                    }
                    _ => {}
                }
            }
            match page.entries.last() {
                Some((last, _)) if page.truncated => request.start = ListStart::After(last.clone()),
                _ => return Ok(ListedRows { extents, spilled, sum: sum.finalize() }),
            }
        }
    }

    /// Adds the extents that rows need. A manifest that several devices name is read once.
    async fn add_rows(&self, rows: Vec<ListedRows>, into: &mut HashSet<ExtentId>) -> Result<()> {
        let mut spilled = BTreeMap::new();
        for rows in rows {
            into.extend(rows.extents);
            spilled.extend(rows.spilled);
        }
        for body in spilled.into_values() {
            self.add_body(&body, into).await?;
        }
        Ok(())
    }

    /// Returns the needs of an upload and its parts. Replicas drop the parts of an ended upload
    /// one after another, so only the upload itself must then be equal on all.
    async fn of_upload(
        &self,
        claim: &ExtentClaim,
        upload: UploadId,
        primaries: &[DeviceId],
        everyone: &[DeviceId],
    ) -> Result<UploadNeeds> {
        let rows = ClaimRows::parts(upload);
        let kept = self.listed(QuerySource::Hints, everyone, claim, &rows).await?;
        let parts = self.listed(QuerySource::Registers, primaries, claim, &rows).await?;
        let mut name = claim.key.clone().into_bytes();
        name.push(0);
        name.extend_from_slice(&upload.0);
        let name = Bytes::from(name);
        let of_upload = |source, devices| {
            self.registers(source, devices, claim, RegisterKind::Upload, name.clone())
        };
        let hinted = of_upload(QuerySource::Hints, everyone).await?;
        let uploads = of_upload(QuerySource::Registers, primaries).await?;
        let has_ended =
            |upload: &Option<Entry>| upload.as_ref().is_some_and(Entry::is_ended_upload);
        let is_over = uploads.iter().all(has_ended);
        let is_settled = are_equal(orders(&uploads))
            && (is_over || are_equal(parts.iter().map(|rows| rows.sum)));
        let mut extents = HashSet::new();
        self.add_entries(&[&hinted[..], &uploads[..]].concat(), &mut extents).await?;
        // A primary that has seen the upload end needs none of its parts; any other needs all.
        let needed = parts.into_iter().zip(&uploads).filter(|(_, upload)| !has_ended(upload));
        let rows = kept.into_iter().chain(needed.map(|(rows, _)| rows)).collect();
        self.add_rows(rows, &mut extents).await?;
        Ok(UploadNeeds { extents, is_settled })
    }

    /// Returns the entry of one register on each of `devices`.
    async fn registers(
        &self,
        source: QuerySource,
        devices: &[DeviceId],
        claim: &ExtentClaim,
        kind: RegisterKind,
        name: Bytes,
    ) -> Result<Vec<Option<Entry>>> {
        let key = &RegisterKey { bucket: claim.bucket, shard: claim.shard, kind, name };
        let term = self.cluster.named()?;
        let queries = devices.iter().map(|device| async move {
            let node = self.cluster.node(*device)?;
            let view = match source {
                QuerySource::Registers => {
                    let read = in_time(node.read(*device, key, Want::Entry, term)).await;
                    read.inspect_err(|error| self.cluster.learn(error))?
                }
                QuerySource::Hints => in_time(node.read_hint(*device, key, Want::Entry)).await?,
            };
            Ok(view.entry)
        });
        try_join_all(queries).await
    }

    async fn add_entries(
        &self,
        entries: &[Option<Entry>],
        into: &mut HashSet<ExtentId>,
    ) -> Result<()> {
        for entry in entries {
            if let Some(body) = entry.as_ref().and_then(needed_body) {
                self.add_body(body, into).await?;
            }
        }
        Ok(())
    }

    async fn add_body(&self, body: &Body, into: &mut HashSet<ExtentId>) -> Result<()> {
        let BodyExtents { data, manifest } = BodyExtents::of(self.cluster, body).await?;
        into.extend(data.extents.iter().chain(&manifest.extents).map(|extent| extent.id));
        Ok(())
    }
}

/// Returns the body whose extents an entry needs.
fn needed_body(entry: &Entry) -> Option<&Body> {
    match &entry.value {
        Value::Upload(upload) => match &upload.state {
            UploadState::Completing { object, .. } => Some(&object.body),
            _ => None,
        },
        value => value.body(),
    }
}

/// Returns all pages of a listing of one device.
pub(crate) async fn list(
    cluster: &StepTopology,
    source: QuerySource,
    device: DeviceId,
    mut request: ListRequest,
) -> Result<Vec<(Bytes, Entry)>> {
    let mut all = Vec::new();
    loop {
        let ListReply { entries, truncated } = page(cluster, source, device, &request).await?;
        let last = entries.last().map(|(name, _)| name.clone());
        all.extend(entries);
        match last {
            Some(last) if truncated => request.start = ListStart::After(last),
            _ => return Ok(all),
        }
    }
}

/// Orders of entries, which are equal on replicas that agree.
fn orders(entries: &[Option<Entry>]) -> impl Iterator<Item = Option<Stamp>> {
    entries.iter().map(|entry| entry.as_ref().map(|entry| entry.order))
}

fn are_equal<T: PartialEq>(mut all: impl Iterator<Item = T>) -> bool {
    let first = all.next();
    all.all(|other| Some(other) == first)
}

async fn page(
    cluster: &StepTopology,
    source: QuerySource,
    device: DeviceId,
    request: &ListRequest,
) -> Result<ListReply> {
    let node = cluster.node(device)?;
    match source {
        QuerySource::Registers => {
            in_time(node.list(device, request)).await.inspect_err(|error| cluster.learn(error))
        }
        QuerySource::Hints => in_time(node.list_hints(device, request)).await,
    }
}

#[cfg(test)]
mod tests;
