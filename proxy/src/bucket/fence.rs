//! What all devices of the index have to be told, or asked, about a bucket (rule M2).

use std::sync::Arc;

use futures::future::join_all;
use martlet_protocol::backend::{BucketFence, ListRequest, ListStart};
use martlet_protocol::entry::Bucket;
use martlet_protocol::key::index_placement;
use martlet_protocol::{Backend, DeviceId, Error, Level, RegisterKind, Result, Shard};

use crate::index::Place;
use crate::store::Inner;
use crate::walk::{Paths, Walk};

impl Inner {
    /// Calls every device of the index at once.
    async fn call_all<T, F>(
        &self,
        call: impl Fn(DeviceId, Arc<dyn Backend>) -> F + Clone + Send + 'static,
    ) -> Vec<(DeviceId, Result<T>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let cluster = self.cluster();
        let place = Place::of(cluster.clone(), 0);
        let calls = cluster.index().devices().iter().map(|device| {
            let (device, call) = (device.id, call.clone());
            let reply = place.call(device, self.call_time(), move |node| call(device, node));
            async move { (device, reply.await) }
        });
        join_all(calls).await
    }

    /// Tells every device of the index which generation of a bucket it takes. Complete once a
    /// quorum of the primaries of every shard hold it; whether all devices do.
    pub(super) async fn fence(&self, bucket: &Bucket, open: bool) -> Result<bool> {
        let fence = BucketFence { bucket: bucket.id, generation: bucket.generation, open };
        let told =
            self.call_all(move |device, node| async move { node.fence(device, fence).await }).await;
        let holds =
            |device: &DeviceId| told.iter().any(|(told, reply)| told == device && reply.is_ok());
        let cluster = self.cluster();
        for shard in (0..bucket.index_shards).map(Shard) {
            let place = Place::of(cluster.clone(), index_placement(bucket.id, shard));
            let holders = place.primaries.iter().filter(|device| holds(device)).count();
            if holders < place.needed() {
                let message = "too few replicas know of the bucket's change";
                return Err(Error::unavailable(message));
            }
        }
        Ok(told.iter().all(|(_, reply)| reply.is_ok()))
    }

    /// Refuses unless every device says that it keeps nothing of a bucket for others.
    pub(super) async fn check_no_hints(&self, bucket: &Bucket) -> Result<()> {
        for kind in [RegisterKind::Object, RegisterKind::Upload, RegisterKind::Part] {
            self.check_nothing_kept(Paths::all(bucket, kind)).await?;
        }
        Ok(())
    }

    /// Refuses unless every device says that it keeps none of these registers for others.
    pub(crate) async fn check_nothing_kept(&self, paths: Paths) -> Result<()> {
        let request = Arc::new(ListRequest {
            bucket: paths.bucket,
            shards: paths.shards,
            kind: paths.kind,
            prefix: paths.prefix,
            start: ListStart::First,
            limit: 1,
            fold: None,
        });
        let kept = self.call_all(move |device, node| {
            let request = request.clone();
            async move { node.list_hints(device, &request).await }
        });
        for (device, reply) in kept.await {
            if !reply?.entries.is_empty() {
                let message = format!("{device} keeps writes of these for other devices");
                return Err(Error::unavailable(message));
            }
        }
        Ok(())
    }

    /// Whether a bucket holds no object, by a quorum of every shard.
    pub(super) async fn is_empty(&self, bucket: &Bucket) -> Result<bool> {
        let paths = Paths::all(bucket, RegisterKind::Object);
        let mut walk = Walk::new(self, &paths, ListStart::First, 100, Level::Strict);
        while let Some((_, entry)) = walk.next().await? {
            if !entry.value.is_tombstone() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes all registers of a bucket that is gone; their extents become the nodes' garbage. The
    /// fence stands again at once: a write that began before may still be on its way. Whoever is
    /// out keeps what it has, closed to everyone.
    pub(super) async fn purge(&self, bucket: &Bucket) {
        let id = bucket.id;
        let purged = self
            .call_all(move |device, node| async move { node.purge_bucket(device, id).await })
            .await;
        for (device, reply) in purged {
            if let Err(error) = reply {
                tracing::warn!(bucket = %id, %device, %error, "registers are left behind");
            }
        }
        if let Err(error) = self.fence(bucket, false).await {
            tracing::warn!(bucket = %id, %error, "a deleted bucket is not fenced everywhere");
        }
    }
}
