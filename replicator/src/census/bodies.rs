//! Extents that entries name and no device has. An extent without any copy is in no device's list.
//!
//! Each extent of each object, version and part is looked up at its first home. If it is missing,
//! every device of its policy is queried. An extent that no device has is lost if a second check
//! later confirms this and the index still needs the extent. Parts are named only by their upload's
//! id, so the upload of a missing part is looked up in its shard.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use martlet_protocol::backend::{ListReply, ListRequest, ListStart, Presence};
use martlet_protocol::entry::{Body, Entry, UploadState, Value};
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::key::shard_of;
use martlet_protocol::{
    BackendExt, BucketId, DeviceId, ExtentId, PolicyId, RegisterKey, RegisterKind, Result, UploadId,
};

use super::CensusRun;
use crate::cluster::{StepTopology, in_time};
use crate::coded::{PresenceMap, stored_ids};
use crate::manifest::BodyExtents;
use crate::needed_extents::{ExtentClaim, NeedCheck};
use crate::sweep::{KnownBucket, list_buckets};

/// An extent that an entry names.
pub(super) struct NamedExtent {
    key: RegisterKey,
    policy: PolicyId,
    id: ExtentId,
}

/// Uploads of a listing requested at a time.
const PAGE: usize = 1000;

/// Object, and upload, for which an entry's extents were written.
struct ExtentOwner {
    key: String,
    upload: Option<UploadId>,
}

/// Extents that the index needs, queried on first use.
pub(super) struct NeededExtents<'a> {
    cluster: &'a StepTopology,
    buckets: Option<HashMap<BucketId, KnownBucket>>,
    wanted: NeedCheck<'a>,
}

impl<'a> NeededExtents<'a> {
    /// Creates the queries, for extents that were seen already.
    pub(super) fn of(cluster: &'a StepTopology) -> Self {
        Self { cluster, buckets: None, wanted: NeedCheck::new(cluster) }
    }

    /// Returns true if the owner of an extent needs it, or if the answer is unknown.
    pub(super) async fn record(&mut self, record: &ExtentRecord) -> bool {
        let owner = &record.owner;
        self.has(owner.bucket, &owner.key, owner.upload, record.named()).await
    }

    async fn has(
        &mut self,
        bucket: BucketId,
        key: &str,
        upload: Option<UploadId>,
        id: ExtentId,
    ) -> bool {
        if self.buckets.is_none() {
            self.buckets = list_buckets(self.cluster).await.ok();
        }
        let Some(buckets) = &self.buckets else { return true };
        let Some(known) = buckets.get(&bucket) else { return false };
        let shard = shard_of(key.as_bytes(), known.shards);
        let claim = ExtentClaim { bucket, shard, key: key.to_owned(), upload };
        self.wanted.is_needed(&claim, id).await.unwrap_or(true)
    }
}

impl CensusRun<'_> {
    /// Returns the extents of an object or a part, as far as its manifest is readable.
    pub(super) async fn named_by(&self, key: &RegisterKey, entry: &Entry) -> Vec<NamedExtent> {
        let Some(body) = body_of(entry) else { return Vec::new() };
        let named = |policy, id| NamedExtent { key: key.clone(), policy, id };
        let (data, manifest) = match BodyExtents::of(self.cluster, body).await {
            Ok(BodyExtents { data, manifest }) => (data, manifest),
            Err(error) => {
                tracing::debug!(?key, %error, "could not read a manifest");
                let Body::Spilled { policy, manifest } = body else { return Vec::new() };
                return manifest.iter().map(|extent| named(*policy, extent.id)).collect();
            }
        };
        let all = [data, manifest].into_iter().flat_map(|placed| {
            placed.extents.into_iter().map(move |extent| (placed.policy, extent.id))
        });
        all.map(|(policy, id)| named(policy, id)).collect()
    }

    /// Searches extents that no device has. Does nothing if a device is silent, because it may have
    /// them.
    pub(super) async fn find_missing(&mut self, named: Vec<NamedExtent>) {
        if !self.silent.is_empty() {
            return;
        }
        let missing = self.missing_everywhere(named).await;
        if missing.is_empty() {
            return;
        }
        self.wait().await;
        let mut wants = NeededExtents::of(self.cluster);
        for NamedExtent { key, id, .. } in self.missing_everywhere(missing).await {
            let (name, is_wanted) = match owner_of(self.cluster, &key).await {
                Ok(Some(ExtentOwner { key: name, upload })) => {
                    let is_wanted = wants.has(key.bucket, &name, upload, id).await;
                    (name, is_wanted)
                }
                // Its upload is gone.
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(?key, %error, "could not find the object of a part");
                    ("a part".to_owned(), true)
                }
            };
            if is_wanted {
                self.report.lost += 1;
                self.report.extents.missing += 1;
                self.found(|| {
                    format!("extent {id}: LOST; no copy or fragment is left; of {name:?}")
                });
            }
        }
    }

    /// Returns the extents of which every device of their policies denies a copy or fragment.
    async fn missing_everywhere(&self, named: Vec<NamedExtent>) -> Vec<NamedExtent> {
        let first = self.absent(named, 1).await;
        let doubtful = self.absent(first, usize::MAX).await;
        let mut nowhere = Vec::new();
        for named in doubtful {
            let copies = self.stored_copies(&named);
            let presences = self.query_presence(copies.iter().copied()).await;
            let has_denied = |(device, id): &(DeviceId, ExtentId)| {
                presences.of(*device, *id).is_some_and(|it| it != Presence::Here)
            };
            if !copies.is_empty() && copies.iter().all(has_denied) {
                nowhere.push(named);
            }
        }
        nowhere
    }

    /// Returns the extents without a copy or fragment on their first `homes_max` homes,
    /// with joint queries.
    async fn absent(&self, named: Vec<NamedExtent>, homes_max: usize) -> Vec<NamedExtent> {
        let homes = |named: &NamedExtent| self.homes(named).into_iter().take(homes_max);
        let presences = self.query_presence(named.iter().flat_map(homes)).await;
        let is_here = |(device, id)| presences.of(device, id) == Some(Presence::Here);
        named.into_iter().filter(|it| !homes(it).any(is_here)).collect()
    }

    async fn query_presence(
        &self,
        copies: impl Iterator<Item = (DeviceId, ExtentId)>,
    ) -> PresenceMap {
        let mut lists: BTreeMap<DeviceId, BTreeSet<ExtentId>> = BTreeMap::new();
        for (device, id) in copies {
            lists.entry(device).or_default().insert(id);
        }
        let mut presences = PresenceMap::default();
        presences.query(self.cluster, lists).await;
        presences
    }

    /// Returns the copy or fragment that each home of an extent holds; empty without a ring for the
    /// policy.
    fn homes(&self, named: &NamedExtent) -> Vec<(DeviceId, ExtentId)> {
        let Ok(ring) = self.cluster.data(named.policy) else { return Vec::new() };
        let homes = ring.primaries(ring.partition(named.id.placement()));
        let ids = stored_ids(self.cluster, named.policy, &[named.id]).unwrap_or_default();
        // All copies have one id, each fragment has its own.
        homes
            .enumerate()
            .filter_map(|(at, home)| Some((home, *ids.get(at).or(ids.first())?)))
            .collect()
    }

    /// Returns the copies or fragments of an extent that any device may hold.
    fn stored_copies(&self, named: &NamedExtent) -> Vec<(DeviceId, ExtentId)> {
        let ids = stored_ids(self.cluster, named.policy, &[named.id]).unwrap_or_default();
        let devices = self.cluster.holders_of(named.policy, named.id).unwrap_or_default();
        let with_all = |id: &ExtentId| {
            let id = *id;
            devices.iter().map(move |device| (*device, id))
        };
        ids.iter().flat_map(with_all).collect()
    }
}

/// Returns the body of an object, a version, a part, or the object of an upload being completed.
fn body_of(entry: &Entry) -> Option<&Body> {
    match &entry.value {
        Value::Upload(upload) => match &upload.state {
            UploadState::Completing { object, .. } => Some(&object.body),
            UploadState::Open | UploadState::Completed { .. } | UploadState::Aborted => None,
        },
        value => value.body(),
    }
}

/// Returns the owner of a register's extents; none for a part whose upload is gone.
///
/// # Errors
/// If no device returns the uploads in a part's shard.
async fn owner_of(cluster: &StepTopology, key: &RegisterKey) -> Result<Option<ExtentOwner>> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match key.kind {
        RegisterKind::Part => upload_of_part(cluster, key).await,
        RegisterKind::Upload => Ok(split_upload(&key.name)
            .map(|(name, upload)| ExtentOwner { key: text(name), upload: Some(upload) })),
        RegisterKind::Version => {
            let name = RegisterKey::version_of(&key.name).map_or(&key.name[..], |(name, _)| name);
            Ok(Some(ExtentOwner { key: text(name), upload: None }))
        }
        RegisterKind::Object | RegisterKind::Account => {
            Ok(Some(ExtentOwner { key: text(&key.name), upload: None }))
        }
    }
}

/// Splits the name of an upload's register into key and upload id.
pub(super) fn split_upload(name: &[u8]) -> Option<(&[u8], UploadId)> {
    let (rest, id) = name.split_last_chunk::<16>()?;
    Some((rest.strip_suffix(&[0])?, UploadId(*id)))
}

/// Finds the upload of a part, on the first of its holders that answers.
async fn upload_of_part(cluster: &StepTopology, part: &RegisterKey) -> Result<Option<ExtentOwner>> {
    let Some(id) = part.name.first_chunk::<16>() else { return Ok(None) };
    let mut outcome = Ok(None);
    for device in cluster.holders(part.placement()).primaries {
        outcome = upload_on(cluster, device, part, UploadId(*id)).await;
        if matches!(outcome, Ok(Some(_))) {
            break;
        }
    }
    outcome
}

async fn upload_on(
    cluster: &StepTopology,
    device: DeviceId,
    part: &RegisterKey,
    upload: UploadId,
) -> Result<Option<ExtentOwner>> {
    let mut request = ListRequest {
        bucket: part.bucket,
        shards: vec![part.shard],
        kind: RegisterKind::Upload,
        prefix: bytes::Bytes::new(),
        start: ListStart::First,
        limit: PAGE,
        fold: None,
        term: cluster.named()?,
    };
    loop {
        let listed = in_time(cluster.node(device)?.list(device, &request)).await?;
        let ListReply { entries, truncated } = listed;
        let mut names = entries.iter().filter_map(|(name, _)| split_upload(name));
        if let Some((name, _)) = names.find(|(_, id)| *id == upload) {
            let key = String::from_utf8_lossy(name).into_owned();
            return Ok(Some(ExtentOwner { key, upload: Some(upload) }));
        }
        match entries.last() {
            Some((last, _)) if truncated => request.start = ListStart::After(last.clone()),
            _ => return Ok(None),
        }
    }
}
