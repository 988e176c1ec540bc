//! Parts of an upload: their names by a quorum, and their removal.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use martlet_protocol::backend::{ListRequest, ListStart};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::{
    Error, RegisterKey, RegisterKind, Result, Stamp, StampSource, UploadId, WriteId,
};

use crate::cluster::StepTopology;
use crate::identity::{Candidate, replace};
use crate::needed_extents::{QuerySource, list};

/// Parts freed concurrently.
const AT_ONCE: usize = 16;

/// Makes a new write, whose order the ballot sets.
pub(super) fn written(value: Value) -> Candidate {
    let entry = Entry { order: Stamp::ZERO, write_id: WriteId::random(), value };
    Candidate { entry, inline: None, keep_body: false }
}

/// Frees all parts of an upload that has ended or is gone; returns their number. `at` is any register in
/// the upload's shard.
pub(super) async fn free_parts(
    cluster: &StepTopology,
    stamps: &StampSource,
    at: &RegisterKey,
    upload: UploadId,
) -> Result<usize> {
    let parts = parts_of(cluster, at, upload).await?;
    let freed = parts.iter().map(|name| async move {
        let key = RegisterKey { kind: RegisterKind::Part, name: name.clone(), ..at.clone() };
        let decide = |found: Option<Candidate>| {
            let is_part = matches!(found?.entry.value, Value::Part(_));
            is_part.then(|| written(Value::Tombstone))
        };
        replace(cluster, stamps, &key, decide).await.map(drop)
    });
    let mut freed = futures::stream::iter(freed.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
    while let Some(part) = freed.next().await {
        part?;
    }
    Ok(parts.len())
}

/// Returns the names of the parts of an upload that any quorum may know.
async fn parts_of(
    cluster: &StepTopology,
    at: &RegisterKey,
    upload: UploadId,
) -> Result<Vec<Bytes>> {
    let request = ListRequest {
        bucket: at.bucket,
        shards: vec![at.shard],
        kind: RegisterKind::Part,
        prefix: Bytes::copy_from_slice(&upload.0),
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
