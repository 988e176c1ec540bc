//! What holds for a device as a whole: its votes (rule G1), the floor under every promise (rule G2),
//! how far it was told that ring changes have come (rules P1 to P3), and how many writes it keeps for
//! others.
//!
//! ```text
//! meta      'p'  → floor (16)
//!           'v'  → votes: 1 with, 0 without; no row: as the device was formatted
//!           't'  → term (8, little-endian)
//!           'j'  → the last ring change that was joined (8, little-endian)
//! ```
//!
//! Invariants: floor, term and what was joined never fall, and what is seen here is on disk already
//! (rule R2). The committer checks terms too, so that a term whose raising was answered is in force
//! for every write that comes after.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use martlet_protocol::{Error, Result, Stamp, Term};
use parking_lot::RwLock;

use super::database::{Database, Family};
use super::group::{Change, Group};
use super::rows::LAST_KEY;

/// Where the floor lies in `meta`.
const FLOOR_KEY: &[u8] = b"p";
/// Where the votes lie in `meta`.
const VOTES_KEY: &[u8] = b"v";
/// Where the term lies in `meta`.
const TERM_KEY: &[u8] = b"t";
/// Where the last change that was joined lies in `meta`.
const JOINED_KEY: &[u8] = b"j";

/// The standing of one device.
#[derive(Debug)]
pub(super) struct Standing {
    voting: AtomicBool,
    /// True when the votes may be used: its peers know no later one in its place (rule G1).
    confirmed: AtomicBool,
    floor: RwLock<Stamp>,
    hints: AtomicU64,
    term: AtomicU64,
    joined: AtomicU64,
}

/// The standing of a device at one moment, as its status tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StandingNow {
    /// True when it has its votes and may use them.
    pub(crate) voting: bool,
    /// True when it has its votes on disk.
    pub(crate) has_votes: bool,
    /// Writes that it keeps for others.
    pub(crate) hints: u64,
    /// The highest term that it was told.
    pub(crate) term: Term,
    /// The last ring change that it joined.
    pub(crate) joined: u64,
}

impl Standing {
    /// Reads it from disk; `votes` is what a device has that was never told, `confirmed` whether it may
    /// use its votes at once.
    pub(super) fn load(database: &Database, votes: bool, confirmed: bool) -> Result<Self> {
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
        Ok(Self {
            voting: AtomicBool::new(voting),
            confirmed: AtomicBool::new(confirmed),
            floor: RwLock::new(floor),
            hints: AtomicU64::new(hints),
            term: AtomicU64::new(number(database, TERM_KEY)?),
            joined: AtomicU64::new(number(database, JOINED_KEY)?),
        })
    }

    /// All of it, for whoever asks how the device is.
    pub(super) fn now(&self) -> StandingNow {
        StandingNow {
            voting: self.voting(),
            has_votes: self.voting.load(Ordering::Acquire),
            hints: self.hints(),
            term: self.term(),
            joined: self.joined(),
        }
    }

    /// Returns true when the device has its votes and may use them.
    pub(super) fn voting(&self) -> bool {
        self.voting.load(Ordering::Acquire) && self.confirmed.load(Ordering::Acquire)
    }

    /// Refuses what takes a vote, if the device has none.
    pub(super) fn check_votes(&self, device: &str) -> Result<()> {
        if self.voting() {
            return Ok(());
        }
        let until = if self.voting.load(Ordering::Acquire) {
            "its peers have confirmed that it is the one they remember"
        } else {
            "it has synced with its peers"
        };
        Err(Error::unavailable(format!("device {device} has no vote until {until}")))
    }

    /// Refuses whoever goes by a lower term (rule P1).
    pub(super) fn check_term(&self, term: Term) -> Result<()> {
        let held = self.term();
        if term < held { Err(Error::outdated(held)) } else { Ok(()) }
    }

    fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    fn joined(&self) -> u64 {
        self.joined.load(Ordering::Acquire)
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

    pub(super) fn set_joined(&self, change: u64) {
        self.joined.fetch_max(change, Ordering::AcqRel);
    }

    /// Only the committer changes the number, so that nothing comes between reading and writing it.
    pub(super) fn count_hints(&self, more: i64) {
        let hints = self.hints().saturating_add_signed(more);
        self.hints.store(hints, Ordering::Release);
    }
}

/// A number in `meta`; zero where there is none.
fn number(database: &Database, key: &[u8]) -> Result<u64> {
    let Some(row) = database.get(Family::Meta, key)? else { return Ok(0) };
    let row = row.try_into().map_err(|_| Error::corrupt("a number of the device is malformed"))?;
    Ok(u64::from_le_bytes(row))
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

    /// Stages a term, if it is higher than the one that stands (rule P3).
    pub(super) fn raise_term(&mut self, term: Term) {
        if term > self.conditions.standing.term() {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, TERM_KEY, term.0.to_le_bytes());
            self.change = Some(Change::Term(term));
        }
    }

    /// Stages that a ring change was joined, if none after it was (rule P2).
    pub(super) fn set_joined(&mut self, change: u64) {
        if change > self.conditions.standing.joined() {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, JOINED_KEY, change.to_le_bytes());
            self.change = Some(Change::Joined(change));
        }
    }
}
