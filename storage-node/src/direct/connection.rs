//! One client of the direct socket: its requests in turn, and the notices of its leases.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::extent_token::{ExtentGrant, GrantedRead, TokenRefusal};
use martlet_protocol::{Error, ErrorKind, ExtentId};
use tokio::time::{sleep, timeout};

use super::lease_book::{LeaseBook, LeaseEvent};
use super::listener::Peer;
use super::packet::{Grant, RefusalCode, Reply, Request, RevocationCode};
use super::quota::Share;
use super::state::DirectState;
use crate::extents::{LendError, LentExtent};

/// Maximum number of leases of a connection.
const LEASES_MAX: usize = 64;

/// A client and its leases. Dropping it ends them.
pub(super) struct Connection {
    state: Arc<DirectState>,
    peer: Peer,
    leases: LeaseBook,
}

/// Next thing to do on a connection.
enum ConnectionEvent {
    Packet(Option<Vec<u8>>),
    Lease(LeaseEvent),
    Idle,
}

/// Reason for refusing a request, with a sentence for the client.
struct RefusedRequest {
    code: RefusalCode,
    sentence: String,
}

impl Connection {
    pub(super) fn new(state: Arc<DirectState>, peer: Peer) -> Self {
        Self { state, peer, leases: LeaseBook::default() }
    }

    /// Serves the client until it closes the connection, sends a malformed packet, or is silent for
    /// too long.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut patience = self.state.times.first_packet;
        loop {
            match self.next(patience).await? {
                ConnectionEvent::Packet(Some(packet)) => {
                    patience = self.state.times.idle;
                    let Some(request) = Request::decode(&packet) else {
                        self.refuse_malformed(&packet).await?;
                        self.peer.close();
                        return Ok(());
                    };
                    self.answer(request).await?;
                }
                ConnectionEvent::Packet(None) | ConnectionEvent::Idle => return Ok(()),
                ConnectionEvent::Lease(LeaseEvent::Notice(lease, code)) => {
                    self.notify(lease, code).await?;
                }
                ConnectionEvent::Lease(LeaseEvent::End(lease)) => {
                    self.leases.remove(lease);
                }
            }
        }
    }

    async fn next(&mut self, patience: Duration) -> io::Result<ConnectionEvent> {
        let is_idle = self.leases.len() == 0;
        tokio::select! {
            packet = self.peer.receive() => Ok(ConnectionEvent::Packet(packet?)),
            event = self.leases.next() => Ok(ConnectionEvent::Lease(event)),
            () = sleep(patience), if is_idle => Ok(ConnectionEvent::Idle),
        }
    }

    async fn answer(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Lease { request, extent, token } => match self.lend(extent, &token).await {
                Ok((lent, share)) => self.grant(request, lent, share).await,
                Err(refused) => self.refuse(request, refused).await,
            },
            // A lease that has ended is released too.
            Request::Release { request, lease } => {
                self.leases.remove(lease);
                self.send(&Reply::Released { request, lease }, &[]).await
            }
        }
    }

    /// Opens an extent for the client, if its token covers all of it.
    async fn lend(
        &self,
        extent: ExtentId,
        token: &str,
    ) -> Result<(LentExtent, Share), RefusedRequest> {
        let state = &self.state;
        if self.leases.len() >= LEASES_MAX {
            let sentence = format!(
                "the connection has {LEASES_MAX} leases: release some, or open another connection"
            );
            return Err(RefusedRequest { code: RefusalCode::Busy, sentence });
        }
        let grant = state.key.open(token)?;
        // The length is known once the extent is open.
        self.check(&grant, extent, grant.last.saturating_add(1))?;
        let lent = state.node.lend(grant.device, extent, self.peer.uid()).await?;
        if grant.first > 0 || grant.last < lent.length.saturating_sub(1) {
            let sentence = "the token grants a part of the extent, and a descriptor opens the \
                            whole file: locate the object without a range";
            let sentence = sentence.to_owned();
            return Err(RefusedRequest { code: RefusalCode::Range, sentence });
        }
        let share = state.quota.lease(self.peer.uid(), lent.length).ok_or_else(|| {
            let sentence = "too many bytes are leased: release some leases, or raise direct_bytes";
            RefusedRequest { code: RefusalCode::Busy, sentence: sentence.to_owned() }
        })?;
        Ok((lent, share))
    }

    /// Checks a grant against the extent that the client names. A socket has no address.
    fn check(&self, grant: &ExtentGrant, extent: ExtentId, end: u64) -> Result<(), RefusedRequest> {
        let now_ms = self.state.clock.now_ms();
        let read = GrantedRead { extent, range: grant.first..end, peer: None, now_ms };
        Ok(grant.check(&read)?)
    }

    async fn grant(&mut self, request: u64, lent: LentExtent, share: Share) -> io::Result<()> {
        let LentExtent { length, crcs, files, is_read_only, lease } = lent;
        let times = self.state.times;
        let lease = self.leases.add(lease, share, times.lease.saturating_sub(times.notice));
        self.state.counters.granted(length);
        let grant = Grant {
            request,
            lease,
            length,
            expires_ms: self.after(times.lease),
            crcs: &crcs,
            is_read_only,
            is_direct: files.is_direct,
        };
        let descriptors = [files.plain.as_fd(), files.direct.as_fd()];
        self.send(&Reply::Granted(grant), &descriptors).await
    }

    /// Tells the client that a lease ends, and begins its last time.
    async fn notify(&mut self, lease: u64, code: RevocationCode) -> io::Result<()> {
        let left = self.state.times.notice;
        self.leases.noticed(lease, left);
        self.state.counters.revoked(code);
        let until_ms = self.after(left);
        self.send(&Reply::Revoked { code, lease, until_ms }, &[]).await
    }

    async fn refuse(&self, request: u64, refused: RefusedRequest) -> io::Result<()> {
        let RefusedRequest { code, sentence } = refused;
        let uid = self.peer.uid();
        self.state.counters.refused(code);
        if code == RefusalCode::Failed {
            tracing::error!(uid, sentence, "could not lend an extent");
        } else {
            tracing::debug!(uid, ?code, sentence, "refused a lease");
        }
        self.send(&Reply::Refused { request, code, sentence: &sentence }, &[]).await
    }

    /// Refuses a packet whose request number, if it has one, may be wrong.
    async fn refuse_malformed(&self, packet: &[u8]) -> io::Result<()> {
        let length = packet.len();
        let sentence = format!("the packet of {length} bytes is malformed: see docs/WIRE.md");
        self.refuse(0, RefusedRequest { code: RefusalCode::Malformed, sentence }).await
    }

    /// Sends a packet. An error if the client doesn't receive it in time.
    async fn send(&self, reply: &Reply<'_>, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let packet = reply.encode();
        let sent = timeout(self.state.times.send, self.peer.send(&packet, files)).await;
        sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn after(&self, time: Duration) -> u64 {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.state.clock.now_ms().saturating_add(time_ms)
    }
}

impl From<TokenRefusal> for RefusedRequest {
    fn from(refusal: TokenRefusal) -> Self {
        let code = match refusal {
            TokenRefusal::Invalid | TokenRefusal::Extent => RefusalCode::Token,
            TokenRefusal::Expired => RefusalCode::Expired,
            TokenRefusal::Device => RefusalCode::Absent,
            TokenRefusal::Range => RefusalCode::Range,
            TokenRefusal::Network => RefusalCode::Network,
        };
        Self { code, sentence: refusal.to_string() }
    }
}

impl From<LendError> for RefusedRequest {
    fn from(error: LendError) -> Self {
        let code = match &error {
            LendError::Packed(_) => RefusalCode::Packed,
            LendError::Parity(_) => RefusalCode::Parity,
            LendError::Writable { .. } => RefusalCode::Writable,
            LendError::Store(error) => of_kind(error),
        };
        Self { code, sentence: error.to_string() }
    }
}

fn of_kind(error: &Error) -> RefusalCode {
    match error.kind() {
        ErrorKind::NotFound => RefusalCode::Absent,
        ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::Conflict => RefusalCode::Device,
        ErrorKind::Corrupt => RefusalCode::Quarantined,
        ErrorKind::Invalid | ErrorKind::Internal => RefusalCode::Failed,
    }
}
