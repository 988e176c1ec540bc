//! What holds for a device as a whole: its votes (rule G1), the floor under every promise (rule G2),
//! and how many writes it keeps for others.
//!
//! ```text
//! meta      'p'  → floor (16)
//!           'v'  → votes: 1 with, 0 without; no row: as the device was formatted
//! ```
//!
//! Invariants: the floor never falls, and what is seen here is on disk already (rule R2).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use martlet_protocol::{Error, Result, Stamp};
use parking_lot::RwLock;

use super::database::{Database, Family};
use super::group::{Change, Group};
use super::rows::LAST_KEY;

/// Where the floor lies in `meta`.
const FLOOR_KEY: &[u8] = b"p";
/// Where the votes lie in `meta`.
const VOTES_KEY: &[u8] = b"v";

/// The standing of one device.
#[derive(Debug)]
pub(super) struct Standing {
    voting: AtomicBool,
    floor: RwLock<Stamp>,
    hints: AtomicU64,
}

impl Standing {
    /// Reads it from disk; `votes` is what a device has that was never told.
    pub(super) fn load(database: &Database, votes: bool) -> Result<Self> {
        let floor = match database.get(Family::Meta, FLOOR_KEY)? {
            None => Stamp::ZERO,
            Some(row) => Stamp::from_bytes(
                row.try_into().map_err(|_| Error::corrupt("the device's floor is malformed"))?,
            ),
        };
        let voting = match database.get(Family::Meta, VOTES_KEY)?.as_deref() {
            None => votes,
            Some([0]) => false,
            Some([1]) => true,
            Some(_) => return Err(Error::corrupt("the device's votes are malformed")),
        };
        let mut hints = 0;
        database.scan(Family::Hints, &[], &LAST_KEY, usize::MAX, |_, _| {
            hints += 1;
            Ok(())
        })?;
        let (voting, hints) = (AtomicBool::new(voting), AtomicU64::new(hints));
        Ok(Self { voting, floor: RwLock::new(floor), hints })
    }

    /// Whether the device has its votes.
    pub(super) fn voting(&self) -> bool {
        self.voting.load(Ordering::Acquire)
    }

    /// Refuses what takes a vote, if the device has none.
    pub(super) fn check_votes(&self, device: &str) -> Result<()> {
        if self.voting() {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "device {device} has no vote until it has synced with its peers"
        )))
    }

    /// No promise of the device is below this.
    pub(super) fn floor(&self) -> Stamp {
        *self.floor.read()
    }

    /// Writes kept for others.
    pub(super) fn hints(&self) -> u64 {
        self.hints.load(Ordering::Acquire)
    }

    pub(super) fn set_voting(&self, voting: bool) {
        self.voting.store(voting, Ordering::Release);
    }

    pub(super) fn raise_floor(&self, floor: Stamp) {
        let mut held = self.floor.write();
        *held = floor.max(*held);
    }

    /// Only the committer changes the number, so that nothing comes between reading and writing it.
    pub(super) fn count_hints(&self, more: i64) {
        let hints = self.hints().saturating_add_signed(more);
        self.hints.store(hints, Ordering::Release);
    }
}

impl Group<'_> {
    /// Stages a floor, if it is higher than the one that stands.
    pub(super) fn raise_floor(&mut self, floor: Stamp) {
        if floor > self.conditions.standing.floor() {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, FLOOR_KEY, floor.to_bytes());
            self.change = Some(Change::Floor(floor));
        }
    }

    /// Written even where it says nothing new: a device may owe its votes to how it was formatted.
    pub(super) fn set_voting(&mut self, voting: bool) {
        let family = self.conditions.database.family(Family::Meta);
        self.batch.put_cf(family, VOTES_KEY, [u8::from(voting)]);
        self.change = Some(Change::Votes(voting));
    }
}
