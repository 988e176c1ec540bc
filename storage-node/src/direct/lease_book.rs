//! Leases of one connection, with their deadlines.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::packet::RevocationCode;
use super::quota::Share;
use crate::extents::{FileLease, Revocation};

/// Leases of one connection, by number.
#[derive(Default)]
pub(super) struct LeaseBook {
    leases: BTreeMap<u64, HeldLease>,
    last: u64,
}

struct HeldLease {
    revocation: watch::Receiver<Option<Revocation>>,
    state: LeaseState,
    // Both end with the lease.
    _lease: Arc<FileLease>,
    _share: Share,
}

#[derive(Clone, Copy)]
enum LeaseState {
    /// The lease lasts until its notice.
    Lasts(Instant),
    /// The client has the notice; the lease ends at this time.
    Ends(Instant),
}

/// Event of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEvent {
    /// The client must learn that this lease ends.
    Notice(u64, RevocationCode),
    /// This lease has ended.
    End(u64),
}

impl LeaseBook {
    /// Adds a lease, of which the client learns after `lasts` that it ends. Returns its number.
    pub(super) fn add(&mut self, lease: Arc<FileLease>, share: Share, lasts: Duration) -> u64 {
        self.last += 1;
        let held = HeldLease {
            revocation: lease.revocation(),
            state: LeaseState::Lasts(Instant::now() + lasts),
            _lease: lease,
            _share: share,
        };
        self.leases.insert(self.last, held);
        self.last
    }

    /// Ends a lease, if there is one of this number.
    pub(super) fn remove(&mut self, number: u64) {
        self.leases.remove(&number);
    }

    /// Records that the client has the notice of a lease, which ends after `left`.
    pub(super) fn noticed(&mut self, number: u64, left: Duration) {
        if let Some(held) = self.leases.get_mut(&number) {
            held.state = LeaseState::Ends(Instant::now() + left);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Waits for the next event. Never ends without a lease. May be dropped at any time.
    pub(super) async fn next(&mut self) -> LeaseEvent {
        if self.leases.is_empty() {
            return pending().await;
        }
        let waits = self.leases.iter_mut().map(|(number, held)| held.next(*number).boxed());
        select_all(waits).await.0
    }
}

impl HeldLease {
    async fn next(&mut self, number: u64) -> LeaseEvent {
        let notice = match self.state {
            LeaseState::Ends(at) => {
                sleep_until(at).await;
                return LeaseEvent::End(number);
            }
            LeaseState::Lasts(notice) => notice,
        };
        let code = tokio::select! {
            code = revoked(&mut self.revocation) => code,
            () = sleep_until(notice) => RevocationCode::Expired,
        };
        LeaseEvent::Notice(number, code)
    }
}

async fn revoked(revocation: &mut watch::Receiver<Option<Revocation>>) -> RevocationCode {
    let why = match revocation.wait_for(Option::is_some).await {
        Ok(why) => *why,
        // The lease lives as long as its receiver.
        Err(_) => None,
    };
    match why {
        Some(Revocation::Corrupt) => RevocationCode::Corrupt,
        Some(Revocation::Space) => RevocationCode::Space,
        Some(Revocation::DeviceClosed) | None => RevocationCode::DeviceClosed,
    }
}
