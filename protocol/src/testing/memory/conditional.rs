//! Calls that change the state of a device as a whole, and calls with a condition on the device, the time
//! or the rings.

use super::device::MemoryDevice;
use crate::backend::{Call, DeviceCondition, Reply, RingEpochs};
use crate::error::{Error, Result};
use crate::stamp::Stamp;

impl MemoryDevice {
    /// Executes a call on the state of the device, or a call with a condition. `rings` are those of the
    /// node.
    pub(super) fn change_state(
        &mut self,
        call: Call<'_>,
        rings: Option<&RingEpochs>,
        now_ms: u64,
    ) -> Result<Reply> {
        let here = DeviceCondition { identity: self.identity(), not_after_ms: u64::MAX };
        match call {
            Call::RaiseFloor(floor) => self.floor = self.floor.max(floor),
            Call::SetVoting(voting) => {
                let call = Call::SetVotingOf { condition: here, voting };
                return self.change_state(call, rings, now_ms);
            }
            Call::RaiseTerm(term) => self.term = self.term.max(term),
            Call::SetJoined(change) => {
                let call = Call::SetJoinedOf { condition: here, change };
                return self.change_state(call, rings, now_ms);
            }
            Call::RaiseFloorOf { condition, floor } => {
                condition.check(self.identity(), now_ms)?;
                self.floor = self.floor.max(floor);
            }
            Call::SetVotingOf { condition, voting } => {
                condition.check(self.identity(), now_ms)?;
                self.mute = !voting;
                // A device whose floor was raised before was synced, with its fences.
                self.lacks_fences &= !voting || self.floor == Stamp::ZERO;
            }
            Call::SetJoinedOf { condition, change } => {
                condition.check(self.identity(), now_ms)?;
                // The caller has copied fences too.
                self.lacks_fences &= change <= self.joined;
                self.joined = self.joined.max(change);
            }
            Call::SetFencedOf(condition) => {
                condition.check(self.identity(), now_ms)?;
                self.lacks_fences = false;
            }
            Call::ReleaseCopies { extents, condition } => {
                condition.check_time(now_ms)?;
                rings.map_or(Ok(()), |rings| rings.check_release(&condition.rings))?;
                for extent in &*extents {
                    let held = self.extents.get(&extent.id);
                    if held.is_some_and(|(record, _)| record.extent == *extent) {
                        self.extents.remove(&extent.id);
                    }
                }
            }
            Call::DeleteUnneeded { ids, condition } => {
                condition.check(now_ms)?;
                self.delete_extents(&ids, now_ms);
            }
            Call::DropStrays { drops, condition } => {
                condition.check(self.term, now_ms)?;
                self.drop_registers(&drops);
            }
            Call::PresenceBy { ids, rings: named } => {
                rings.map_or(Ok(()), |rings| rings.check_statement(&named))?;
                return Ok(self.presence(&ids).into());
            }
            other => {
                let name = other.kind().name();
                return Err(Error::internal(format!("{name} changes no state")));
            }
        }
        Ok(Reply::Done(()))
    }
}
