//! Stream of one extent's bytes, from any device that has them.
//!
//! Invariants:
//! * A stream returns the requested range, each byte once and in order, or ends in an error.
//! * A device whose stream broke, stalled or was corrupt is not queried again in this read.
//!   Exception: it was merely unreachable, and another device has sent bytes since.
//! * Dropping a stream ends all of its requests.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, ErrorKind, PolicyId, Result};
use tokio::time::Instant;

use super::client::ExtentClient;
use super::fragment_reader::{FragmentReader, IDLE_MAX};
use super::replica_selection::ReplicaSelection;

/// Longest pause of a stream if no other device has the extent.
const IDLE_ALONE_MAX: Duration = Duration::from_mins(1);
/// Pause of a reader after which a broken stream isn't blamed on the node.
pub(crate) const READER_IDLE_MAX: Duration = Duration::from_secs(3);

type Opening = BoxFuture<'static, Result<(DeviceId, FragmentReader)>>;

enum ExtentSource {
    Open(DeviceId, FragmentReader),
    Opening(Opening),
    Ended,
}

/// Stream of one extent's bytes.
pub(crate) struct ExtentStream {
    client: Arc<ExtentClient>,
    policy: PolicyId,
    extent: ExtentRef,
    /// Range not returned yet.
    range: Range<u64>,
    source: ExtentSource,
    /// Devices that failed this read; true if permanently.
    barred: Vec<(DeviceId, bool)>,
    /// True if the current device has sent bytes.
    progressed: bool,
    /// True if the policy keeps a single copy.
    alone: bool,
    returned_at: Instant,
}

impl ExtentStream {
    /// Opens a non-empty `range` of an extent. Its first bytes have arrived when this returns.
    pub(crate) async fn open(
        client: &Arc<ExtentClient>,
        policy: PolicyId,
        extent: ExtentRef,
        range: Range<u64>,
    ) -> Result<Self> {
        let selection = ReplicaSelection { policy, extent, barred: &[], failure: None };
        let (device, reader) = open(client, selection, range.clone()).await?;
        Ok(Self {
            client: client.clone(),
            policy,
            extent,
            range,
            source: ExtentSource::Open(device, reader),
            barred: Vec::new(),
            progressed: false,
            alone: client.cluster().data(policy)?.replicas() == 1,
            returned_at: Instant::now(),
        })
    }

    /// Bytes not returned yet.
    pub(crate) fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Reopens the rest of the range on another device.
    fn resume(&mut self, device: DeviceId, was_awaited: bool, error: Error) {
        let is_corrupt = error.kind() == ErrorKind::Corrupt;
        let reader_was_away = self.returned_at.elapsed() > READER_IDLE_MAX && !was_awaited;
        if std::mem::take(&mut self.progressed) {
            self.barred.retain(|(_, for_good)| *for_good);
        }
        if is_corrupt || !reader_was_away {
            self.barred.push((device, is_corrupt));
        }
        if !is_corrupt && !reader_was_away {
            self.client.health.failed(device);
        }
        tracing::debug!(extent = %self.extent.id, %device, %error, "continuing a read on another \
                                                                    device");
        let (client, policy, extent) = (self.client.clone(), self.policy, self.extent);
        let (barred, range) = (self.barred.clone(), self.range.clone());
        self.source = ExtentSource::Opening(Box::pin(async move {
            let barred: Vec<_> = barred.into_iter().map(|(device, _)| device).collect();
            let selection =
                ReplicaSelection { policy, extent, barred: &barred, failure: Some(error) };
            open(&client, selection, range).await
        }));
    }
}

/// Opens an extent on the first device that sends bytes.
async fn open(
    client: &ExtentClient,
    selection: ReplicaSelection<'_>,
    range: Range<u64>,
) -> Result<(DeviceId, FragmentReader)> {
    let id = selection.extent.id;
    let open = move |device, node| FragmentReader::open(node, device, id, range.clone()).boxed();
    client.seek(selection, open).await
}

impl Stream for ExtentStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let idle_max = if self.alone { IDLE_ALONE_MAX } else { IDLE_MAX };
        loop {
            let left = self.left();
            let (device, reader) = match &mut self.source {
                ExtentSource::Ended => return Poll::Ready(None),
                ExtentSource::Opening(opening) => {
                    match ready!(opening.poll_unpin(context)) {
                        Ok((device, reader)) => self.source = ExtentSource::Open(device, reader),
                        Err(error) => {
                            self.source = ExtentSource::Ended;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                    continue;
                }
                ExtentSource::Open(device, reader) => (*device, reader),
            };
            match ready!(reader.poll_bytes(left, idle_max, context)) {
                Some(Ok(bytes)) => {
                    self.range.start += bytes.len() as u64;
                    self.progressed = true;
                    self.returned_at = Instant::now();
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Err(error)) if left > 0 => {
                    let was_awaited = reader.is_awaited();
                    self.resume(device, was_awaited, error);
                }
                end => {
                    self.source = ExtentSource::Ended;
                    return Poll::Ready(end);
                }
            }
        }
    }
}
