//! What the index still wants of a key.
//!
//! Bytes move one way: a part's extents are taken over first by the decision to complete its upload,
//! then by the object. So parts are asked first, then the upload, then the object: extents on their
//! way from one to the next are met at least once. Parts of an upload that has ended want nothing any
//! more: what was chosen is the object's by then, and whoever ended it may have died before it had
//! freed the rest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{ListRequest, ListStart, Want};
use martlet_protocol::entry::{Body, Entry, UploadState, Value};
use martlet_protocol::{
    BucketId, DeviceId, ExtentId, RegisterKey, RegisterKind, Result, Shard, UploadId,
};

use crate::cluster::Cluster;
use crate::manifest::BodyExtents;

/// Entries of a listing asked for at a time.
const PAGE: usize = 1000;

/// Whose extents are asked about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) bucket: BucketId,
    pub(crate) shard: Shard,
    pub(crate) key: String,
    pub(crate) upload: Option<UploadId>,
}

/// The answers of one step, so that extents of one owner cost one question.
pub(crate) struct Wanted<'a> {
    cluster: &'a Cluster,
    known: HashMap<Claim, Arc<HashSet<ExtentId>>>,
}

impl<'a> Wanted<'a> {
    /// No answers yet.
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, known: HashMap::new() }
    }

    /// The extents that any device of the index ring wants for a claim's key and upload.
    ///
    /// # Errors
    /// When any of them does not answer, or a manifest can't be read: nobody can tell.
    pub(crate) async fn extents(&mut self, claim: &Claim) -> Result<Arc<HashSet<ExtentId>>> {
        if let Some(known) = self.known.get(claim) {
            return Ok(known.clone());
        }
        let mut wanted = HashSet::new();
        for device in self.cluster.index_devices() {
            self.collect(device, claim, &mut wanted).await?;
        }
        let wanted = Arc::new(wanted);
        self.known.insert(claim.clone(), wanted.clone());
        Ok(wanted)
    }

    async fn collect(
        &self,
        device: DeviceId,
        claim: &Claim,
        into: &mut HashSet<ExtentId>,
    ) -> Result<()> {
        if let Some(upload) = claim.upload {
            let parts = self.parts(device, claim, upload).await?;
            let mut name = claim.key.clone().into_bytes();
            name.push(0);
            name.extend_from_slice(&upload.0);
            let upload = self.register(device, claim, RegisterKind::Upload, name.into()).await?;
            if !upload.as_ref().is_some_and(has_ended) {
                for entry in &parts {
                    self.add_entry(entry, into).await?;
                }
            }
            if let Some(entry) = upload {
                self.add_entry(&entry, into).await?;
            }
        }
        let name = Bytes::copy_from_slice(claim.key.as_bytes());
        match self.register(device, claim, RegisterKind::Object, name).await? {
            Some(entry) => self.add_entry(&entry, into).await,
            None => Ok(()),
        }
    }

    async fn register(
        &self,
        device: DeviceId,
        claim: &Claim,
        kind: RegisterKind,
        name: Bytes,
    ) -> Result<Option<Entry>> {
        let key = RegisterKey { bucket: claim.bucket, shard: claim.shard, kind, name };
        Ok(self.cluster.node(device)?.read(device, &key, Want::Entry).await?.entry)
    }

    async fn parts(&self, device: DeviceId, claim: &Claim, upload: UploadId) -> Result<Vec<Entry>> {
        let mut request = ListRequest {
            bucket: claim.bucket,
            shards: vec![claim.shard],
            kind: RegisterKind::Part,
            prefix: Bytes::copy_from_slice(&upload.0),
            start: ListStart::First,
            limit: PAGE,
            fold: None,
        };
        let mut parts = Vec::new();
        loop {
            let page = self.cluster.node(device)?.list(device, &request).await?;
            let last = page.entries.last().map(|(name, _)| name.clone());
            parts.extend(page.entries.into_iter().map(|(_, entry)| entry));
            match last {
                Some(last) if page.truncated => request.start = ListStart::After(last),
                _ => return Ok(parts),
            }
        }
    }

    async fn add_entry(&self, entry: &Entry, into: &mut HashSet<ExtentId>) -> Result<()> {
        let body = match &entry.value {
            Value::Upload(upload) => match &upload.state {
                UploadState::Completing { object, .. } => &object.body,
                _ => return Ok(()),
            },
            value => value.body().unwrap_or(&Body::Empty),
        };
        let extents = BodyExtents::of(self.cluster, body).await?;
        into.extend(extents.data.iter().chain(&extents.manifest).map(|extent| extent.id));
        Ok(())
    }
}

fn has_ended(entry: &Entry) -> bool {
    match &entry.value {
        Value::Upload(upload) => {
            matches!(upload.state, UploadState::Completed { .. } | UploadState::Aborted)
        }
        _ => false,
    }
}
