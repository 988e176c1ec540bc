//! Census of an extent's fragments: presence requests to all devices, homes first, when too few are
//! at home.
//!
//! A few requests run at a time. A late device loses its turn, but its reply still counts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use martlet_erasure::FragmentIndex;
use martlet_protocol::backend::Presence;
use martlet_protocol::{BackendExt, DeviceId, Error, Result};
use tokio::time::{Instant, timeout};

use super::stripe::Stripe;
use crate::extents::homes;

/// Concurrent requests.
const AT_ONCE: usize = 6;
/// Time for which a device keeps its turn.
const TURN: Duration = Duration::from_millis(250);
/// Timeout of a device's reply.
const REPLY_TIME: Duration = Duration::from_secs(5);

/// A running census of one extent.
pub(super) struct Census {
    stripe: Arc<Stripe>,
    fragments: Vec<FragmentIndex>,
    queue: VecDeque<DeviceId>,
    pending: Vec<(DeviceId, Instant)>,
    replies: FuturesUnordered<BoxFuture<'static, (DeviceId, Result<Vec<Presence>>)>>,
    silent: usize,
}

impl Census {
    pub(super) fn begin(stripe: &Arc<Stripe>) -> Result<Self> {
        let fragments: Vec<_> = stripe.geometry.stored().iter().collect();
        let ring = stripe.ring()?;
        let mut queue = VecDeque::new();
        let likely = fragments.iter().flat_map(|fragment| homes(ring, stripe.id_of(*fragment)));
        let partition = ring.partition(stripe.id().placement());
        let everybody = likely.chain(ring.primaries(partition)).chain(ring.handoffs(partition));
        for device in everybody {
            if !queue.contains(&device) {
                queue.push_back(device);
            }
        }
        stripe.begin_census();
        let (stripe, replies) = (stripe.clone(), FuturesUnordered::new());
        Ok(Self { stripe, fragments, queue, pending: Vec::new(), replies, silent: 0 })
    }

    /// Sends requests until `enough` returns true. Returns false once all devices have replied or
    /// failed.
    pub(super) async fn go_on(&mut self, enough: impl Fn() -> bool) -> bool {
        while !enough() {
            while self.in_turn() < AT_ONCE && self.request_next() {}
            if self.replies.is_empty() {
                return false;
            }
            if let Ok(Some((device, reply))) = timeout(TURN, self.replies.next()).await {
                self.note(device, reply);
            }
        }
        true
    }

    /// Number of devices that failed to reply.
    pub(super) fn silent(&self) -> usize {
        self.silent
    }

    fn in_turn(&self) -> usize {
        self.pending.iter().filter(|(_, since)| since.elapsed() < TURN).count()
    }

    fn request_next(&mut self) -> bool {
        let Some(device) = self.queue.pop_front() else { return false };
        let Ok(node) = self.stripe.node(device) else {
            self.silent += 1;
            return true;
        };
        let ids: Vec<_> = self.fragments.iter().map(|index| self.stripe.id_of(*index)).collect();
        self.pending.push((device, Instant::now()));
        let reply = async move {
            let reply = timeout(REPLY_TIME, node.presence(device, &ids)).await;
            let silent = |_| Err(Error::unavailable(format!("device {device} doesn't answer")));
            (device, reply.unwrap_or_else(silent))
        };
        self.replies.push(reply.boxed());
        true
    }

    fn note(&mut self, device: DeviceId, reply: Result<Vec<Presence>>) {
        self.pending.retain(|(other, _)| *other != device);
        match reply {
            Ok(presences) => {
                self.stripe.health().answered(device);
                let here = self.fragments.iter().zip(presences);
                let here = here.filter(|(_, presence)| *presence == Presence::Here);
                self.stripe.find(device, here.map(|(fragment, _)| *fragment));
            }
            Err(error) => {
                tracing::debug!(%device, %error, "could not list a device's fragments");
                self.stripe.health().failed(device);
                self.silent += 1;
            }
        }
    }
}
