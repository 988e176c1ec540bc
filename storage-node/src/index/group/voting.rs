//! Changes of the votes, floor, term and joined ring change in a group (rules G1, G2, P1 to P3).

use martlet_protocol::backend::DeviceCondition;
use martlet_protocol::{Result, Stamp, Term};

use super::{Group, StateChange};
use crate::index::family::Family;
use crate::index::queue::DeviceChange;
use crate::index::voting::{FENCED_KEY, FLOOR_KEY, JOINED_KEY, TERM_KEY, VOTES_KEY};

impl Group<'_> {
    /// Stages a change, if this is the device of the condition and its time is not over.
    pub(super) fn change_device(
        &mut self,
        condition: DeviceCondition,
        change: DeviceChange,
    ) -> Result<()> {
        condition.check(self.conditions.identity, self.conditions.now_ms)?;
        match change {
            DeviceChange::Floor(floor) => self.raise_floor(floor),
            DeviceChange::Votes(voting) => self.set_voting(voting),
            DeviceChange::Joined(change) => self.set_joined(change),
            DeviceChange::Fenced => self.set_fenced(),
        }
        Ok(())
    }

    /// Stages a floor, if it is higher than the current floor.
    pub(super) fn raise_floor(&mut self, floor: Stamp) {
        if floor > self.conditions.voting_state.floor() {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, FLOOR_KEY, floor.to_bytes());
            self.change = Some(StateChange::Floor(floor));
        }
    }

    /// Stages the votes, even if unchanged: the votes so far may come from the device's formatting,
    /// not from a row. A device whose floor was raised before was synced, with its fences.
    pub(super) fn set_voting(&mut self, voting: bool) {
        let state = self.conditions.voting_state;
        let fenced = state.is_fenced() || (voting && state.floor() > Stamp::ZERO);
        let family = self.conditions.database.family(Family::Meta);
        self.batch.put_cf(family, VOTES_KEY, [u8::from(voting)]);
        self.batch.put_cf(family, FENCED_KEY, [u8::from(fenced)]);
        self.change = Some(StateChange::Votes { voting, fenced });
    }

    /// Stages that the device has received the fences of its peers (rule M2).
    pub(super) fn set_fenced(&mut self) {
        if !self.conditions.voting_state.is_fenced() {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, FENCED_KEY, [1]);
            self.change = Some(StateChange::Fenced);
        }
    }

    /// Stages a term, if it is higher than the current term (rule P3).
    pub(super) fn raise_term(&mut self, term: Term) {
        if term > self.conditions.voting_state.term() {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, TERM_KEY, term.0.to_le_bytes());
            self.change = Some(StateChange::Term(term));
        }
    }

    /// Stages a joined ring change, if it is later than the last one (rule P2). The caller has copied
    /// fences too.
    pub(super) fn set_joined(&mut self, change: u64) {
        if change > self.conditions.voting_state.joined() {
            let family = self.conditions.database.family(Family::Meta);
            self.batch.put_cf(family, JOINED_KEY, change.to_le_bytes());
            self.batch.put_cf(family, FENCED_KEY, [1]);
            self.change = Some(StateChange::Joined(change));
        }
    }
}
