//! What a caller has in its hands for a node: a [`Backend`] whose every call crosses the network.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use martlet_protocol::backend::{
    BucketFence, DeviceStatus, EntryWrite, ExtentStat, Garbage, GarbageId, Hint, ListReply,
    ListRequest, NewExtent, PromiseReply, RegisterView, Want, WriteReply,
};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{
    Backend, BucketId, ByteStream, DeviceId, Error, ExtentId, RegisterKey, Result, Stamp,
};
use tokio::time::sleep;

use super::network::{Caller, Network};
use super::node::{Node, Standing};
use super::planted::Bug;
use super::shown::{self, Shown};

/// Bytes of an extent that arrive at a time.
const PIECE_BYTES: usize = 4096;
/// How long a stream that hangs is waited for when calls are waited for without end.
const HANGS_MS: u64 = 10_000;

/// A node as one caller reaches it.
pub(crate) struct Link {
    pub(crate) network: Network,
    pub(crate) caller: Caller,
    /// Whether the caller still lives; the calls of a dead one go nowhere.
    pub(crate) alive: Arc<AtomicBool>,
    pub(crate) number: usize,
    pub(crate) node: Arc<Node>,
    /// Who answers reads instead, when that is the bug.
    pub(crate) first: Arc<Node>,
}

impl Link {
    async fn carry<T, F>(
        &self,
        what: String,
        effect: impl Fn(Arc<dyn Backend>) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Shown + Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.living().await;
        let reply = self.network.carry((self.caller, self.number, &self.node), what, effect).await;
        self.living().await;
        reply
    }

    /// Goes on if the caller lives.
    async fn living(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Whether this call meets the bug that was planted.
    fn has(&self, bug: Bug) -> bool {
        self.network.bug == bug
    }
}

#[async_trait]
impl Backend for Link {
    async fn read(&self, device: DeviceId, key: &RegisterKey, want: Want) -> Result<RegisterView> {
        let what = format!("read {}", shown::key(key));
        let key = key.clone();
        let instead = self.has(Bug::ReadsOneReplica).then(|| self.first.clone());
        self.carry(what, move |node| {
            let (key, instead) = (key.clone(), instead.clone());
            async move {
                match instead {
                    Some(first) => first.backend().read(first.device, &key, want).await,
                    None => node.read(device, &key, want).await,
                }
            }
        })
        .await
    }

    async fn write(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let what = format!("write {}", shown::write(&write));
        let forgets = self.has(Bug::ForgetsDeletes) && write.entry.value.is_tombstone();
        let reply = self.carry(what, move |node| {
            let write = write.clone();
            async move {
                if forgets {
                    // As if there had never been anything, nor a delete.
                    return Ok(WriteReply::Stored);
                }
                node.write(device, write).await
            }
        });
        match reply.await {
            Err(_) if self.has(Bug::AcknowledgesAlone) => Ok(WriteReply::Stored),
            reply => reply,
        }
    }

    async fn promise(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        ballot: Stamp,
    ) -> Result<PromiseReply> {
        let what = format!("promise {} {}", shown::key(key), shown::order(ballot));
        let key = key.clone();
        let forgets = self.has(Bug::ForgetsPromises);
        self.carry(what, move |node| {
            let key = key.clone();
            async move {
                if forgets {
                    let view = node.read(device, &key, Want::EntryAndInline).await?;
                    return Ok(PromiseReply::Promised(view));
                }
                node.promise(device, &key, ballot).await
            }
        })
        .await
    }

    async fn list(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        let what = format!("list {:?} {:?}", request.kind, request.start);
        let request = request.clone();
        let instead = self.has(Bug::ListsOneReplica).then(|| self.first.clone());
        self.carry(what, move |node| {
            let (request, instead) = (request.clone(), instead.clone());
            async move {
                match instead {
                    Some(first) => first.backend().list(first.device, &request).await,
                    None => node.list(device, &request).await,
                }
            }
        })
        .await
    }

    async fn fence(&self, device: DeviceId, fence: BucketFence) -> Result<()> {
        let what = format!("fence {} open {}", fence.generation, fence.open);
        self.carry(what, move |node| async move { node.fence(device, fence).await }).await
    }

    async fn purge_bucket(&self, device: DeviceId, bucket: BucketId) -> Result<()> {
        let effect =
            move |node: Arc<dyn Backend>| async move { node.purge_bucket(device, bucket).await };
        self.carry(format!("purge {bucket}"), effect).await
    }

    /// The body is taken in here: dropped in the middle, nothing of it arrives.
    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        mut body: ByteStream,
    ) -> Result<ExtentRef> {
        self.living().await;
        let mut bytes = BytesMut::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece?);
        }
        let bytes = bytes.freeze();
        let what = format!("write extent {} of {} bytes", extent.id, bytes.len());
        self.carry(what, move |node| {
            let (extent, bytes) = (extent.clone(), bytes.clone());
            let body = stream::once(std::future::ready(Ok(bytes))).boxed();
            async move { node.write_extent(device, extent, body).await }
        })
        .await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let what = format!("read extent {id} {range:?}");
        let bytes = self.carry(what, move |node| {
            let range = range.clone();
            async move { whole(node.read_extent(device, id, range).await?).await }
        });
        Ok(self.stream(bytes.await?))
    }

    async fn stat_extent(&self, device: DeviceId, id: ExtentId) -> Result<ExtentStat> {
        let effect =
            move |node: Arc<dyn Backend>| async move { node.stat_extent(device, id).await };
        self.carry(format!("stat extent {id}"), effect).await
    }

    async fn delete_extents(&self, device: DeviceId, ids: &[ExtentId]) -> Result<()> {
        let what = format!("delete extents {ids:?}");
        let ids = ids.to_vec();
        self.carry(what, move |node| {
            let ids = ids.clone();
            async move { node.delete_extents(device, &ids).await }
        })
        .await
    }

    async fn list_extents(
        &self,
        device: DeviceId,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<ExtentRecord>> {
        self.carry("list extents".into(), move |node| async move {
            node.list_extents(device, after, limit).await
        })
        .await
    }

    async fn garbage(
        &self,
        device: DeviceId,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<Garbage>> {
        self.carry("garbage".into(), move |node| async move {
            node.garbage(device, before_ms, limit).await
        })
        .await
    }

    async fn forget_garbage(&self, device: DeviceId, garbage: &[GarbageId]) -> Result<()> {
        let garbage = garbage.to_vec();
        self.carry("forget garbage".into(), move |node| {
            let garbage = garbage.clone();
            async move { node.forget_garbage(device, &garbage).await }
        })
        .await
    }

    async fn keep_hint(&self, device: DeviceId, write: EntryWrite) -> Result<WriteReply> {
        let what = format!("keep hint {}", shown::write(&write));
        self.carry(what, move |node| {
            let write = write.clone();
            async move { node.keep_hint(device, write).await }
        })
        .await
    }

    async fn read_hint(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        want: Want,
    ) -> Result<RegisterView> {
        let what = format!("read hint {}", shown::key(key));
        let key = key.clone();
        self.carry(what, move |node| {
            let key = key.clone();
            async move { node.read_hint(device, &key, want).await }
        })
        .await
    }

    async fn list_hints(&self, device: DeviceId, request: &ListRequest) -> Result<ListReply> {
        let request = request.clone();
        self.carry("list hints".into(), move |node| {
            let request = request.clone();
            async move { node.list_hints(device, &request).await }
        })
        .await
    }

    async fn hints(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<Hint>> {
        let after = after.cloned();
        self.carry("hints".into(), move |node| {
            let after = after.clone();
            async move { node.hints(device, after.as_ref(), limit).await }
        })
        .await
    }

    async fn forget_hint(&self, device: DeviceId, key: &RegisterKey, order: Stamp) -> Result<()> {
        let what = format!("forget hint {} {}", shown::key(key), shown::order(order));
        let key = key.clone();
        self.carry(what, move |node| {
            let key = key.clone();
            async move { node.forget_hint(device, &key, order).await }
        })
        .await
    }

    async fn registers(
        &self,
        device: DeviceId,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let after = after.cloned();
        self.carry("registers".into(), move |node| {
            let after = after.clone();
            async move { node.registers(device, after.as_ref(), limit).await }
        })
        .await
    }

    async fn fences(&self, device: DeviceId) -> Result<Vec<BucketFence>> {
        self.carry("fences".into(), move |node| async move { node.fences(device).await }).await
    }

    async fn raise_floor(&self, device: DeviceId, floor: Stamp) -> Result<()> {
        let what = format!("raise floor {}", shown::order(floor));
        self.carry(what, move |node| async move { node.raise_floor(device, floor).await }).await
    }

    async fn set_voting(&self, device: DeviceId, voting: bool) -> Result<()> {
        let effect =
            move |node: Arc<dyn Backend>| async move { node.set_voting(device, voting).await };
        self.carry(format!("set voting {voting}"), effect).await
    }

    /// Workers ask all nodes at once, in an order that does not repeat: that stays out of the trace.
    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        if self.caller == Caller::Worker {
            return match self.node.standing() {
                Standing::Up => self.node.backend().devices().await,
                _ => Err(Error::unavailable("the connection is refused")),
            };
        }
        self.carry("devices".into(), move |node| async move { node.devices().await }).await
    }
}

impl Link {
    /// Bytes on their way, in pieces that take their time; some streams break off, some hang.
    fn stream(&self, bytes: Bytes) -> ByteStream {
        let broken = self.network.breaks().then(|| self.network.chance.index(bytes.len()));
        let hangs = self.network.chance.per_mille(500);
        let patience_ms = self.network.patience_ms.unwrap_or(HANGS_MS);
        let chance = self.network.chance.fork();
        let pieces = stream::unfold(Some((0, bytes)), move |state| {
            let chance = chance.clone();
            async move {
                let (at, mut rest) = state.filter(|(_, rest)| !rest.is_empty())?;
                sleep(Duration::from_millis(chance.below(3))).await;
                if broken.is_some_and(|broken| at + PIECE_BYTES > broken) {
                    sleep(Duration::from_millis(if hangs { patience_ms } else { 0 })).await;
                    return Some((Err(Error::unavailable("the bytes stopped coming")), None));
                }
                let piece = rest.split_to(PIECE_BYTES.min(rest.len()));
                Some((Ok(piece), Some((at + PIECE_BYTES, rest))))
            }
        });
        pieces.boxed()
    }
}

async fn whole(mut stream: ByteStream) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes.freeze())
}
