//! The way of a call over the network. A dead caller neither sends nor receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use martlet_protocol::{Backend, ByteStream, Error, Result};
use tokio::time::sleep;

use crate::membership::SimulatedMember;
use crate::network::{Caller, SimulatedNetwork};
use crate::node::SimulatedNode;
use crate::planted::Bug;
use crate::shown::TraceText;

/// Maximum number of bytes of an extent in one chunk.
const PIECE_BYTES: usize = 4096;
/// Milliseconds that a hanging stream waits if calls have no timeout.
const HANGS_MS: u64 = 10_000;

/// A node as one caller reaches it.
pub(crate) struct Link {
    pub(crate) network: SimulatedNetwork,
    pub(crate) caller: Caller,
    /// The caller's rings and known term.
    pub(crate) member: Arc<SimulatedMember>,
    /// False once the caller has died; its calls are never sent.
    pub(crate) alive: Arc<AtomicBool>,
    pub(crate) number: usize,
    pub(crate) node: Arc<SimulatedNode>,
    /// All nodes: another one answers if a planted bug requires it.
    pub(crate) others: Arc<[Arc<SimulatedNode>]>,
}

impl Link {
    pub(super) async fn carry<T, F>(
        &self,
        what: String,
        effect: impl Fn(Arc<dyn Backend>) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: TraceText + Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.living().await;
        let (caller, node) = ((self.caller, &self.member), (self.number, &self.node));
        let reply = self.network.carry(caller, node, what, effect).await;
        self.living().await;
        reply
    }

    /// Never returns if the caller has died.
    pub(super) async fn living(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if this bug is planted.
    pub(super) fn has(&self, bug: Bug) -> bool {
        self.network.bug == bug
    }

    /// Streams bytes in delayed chunks. Some streams break off, some hang.
    pub(super) fn stream(&self, bytes: Bytes) -> ByteStream {
        let chance = self.network.chance_of(self.caller, self.number);
        let broken = self.network.breaks(&chance).then(|| chance.index(bytes.len()));
        let hangs = chance.per_mille(500);
        let patience_ms = self.network.patience_ms.unwrap_or(HANGS_MS);
        let chance = chance.fork();
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

/// Collects all bytes of a stream.
pub(super) async fn whole(mut stream: ByteStream) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes.freeze())
}
