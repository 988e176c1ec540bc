//! Messages that a broker has acknowledged and the spool has not passed yet.
//!
//! A broker with several partitions takes messages behind one that it doesn't take. Such messages
//! are noted here, so that the next attempt sends no second copy of them.
//!
//! Invariant: notes are positions within one read of the spool, so their number is bounded.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::super::spool::{SpoolPosition, SpooledMessage};

/// Positions of acknowledged messages of one lane.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    positions: Mutex<BTreeSet<SpoolPosition>>,
}

impl Acknowledged {
    /// Notes an acknowledged message.
    pub(super) fn add(&self, message: &SpooledMessage) {
        self.positions.lock().insert(message.position);
    }

    /// Notes acknowledged messages.
    pub(super) fn add_all(&self, messages: &[SpooledMessage]) {
        self.positions.lock().extend(messages.iter().map(|message| message.position));
    }

    /// Returns true if this message was acknowledged.
    pub(super) fn has(&self, message: &SpooledMessage) -> bool {
        self.positions.lock().contains(&message.position)
    }

    /// Forgets the messages before this one, which the spool has passed.
    pub(super) fn forget_before(&self, message: &SpooledMessage) {
        let mut positions = self.positions.lock();
        *positions = positions.split_off(&message.position);
    }

    /// Returns the number of acknowledged messages before the first one that is not.
    pub(super) fn leading(&self, messages: &[SpooledMessage]) -> usize {
        messages.iter().take_while(|message| self.has(message)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::spooled;
    use super::*;

    #[test]
    fn messages_behind_an_open_one_are_remembered() {
        let messages = spooled(&["a", "b", "b", "c"]);
        let acknowledged = Acknowledged::default();
        acknowledged.add(&messages[1]);
        acknowledged.add(&messages[3]);
        assert_eq!(acknowledged.leading(&messages), 0);
        assert!(!acknowledged.has(&messages[2]), "equal messages are told apart");
        acknowledged.add(&messages[0]);
        assert_eq!(acknowledged.leading(&messages), 2);
        acknowledged.forget_before(&messages[2]);
        assert!(!acknowledged.has(&messages[1]) && acknowledged.has(&messages[3]));
        assert_eq!(acknowledged.leading(&messages[2..]), 0);
        assert_eq!(acknowledged.leading(&messages[3..]), 1);
    }
}
