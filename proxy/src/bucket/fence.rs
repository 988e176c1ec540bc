//! Fences, hint checks and purges of a bucket on all devices of the index (rule M2).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::backend::{
    BucketFence, DeviceHealth, DeviceStatus, ListRequest, ListStart, Want,
};
use martlet_protocol::entry::Bucket;
use martlet_protocol::key::index_placement;
use martlet_protocol::{
    Backend, BackendExt, BucketId, DeviceId, Error, RegisterKey, RegisterKind, Result, Shard,
    StampSource, Term,
};
use tokio::time::{Instant, timeout};

use super::hint_keepers::{HintKeepers, Keepers};
use crate::index::{ReplicaClient, ReplicaSet, call_in_time};
use crate::walk::Paths;

/// Registers of a bucket that are read from a device, with up to 8 KiB each, and devices asked together.
const REGISTERS_SEEN: usize = 64;
const DEVICES_AT_ONCE: usize = 64;
/// Replies by which a bucket without a register counts as lost, unless one of them has its deletion.
const DELETION_REPLIES: usize = 3;

/// Reply of a device to a fence.
struct FenceReply {
    device: DeviceId,
    /// True if the device stored the fence.
    is_fenced: bool,
    /// True if the device has a vote, and its term was not newer after it stored the fence.
    counts: bool,
    /// The refusal of a device with a newer term.
    outdated: Option<Error>,
}

/// Error about a device without which nothing is known of hints.
fn silence_of(device: DeviceId) -> Error {
    Error::unavailable(format!("device {device} does not answer"))
}

/// Fences of buckets on all devices of the index.
pub(crate) struct Fences {
    replicas: Arc<ReplicaClient>,
    /// Devices that keep hints, for checks that rely on no earlier replies. These never wait for requests of the others,
    /// which take long while a device is silent.
    fresh: HintKeepers,
    /// Devices that keep hints, for checks that rely on replies of a certain age.
    recent: HintKeepers,
}

impl Fences {
    pub(super) fn new(replicas: Arc<ReplicaClient>, stamps: Arc<StampSource>) -> Self {
        let (fresh, recent) = (HintKeepers::new(stamps.clone()), HintKeepers::new(stamps));
        Self { replicas, fresh, recent }
    }

    /// Calls every device of the index concurrently.
    async fn call_all<T, F>(
        &self,
        call: impl Fn(DeviceId, Arc<dyn Backend>) -> F + Clone + Send + 'static,
    ) -> Vec<(DeviceId, Result<T>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let cluster = self.replicas.topology.cluster();
        let devices: Vec<DeviceId> = cluster.index().devices().iter().map(|it| it.id).collect();
        self.call_some(&devices, call).await
    }

    /// Calls some devices concurrently.
    async fn call_some<T, F>(
        &self,
        devices: &[DeviceId],
        call: impl Fn(DeviceId, Arc<dyn Backend>) -> F + Clone + Send + 'static,
    ) -> Vec<(DeviceId, Result<T>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let cluster = self.replicas.topology.cluster();
        let calls = devices.iter().map(|device| {
            let (device, call) = (*device, call.clone());
            let most = self.replicas.call_time();
            let reply = call_in_time(&cluster, device, most, move |node| call(device, node));
            async move { (device, reply.await) }
        });
        join_all(calls).await
    }

    /// Sends a bucket's generation to every device of the index. Completes once a quorum of each
    /// set of every shard has stored it. Returns true if all devices have; false without the ring of the
    /// change in progress, which may have further devices.
    pub(crate) async fn fence(&self, bucket: &Bucket, open: bool) -> Result<bool> {
        let deadline = Instant::now() + self.replicas.operation_time();
        loop {
            let replica_set = self.replicas.replica_set_at(index_placement(bucket.id, Shard(0)))?;
            let replies = self.send_fence(bucket, open, replica_set.term).await;
            if self.is_fenced(bucket, &replies, replica_set.term)? {
                let index = replica_set.cluster.index();
                let is_overtaken = index.is_overtaken(self.replicas.topology.term());
                return Ok(!is_overtaken && replies.iter().all(|reply| reply.is_fenced));
            }
            let refusal = replies.iter().find_map(|reply| reply.outdated.as_ref());
            if Instant::now() >= deadline
                || !self.replicas.has_moved_on_after(&replica_set, refusal).await
            {
                let message = "too few replicas know of the bucket's change";
                return Err(Error::unavailable(message));
            }
        }
    }

    /// A fence carries no term. A read after it shows that the device had the fence while `term`
    /// was still current (rule P1).
    async fn send_fence(&self, bucket: &Bucket, open: bool, term: Term) -> Vec<FenceReply> {
        let fence = BucketFence { bucket: bucket.id, generation: bucket.generation, open };
        let key = Arc::new(RegisterKey::object(bucket.id, bucket.index_shards, "any"));
        let replies = self.call_all(move |device, node| {
            let key = key.clone();
            async move {
                node.fence(device, fence).await?;
                Ok(node.read(device, &key, Want::Entry, term).await.map(drop))
            }
        });
        let replies = replies.await.into_iter().map(|(device, reply)| {
            let (is_fenced, counts) = (reply.is_ok(), matches!(reply, Ok(Ok(()))));
            let outdated = reply.ok().and_then(Result::err).filter(|e| e.newer_term().is_some());
            if let Some(error) = &outdated {
                self.replicas.topology.learn(error);
            }
            FenceReply { device, is_fenced, counts, outdated }
        });
        replies.collect()
    }

    fn is_fenced(&self, bucket: &Bucket, replies: &[FenceReply], term: Term) -> Result<bool> {
        let cluster = self.replicas.topology.cluster();
        let counting = replies.iter().filter(|reply| reply.counts).map(|reply| reply.device);
        for shard in (0..bucket.index_shards).map(Shard) {
            let replica_set =
                ReplicaSet::of(cluster.clone(), term, index_placement(bucket.id, shard))?;
            if !replica_set.has_quorum(&counting) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The highest fence of a bucket on any device. Of one generation a closed one is higher.
    ///
    /// # Errors
    /// If a device doesn't reply.
    pub(super) async fn highest(&self, bucket: BucketId) -> Result<Option<BucketFence>> {
        let replies = self
            .call_all(move |device, node| async move { node.fences_of(device, &[bucket]).await });
        let mut highest = None;
        for (_, reply) in replies.await {
            highest = reply?.into_iter().chain(highest).max_by_key(|it| (it.generation, !it.open));
        }
        Ok(highest)
    }

    /// Returns true if the deletion of a bucket has ended, as one of a few devices of the index knows.
    /// A bucket without a register that was not deleted has lost its register.
    ///
    /// # Errors
    /// If no device replies.
    pub(crate) async fn is_deleted(&self, bucket: BucketId) -> Result<bool> {
        let cluster = self.replicas.topology.cluster();
        let devices: Vec<DeviceId> = cluster.index().devices().iter().map(|it| it.id).collect();
        let (mut replied, mut failed) = (0, None);
        for some in devices.chunks(DELETION_REPLIES) {
            let replies = self.call_some(some, move |device, node| async move {
                node.fences_of(device, &[bucket]).await
            });
            for (_, reply) in replies.await {
                match reply {
                    Ok(fences) if fences.contains(&BucketFence::of_deleted(bucket)) => {
                        return Ok(true);
                    }
                    Ok(_) => replied += 1,
                    Err(error) => failed = Some(error),
                }
            }
            if replied >= DELETION_REPLIES {
                return Ok(false);
            }
        }
        match failed {
            Some(error) if replied == 0 => Err(error),
            _ => Ok(false),
        }
    }

    /// Some registers of a bucket on each device: the first ones, and the first one at shard `from` or
    /// above.
    ///
    /// # Errors
    /// If a device doesn't reply.
    pub(super) async fn some_registers(
        &self,
        bucket: BucketId,
        from: u16,
    ) -> Result<Vec<RegisterKey>> {
        let cluster = self.replicas.topology.cluster();
        let devices: Vec<DeviceId> = cluster.index().devices().iter().map(|it| it.id).collect();
        let mut found = Vec::new();
        for (shard, limit) in [(0, REGISTERS_SEEN), (from, 1)] {
            let kind = RegisterKind::Object;
            let before =
                Arc::new(RegisterKey { bucket, shard: Shard(shard), kind, name: Bytes::new() });
            for some in devices.chunks(DEVICES_AT_ONCE) {
                let before = before.clone();
                let replies = self.call_some(some, move |device, node| {
                    let before = before.clone();
                    async move { node.registers(device, Some(&before), limit).await }
                });
                for (_, reply) in replies.await {
                    let keys = reply?.into_iter().map(|(key, _)| key);
                    found.extend(keys.filter(|key| key.bucket == bucket));
                }
            }
        }
        Ok(found)
    }

    /// Refuses unless every device replies that it keeps no hints for the bucket.
    pub(crate) async fn check_no_hints(&self, bucket: &Bucket) -> Result<()> {
        for kind in RegisterKind::IN_BUCKETS {
            self.check_nothing_kept(Paths::all(bucket, kind)).await?;
        }
        Ok(())
    }

    /// Refuses unless every device replies that it keeps no hints for these registers.
    pub(crate) async fn check_nothing_kept(&self, paths: Paths) -> Result<()> {
        let cluster = self.replicas.topology.cluster();
        let devices: Vec<DeviceId> = cluster.index().devices().iter().map(|it| it.id).collect();
        self.check_nothing_kept_on(paths, &devices).await
    }

    /// Refuses unless no device keeps hints for these registers. Asks each node how many hints its devices
    /// keep, or relies on replies to requests of less than `age` ago, and asks devices with hints about the
    /// registers.
    pub(crate) async fn check_not_hinted(&self, paths: Paths, age: Duration) -> Result<()> {
        match &*self.keepers(age).await {
            Ok(devices) => self.check_nothing_kept_on(paths, devices).await,
            Err(device) => Err(silence_of(*device)),
        }
    }

    /// Refuses unless each device of the index serves, as of less than `age` ago: otherwise every check for hints fails.
    pub(crate) async fn check_hints_known(&self, age: Duration) -> Result<()> {
        match &*self.keepers(age).await {
            Ok(_) => Ok(()),
            Err(device) => Err(silence_of(*device)),
        }
    }

    /// Devices that keep hints, as of less than `age` ago.
    async fn keepers(&self, age: Duration) -> Arc<Keepers> {
        let keepers = if age.is_zero() { &self.fresh } else { &self.recent };
        keepers.within(age, self.ask_nodes()).await
    }

    /// Refuses unless these devices reply that they keep no hints for these registers.
    pub(crate) async fn check_nothing_kept_on(
        &self,
        paths: Paths,
        devices: &[DeviceId],
    ) -> Result<()> {
        let replica_set = self.replicas.replica_set_at(index_placement(paths.bucket, Shard(0)))?;
        let request = Arc::new(ListRequest {
            bucket: paths.bucket,
            shards: paths.shards,
            kind: paths.kind,
            prefix: paths.prefix,
            start: ListStart::First,
            limit: 1,
            fold: None,
            term: replica_set.term,
        });
        let kept = self.call_some(devices, move |device, node| {
            let request = request.clone();
            async move { node.list_hints(device, &request).await }
        });
        for (device, reply) in kept.await {
            if !reply?.entries.is_empty() {
                let message = format!("{device} holds hints of these registers for other devices");
                return Err(Error::unavailable(message));
            }
        }
        Ok(())
    }

    /// Devices of the index that keep hints: one call for each node.
    ///
    /// # Errors
    /// If a device of the index doesn't serve.
    pub(crate) async fn devices_with_hints(&self) -> Result<Vec<DeviceId>> {
        self.ask_nodes().await.map_err(silence_of)
    }

    /// Asks each node how many hints its devices keep. A device that doesn't serve counts as silent.
    async fn ask_nodes(&self) -> Keepers {
        let cluster = self.replicas.topology.cluster();
        let most = self.replicas.call_time();
        let calls = cluster.nodes().into_iter().map(|node| timeout(most, node.devices()));
        let statuses = join_all(calls).await.into_iter().flatten().flatten().flatten();
        let serves = |status: &DeviceStatus| {
            matches!(status.health, DeviceHealth::Ready | DeviceHealth::Full)
        };
        let hints: HashMap<DeviceId, u64> =
            statuses.filter(serves).map(|status| (status.device, status.hints)).collect();
        let mut with_hints = Vec::new();
        for device in cluster.index().devices() {
            let hints = hints.get(&device.id).ok_or(device.id)?;
            with_hints.extend((*hints > 0).then_some(device.id));
        }
        Ok(with_hints)
    }

    /// Deletes all registers of a deleted bucket; their extents become garbage of the nodes. Every
    /// device stays fenced meanwhile, since an earlier write may still be under way. Unreachable
    /// devices keep their registers, which are fenced too.
    pub(super) async fn purge(&self, bucket: &Bucket) {
        let id = bucket.id;
        let purged = self
            .call_all(move |device, node| async move { node.purge_bucket(device, id).await })
            .await;
        for (device, reply) in purged {
            if let Err(error) = reply {
                tracing::warn!(bucket = %id, %device, %error, "could not delete registers of a \
                                                               deleted bucket");
            }
        }
    }
}
