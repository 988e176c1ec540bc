//! Voting state of a device as a whole: its votes (rule G1), the floor under every promise (rule G2),
//! its term and joined ring change (rules P1 to P3), its possession of its peers' fences (rule M2),
//! and its hints ([`kept_hints`](super::kept_hints)).
//!
//! ```text
//! meta      'p'  → floor (16)
//!           'v'  → votes: 1 with, 0 without; no row: as the device was formatted
//!           't'  → term (8, little-endian)
//!           'j'  → the last joined ring change (8, little-endian)
//!           'a'  → all fences: 1 with, 0 without; no row: as the device has votes
//! ```
//!
//! Invariants: floor, term and joined change never fall, and values visible here are on disk
//! already (rule R2). The committer checks terms too. So a raised term, once acknowledged, is in
//! force for every later write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use martlet_protocol::{Error, Result, Stamp, Term};
use parking_lot::RwLock;

use super::database::Database;
use super::family::Family;
use super::kept_hints::KeptHints;

/// Key of the floor in `meta`.
pub(super) const FLOOR_KEY: &[u8] = b"p";
/// Key of the votes in `meta`.
pub(super) const VOTES_KEY: &[u8] = b"v";
/// Key of the term in `meta`.
pub(super) const TERM_KEY: &[u8] = b"t";
/// Key of the last joined change in `meta`.
pub(super) const JOINED_KEY: &[u8] = b"j";

/// Key of the possession of all fences in `meta`.
pub(super) const FENCED_KEY: &[u8] = b"a";

/// The voting state of one device.
#[derive(Debug)]
pub(super) struct VotingState {
    voting: AtomicBool,
    /// True if the votes may be used: peers remember no later device in its place (rule G1).
    confirmed: AtomicBool,
    floor: RwLock<Stamp>,
    hints: KeptHints,
    term: AtomicU64,
    joined: AtomicU64,
    /// True if the device has received the fences of its peers.
    fenced: AtomicBool,
}

/// Snapshot of a device's voting state, for its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VotingSnapshot {
    /// True if it has its votes and may use them.
    pub(crate) voting: bool,
    /// True if it has its votes on disk.
    pub(crate) has_votes: bool,
    /// Number of hints that it holds; at least one until all of them are counted.
    pub(crate) hints: u64,
    /// Highest term that it has recorded.
    pub(crate) term: Term,
    /// Last ring change that it joined.
    pub(crate) joined: u64,
}

impl VotingState {
    /// Loads the state. `votes` applies if the disk records none; `confirmed` allows their use
    /// at once.
    pub(super) fn load(
        database: &Database,
        votes: bool,
        confirmed: bool,
        opened_ms: u64,
    ) -> Result<Self> {
        let floor = match database.get(Family::Meta, FLOOR_KEY)? {
            None => Stamp::ZERO,
            Some(row) => Stamp::from_bytes(
                row.try_into().map_err(|_| Error::corrupt("the device's floor is malformed"))?,
            ),
        };
        let voting = flag(database, VOTES_KEY)?.unwrap_or(votes);
        // A device of an earlier release has no row.
        let fenced = flag(database, FENCED_KEY)?.unwrap_or(voting);
        Ok(Self {
            voting: AtomicBool::new(voting),
            confirmed: AtomicBool::new(confirmed),
            floor: RwLock::new(floor),
            hints: KeptHints::load(database, opened_ms)?,
            term: AtomicU64::new(number(database, TERM_KEY)?),
            joined: AtomicU64::new(number(database, JOINED_KEY)?),
            fenced: AtomicBool::new(fenced),
        })
    }

    /// Returns a snapshot of the state.
    pub(super) fn now(&self) -> VotingSnapshot {
        VotingSnapshot {
            voting: self.voting(),
            has_votes: self.voting.load(Ordering::Acquire),
            hints: self.hints.number(),
            term: self.term(),
            joined: self.joined(),
        }
    }

    /// Returns true if the device has its votes and may use them.
    pub(super) fn voting(&self) -> bool {
        self.voting.load(Ordering::Acquire) && self.confirmed.load(Ordering::Acquire)
    }

    /// Returns `Unavailable` if the device has no usable votes.
    pub(super) fn check_votes(&self, device: &str) -> Result<()> {
        if self.voting() {
            return Ok(());
        }
        let until = if self.voting.load(Ordering::Acquire) {
            "its peers have confirmed the device"
        } else {
            "it has synced with its peers"
        };
        Err(Error::unavailable(format!("device {device} has no vote until {until}")))
    }

    /// Returns true if the device keeps hints, or may keep some that aren't counted yet.
    ///
    /// # Errors
    /// `Unavailable` if it keeps some and has no usable votes. The index may be that of a disk that was
    /// put back: tombstones of what its hints hold may have been collected meanwhile (rules G1, T1).
    pub(super) fn has_hints(&self, device: &str) -> Result<bool> {
        if self.hints.number() == 0 {
            return Ok(false);
        }
        self.check_votes(device).map(|()| true)
    }

    /// Returns an error for requests with a lower term (rule P1).
    pub(super) fn check_term(&self, term: Term) -> Result<()> {
        let held = self.term();
        if term < held { Err(Error::outdated(held)) } else { Ok(()) }
    }

    /// Returns `Unavailable`, without effect, until the device has received the fences of its peers. A
    /// fence that it lacks may refuse the write. Registers of the root bucket have no fences.
    pub(super) fn check_fenced(&self) -> Result<()> {
        if self.is_fenced() {
            return Ok(());
        }
        let reason = "the device has not received the fences of its peers yet";
        Err(Error::unavailable(reason).without_effect("a fence may refuse the write"))
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    pub(super) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    pub(super) fn joined(&self) -> u64 {
        self.joined.load(Ordering::Acquire)
    }

    /// Minimum of every promise of the device.
    pub(super) fn floor(&self) -> Stamp {
        *self.floor.read()
    }

    /// Number and arrivals of the hints.
    pub(super) fn kept_hints(&self) -> &KeptHints {
        &self.hints
    }

    pub(super) fn set_voting(&self, voting: bool) {
        self.voting.store(voting, Ordering::Release);
    }

    pub(super) fn set_confirmed(&self, confirmed: bool) {
        self.confirmed.store(confirmed, Ordering::Release);
    }

    pub(super) fn raise_floor(&self, floor: Stamp) {
        let mut held = self.floor.write();
        *held = floor.max(*held);
    }

    pub(super) fn raise_term(&self, term: Term) {
        self.term.fetch_max(term.0, Ordering::AcqRel);
    }

    pub(super) fn set_fenced(&self) {
        self.fenced.store(true, Ordering::Release);
    }

    pub(super) fn set_joined(&self, change: u64) {
        self.joined.fetch_max(change, Ordering::AcqRel);
    }
}

/// Returns a flag in `meta`; none without a row.
fn flag(database: &Database, key: &[u8]) -> Result<Option<bool>> {
    match database.get(Family::Meta, key)?.as_deref() {
        None => Ok(None),
        Some([0]) => Ok(Some(false)),
        Some([1]) => Ok(Some(true)),
        Some(_) => Err(Error::corrupt("a flag of the device is malformed")),
    }
}

/// Returns a number in `meta`; zero without a row.
fn number(database: &Database, key: &[u8]) -> Result<u64> {
    let Some(row) = database.get(Family::Meta, key)? else { return Ok(0) };
    let row = row.try_into().map_err(|_| Error::corrupt("a number of the device is malformed"))?;
    Ok(u64::from_le_bytes(row))
}
