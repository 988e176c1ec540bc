//! Parts of an upload, by a quorum.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::{ListRequest, ListStart};
use martlet_protocol::entry::{Entry, Upload};
use martlet_protocol::{Error, RegisterKey, RegisterKind, Result};

use crate::cluster::StepTopology;
use crate::needed_extents::{QuerySource, list};

/// Returns the names of the parts of an upload that any quorum may know.
pub(super) async fn parts_of(
    cluster: &StepTopology,
    at: &RegisterKey,
    upload: &Upload,
) -> Result<Vec<Bytes>> {
    let request = ListRequest {
        bucket: at.bucket,
        shards: vec![at.shard],
        kind: RegisterKind::Part,
        prefix: Bytes::copy_from_slice(&upload.id.0),
        start: ListStart::First,
        limit: 1000,
        fold: None,
        term: cluster.named()?,
    };
    let sets = cluster.sets(at.placement());
    let queries = sets.members().map(|device| {
        let request = request.clone();
        async move { Ok((device, list(cluster, QuerySource::Registers, device, request).await?)) }
    });
    let mut answers = Vec::new();
    for answer in join_all(queries).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) => cluster.learn(&error),
        }
    }
    if !sets.has_quorum(|id| answers.iter().any(|(device, _)| *device == id)) {
        return Err(Error::unavailable("no quorum of primaries lists the parts of an upload"));
    }
    let mut newest: BTreeMap<Bytes, Entry> = BTreeMap::new();
    for (name, entry) in answers.into_iter().flat_map(|(_, parts)| parts) {
        let held = newest.entry(name).or_insert_with(|| entry.clone());
        if entry.order > held.order {
            *held = entry;
        }
    }
    newest.retain(|_, entry| !entry.value.is_tombstone());
    Ok(newest.into_keys().collect())
}
