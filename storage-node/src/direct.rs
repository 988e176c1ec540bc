//! The direct socket: processes on the machine receive descriptors of extents, and read in place.
//!
//! ```text
//! client ── token ──▶ DirectListener ──▶ Connection ──▶ StorageNode::lend ──▶ ExtentStore
//!        ◀── lease, CRC32Cs, two descriptors ──┘               FileLease keeps the bytes
//! ```
//!
//! * [`listener`]: the socket, its file, and packets with descriptors.
//! * [`packet`]: layout of the packets, drawn in `docs/WIRE.md`.
//! * [`connection`]: one client, and its leases; [`lease_book`]: deadlines of these leases.
//! * [`quota`]: bounds on connections and leased bytes; [`figures`]: counters.
//! * [`options`]: options; [`state`]: state that all connections share.
//!
//! Invariants:
//! * A client receives descriptors only for a token that covers the whole extent, and only if its
//!   user is allowed. The kernel names the user.
//! * A lease ends with its connection, and after an hour at most.
//! * After the notice of a revocation, the bytes stay for [`DirectTimes::notice`].
//! * Connections, leases, leased bytes and each wait for a client are bounded.

mod connection;
mod figures;
mod lease_book;
mod listener;
mod options;
mod packet;
mod quota;
mod state;

use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::connection::Connection;
use self::figures::DirectCounters;
pub use self::figures::{DirectFigures, REFUSALS, REVOCATIONS};
pub use self::listener::DirectListener;
use self::listener::Peer;
pub use self::options::{DIRECT_BYTES_DEFAULT, DirectOptions, DirectTimes};
use self::packet::RefusalCode;
use self::quota::{Quota, QuotaLimits};
use self::state::DirectState;
use crate::node::StorageNode;

/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of connections of one user.
const CONNECTIONS_PER_UID_MAX: usize = 64;

/// Server of a direct socket.
pub struct DirectServer {
    listener: DirectListener,
    state: Arc<DirectState>,
}

impl DirectServer {
    /// Makes the server of a socket. The node must lend its extents.
    pub fn new(listener: DirectListener, node: Arc<StorageNode>, options: DirectOptions) -> Self {
        let DirectOptions { uids, bytes_max, key, clock, times } = options;
        let uids = if uids.is_empty() { vec![geteuid().as_raw()] } else { uids };
        let quota = Quota::new(QuotaLimits {
            connections: CONNECTIONS_MAX,
            connections_per_uid: CONNECTIONS_PER_UID_MAX,
            bytes: bytes_max,
            bytes_per_uid: bytes_max / 2,
        });
        let counters = DirectCounters::default();
        let state = Arc::new(DirectState { node, uids, key, clock, times, quota, counters });
        Self { listener, state }
    }

    /// Returns a source of the counters.
    pub fn figures(&self) -> impl Fn() -> DirectFigures + Send + Sync + 'static + use<> {
        let state = self.state.clone();
        move || state.counters.snapshot(state.quota.held())
    }

    /// Serves clients until `stop` is true. Then ends all connections, with their leases, and
    /// removes the socket.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        tracing::info!(path = %self.listener.path().display(), "serving the direct socket");
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stopped(&mut stop) => return connections.shutdown().await,
            };
            match accepted {
                Ok(peer) => self.admit(peer, &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection on the direct socket");
                    // Without descriptors, each attempt would fail at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Starts the connection of an allowed client; refuses all others.
    fn admit(&self, peer: Peer, connections: &mut JoinSet<()>) {
        let state = &self.state;
        let uid = peer.uid();
        if !state.uids.contains(&uid) {
            let sentence =
                format!("user {uid} may not use this socket: the setting direct_uids names users");
            return state.turn_away(peer, RefusalCode::User, &sentence);
        }
        let Some(permit) = state.quota.connect(uid) else {
            let sentence = format!(
                "too many connections: at most {CONNECTIONS_MAX}, and {CONNECTIONS_PER_UID_MAX} of \
                 a user; close some, or try again later"
            );
            return state.turn_away(peer, RefusalCode::Busy, &sentence);
        };
        let state = self.state.clone();
        connections.spawn(async move {
            let uid = peer.uid();
            if let Err(error) = Connection::new(state, peer).run().await {
                tracing::debug!(uid, %error, "closed a connection of the direct socket");
            }
            drop(permit);
        });
    }
}

/// Waits until the server must stop. A sender that is gone stops it too.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

impl std::fmt::Debug for DirectServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirectServer").field(&self.listener).finish()
    }
}
