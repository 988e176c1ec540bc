//! Calls of a channel that wait for replies, found by their ids.
//!
//! ```text
//! id of a call: number of the call, 22 bits | slot, 10 bits
//! ```
//!
//! A slot is free again once its call has ended. The late reply to a cancelled call has the number of
//! that call, so it finds no other in the slot. It comes long before numbers repeat: the node sends
//! it before it reads the next call.

/// Bits of an id for the slot.
const SLOT_BITS: u32 = 10;
/// Most calls that wait.
pub(super) const WAITING_MAX: usize = 1 << SLOT_BITS;

/// Calls that wait for replies.
pub(super) struct WaitingCalls<T> {
    /// Calls with their ids, each in its slot.
    slots: Vec<Option<(u32, T)>>,
    free: Vec<u32>,
    /// Number of the last call.
    last: u32,
}

impl<T> WaitingCalls<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), last: 0 }
    }

    /// Returns true if no call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Adds a call and returns its id.
    ///
    /// # Panics
    /// When [`WAITING_MAX`] calls wait.
    pub(super) fn insert(&mut self, call: T) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        self.last = self.last.wrapping_add(1);
        let id = (self.last << SLOT_BITS) | slot;
        self.slots[slot as usize] = Some((id, call));
        id
    }

    fn add_slot(&mut self) -> u32 {
        let slot = self.slots.len();
        assert!(slot < WAITING_MAX, "callers bound the calls that wait");
        self.slots.push(None);
        u32::try_from(slot).expect("slots are few")
    }

    /// Takes a call out; none if it doesn't wait.
    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let slot = id & ((1 << SLOT_BITS) - 1);
        let held = self.slots.get_mut(slot as usize)?;
        let (_, call) = held.take_if(|(held_id, _)| *held_id == id)?;
        self.free.push(slot);
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_by_their_ids_in_any_order() {
        let mut calls = WaitingCalls::new();
        assert!(calls.is_empty());
        let ids: Vec<u32> = (0..WAITING_MAX).map(|call| calls.insert(call)).collect();
        for (call, id) in ids.iter().enumerate().rev().step_by(2) {
            assert_eq!((calls.remove(*id), calls.remove(*id)), (Some(call), None));
        }
        let more: Vec<u32> = (0..WAITING_MAX / 2).map(|call| calls.insert(call)).collect();
        for (call, id) in ids.iter().enumerate() {
            let expected = (call % 2 == 0).then_some(call);
            assert_eq!(calls.remove(*id), expected, "its id is of no other call");
        }
        for (call, id) in more.iter().enumerate() {
            assert!(!calls.is_empty());
            assert_eq!(calls.remove(*id), Some(call));
        }
        assert!(calls.is_empty());
        assert_eq!(calls.remove(u32::MAX), None);
    }

    #[test]
    fn numbers_of_calls_wrap() {
        let mut calls = WaitingCalls::new();
        let before = calls.insert('a');
        calls.last = u32::MAX - 1;
        let ids = ['b', 'c', 'd'].map(|call| calls.insert(call));
        assert_eq!(calls.remove(before), Some('a'));
        assert_eq!(ids.map(|id| calls.remove(id)), [Some('b'), Some('c'), Some('d')]);
    }

    #[test]
    #[should_panic(expected = "callers bound the calls")]
    fn the_number_of_waiting_calls_is_bounded() {
        let mut calls = WaitingCalls::new();
        for call in 0..=WAITING_MAX {
            calls.insert(call);
        }
    }
}
