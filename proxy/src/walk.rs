//! Walks over registers in the order of their names, across all devices that hold shards of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::try_join_all;
use martlet_protocol::backend::{ListReply, ListRequest, ListStart, Want};
use martlet_protocol::entry::Bucket;
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{
    BucketId, DeviceId, Entry, Error, RegisterKey, RegisterKind, Result, Shard,
};

use crate::merge::Merge;
use crate::store::Inner;

/// Entries asked of a device at a time, at most.
const PAGE_MAX: usize = 2000;
/// How much larger each further page of a device is. The first is sized after what is wanted; who
/// comes back has met tombstones or folded names, and may meet many more.
const PAGE_GROWTH: usize = 4;

/// Which registers a walk visits.
pub(crate) struct Paths {
    pub(crate) bucket: BucketId,
    pub(crate) shards: Vec<Shard>,
    pub(crate) kind: RegisterKind,
    pub(crate) prefix: Bytes,
    /// Names may be skipped that share the bytes up to this beyond the prefix.
    pub(crate) fold: Option<Bytes>,
}

impl Paths {
    /// All registers of a kind in a bucket.
    pub(crate) fn all(bucket: &Bucket, kind: RegisterKind) -> Self {
        let shards = (0..bucket.index_shards).map(Shard).collect();
        Self { bucket: bucket.id, shards, kind, prefix: Bytes::new(), fold: None }
    }

    /// The buckets whose names begin with a prefix.
    pub(crate) fn root(prefix: &str) -> Self {
        let shards = (0..INDEX_SHARDS_DEFAULT).map(Shard).collect();
        let prefix = Bytes::copy_from_slice(prefix.as_bytes());
        Self { bucket: BucketId::ROOT, shards, kind: RegisterKind::Object, prefix, fold: None }
    }

    /// The same below a prefix.
    pub(crate) fn below(mut self, prefix: &[u8]) -> Self {
        self.prefix = Bytes::copy_from_slice(prefix);
        self
    }
}

/// A walk over registers, tombstones included.
pub(crate) struct Walk<'a> {
    inner: &'a Inner,
    requests: Vec<(DeviceId, ListRequest)>,
    merge: Merge,
    /// Replicas that must agree on an entry before it is anyone's to see.
    quorum: usize,
    /// Entries that devices have sent so far.
    pub(crate) seen: usize,
}

impl<'a> Walk<'a> {
    /// A walk from `start` whose caller will want about `expected` names.
    pub(crate) fn new(inner: &'a Inner, paths: &Paths, start: ListStart, expected: usize) -> Self {
        let ring = inner.cluster.index();
        let mut holders: BTreeMap<DeviceId, Vec<Shard>> = BTreeMap::new();
        let mut replicas = 1;
        for shard in &paths.shards {
            let primaries = ring.primaries(ring.partition(index_placement(paths.bucket, *shard)));
            replicas = replicas.max(primaries.len());
            for device in primaries {
                holders.entry(device).or_default().push(*shard);
            }
        }
        let share = expected.saturating_mul(replicas) / holders.len().max(1);
        let slack = if holders.len() > 1 { share / 4 + 8 } else { 0 };
        let limit = share.saturating_add(slack).clamp(1, PAGE_MAX);
        let request = |(device, shards)| {
            let request = ListRequest {
                bucket: paths.bucket,
                shards,
                kind: paths.kind,
                prefix: paths.prefix.clone(),
                start: ListStart::First,
                limit,
                fold: paths.fold.clone().filter(|_| replicas == 1),
            };
            (device, request)
        };
        let requests: Vec<_> = holders.into_iter().map(request).collect();
        let merge = Merge::new(requests.len(), start);
        Self { inner, requests, merge, quorum: replicas / 2 + 1, seen: 0 }
    }

    /// The next name and what it holds.
    pub(crate) async fn next(&mut self) -> Result<Option<(Bytes, Entry)>> {
        loop {
            if self.merge.is_wanting() {
                self.refill().await?;
                continue;
            }
            match self.merge.next() {
                None => return Ok(None),
                Some((name, entry, agree)) if agree >= self.quorum => {
                    return Ok(Some((name, entry)));
                }
                Some((name, _, _)) => {
                    if let Some(settled) = self.settled(name).await? {
                        return Ok(Some(settled));
                    }
                }
            }
        }
    }

    /// Passes over all names below `floor`.
    pub(crate) fn skip_to(&mut self, floor: Bytes) {
        self.merge.skip_to(floor);
    }

    async fn refill(&mut self) -> Result<()> {
        let wanting = self.merge.wanting();
        for (at, start) in &wanting {
            self.requests[*at].1.start = start.clone();
        }
        if let [(at, _)] = wanting.as_slice() {
            let (device, request) = &self.requests[*at];
            let reply = self.inner.cluster.node(*device)?.list(*device, request).await?;
            self.take(*at, reply);
            return Ok(());
        }
        let asked = wanting.iter().map(|(at, _)| {
            let (device, request) = &self.requests[*at];
            let node = self.inner.cluster.node(*device);
            async move { Ok::<_, Error>((*at, node?.list(*device, request).await?)) }
        });
        for (at, reply) in try_join_all(asked).await? {
            self.take(at, reply);
        }
        Ok(())
    }

    fn take(&mut self, at: usize, reply: ListReply) {
        let limit = &mut self.requests[at].1.limit;
        *limit = limit.saturating_mul(PAGE_GROWTH).min(PAGE_MAX);
        self.seen += reply.entries.len();
        self.merge.refill(at, reply);
    }

    /// A name that replicas differ on, after a quorum agrees (rule R5).
    async fn settled(&self, name: Bytes) -> Result<Option<(Bytes, Entry)>> {
        let (_, request) = &self.requests[0];
        let shards = self.requests.iter().flat_map(|(_, request)| &request.shards);
        let mut found: Option<Entry> = None;
        let mut shards: Vec<Shard> = shards.copied().collect();
        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            let (bucket, kind) = (request.bucket, request.kind);
            let key = RegisterKey { bucket, shard, kind, name: name.clone() };
            let entry = self.inner.read(&key, Want::Entry).await?.entry;
            found = found.max_by_order(entry);
        }
        Ok(found.map(|entry| (name, entry)))
    }
}

trait MaxByOrder {
    fn max_by_order(self, other: Self) -> Self;
}

impl MaxByOrder for Option<Entry> {
    fn max_by_order(self, other: Self) -> Self {
        let order = |entry: &Self| entry.as_ref().map(|entry| entry.order);
        if order(&other) > order(&self) { other } else { self }
    }
}

/// A name as text.
pub(crate) fn text(name: Bytes) -> Result<String> {
    String::from_utf8(name.into())
        .map_err(|error| Error::corrupt("a name in the index is not UTF-8").with_source(error))
}
