//! Counters of a direct socket.

use std::sync::atomic::{AtomicU64, Ordering};

use super::packet::{RefusalCode, RevocationCode};
use super::quota::Held;

/// Names of the reasons of refusals, in the order of [`DirectFigures::refused`].
pub const REFUSALS: [&str; 14] = [
    "malformed",
    "user",
    "token",
    "expired",
    "range",
    "network",
    "absent",
    "packed",
    "parity",
    "writable",
    "busy",
    "device",
    "quarantined",
    "failed",
];

/// Names of the reasons of revocations, in the order of [`DirectFigures::revoked`].
pub const REVOCATIONS: [&str; 4] = ["expired", "corrupt", "device_closed", "space"];

/// Figures of a direct socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectFigures {
    /// Open connections.
    pub connections: u64,
    /// Leases that last.
    pub leases: u64,
    /// Bytes of these leases.
    pub leased_bytes: u64,
    /// Leases granted since the start.
    pub granted: u64,
    /// Bytes of the leases granted since the start.
    pub granted_bytes: u64,
    /// Refusals since the start, by [reason](REFUSALS).
    pub refused: [u64; REFUSALS.len()],
    /// Revocations since the start, by [reason](REVOCATIONS).
    pub revoked: [u64; REVOCATIONS.len()],
}

/// Atomic counters behind [`DirectFigures`].
#[derive(Debug, Default)]
pub(super) struct DirectCounters {
    granted: AtomicU64,
    granted_bytes: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
    revoked: [AtomicU64; REVOCATIONS.len()],
}

impl DirectCounters {
    /// Counts a lease of `bytes`.
    pub(super) fn granted(&self, bytes: u64) {
        self.granted.fetch_add(1, Ordering::Relaxed);
        self.granted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a refusal.
    pub(super) fn refused(&self, code: RefusalCode) {
        self.refused[code as usize - 1].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a revocation.
    pub(super) fn revoked(&self, code: RevocationCode) {
        self.revoked[code as usize - 1].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the figures of a socket whose clients hold this much.
    pub(super) fn snapshot(&self, held: Held) -> DirectFigures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DirectFigures {
            connections: held.connections as u64,
            leases: held.leases as u64,
            leased_bytes: held.bytes,
            granted: read(&self.granted),
            granted_bytes: read(&self.granted_bytes),
            refused: self.refused.each_ref().map(read),
            revoked: self.revoked.each_ref().map(read),
        }
    }
}

const _: () = {
    assert!(RefusalCode::Failed as usize == REFUSALS.len());
    assert!(RevocationCode::Space as usize == REVOCATIONS.len());
};
