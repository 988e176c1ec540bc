//! A decided completion, and what the entry of its key shows about it (rule M1).
//!
//! The order of a decision is above all acknowledged writes of the key, and below each write of the object. So an entry at or
//! below that order shows that the object was never written. The order of an entry above it shows nothing: a ballot or a worker
//! that settles a register gives an old write a present order (rules R4, R6). The write id stays then, and a register never
//! returns to an earlier write. So a write that was the key's while the object was not written yet shows it at any order.

use martlet_protocol::entry::{Entry, KeyCondition, Object, UploadState};
use martlet_protocol::{Stamp, WriteId};

/// Time after a decision, in milliseconds, up to which a driver writes the object without a proof that no tombstone of it was
/// collected. An object that was deleted leaves a tombstone for longer.
pub const UNDRIVEN_MS_MAX: u64 = 40 * 60 * 1000;

/// Driver of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// True for the proxy that decided. Another proxy found the decision: the object may have been written, and overwritten
    /// since.
    pub(super) decided: bool,
    /// Write id of an entry that was the key's before the object: the one that the decision recorded, or one found later with
    /// a proof that the object was not written before.
    pub(super) follows: Option<WriteId>,
    /// Write id by which the driver has the upload's turn.
    pub(super) turn: WriteId,
}

impl Driver {
    /// Returns the proxy that decided by the write `turn`, over an entry of the write `follows`.
    pub(super) fn decider(follows: Option<WriteId>, turn: WriteId) -> Self {
        Self { decided: true, follows, turn }
    }

    /// Returns a proxy that found a decision and took its turn.
    pub(super) fn another(found: &UploadState, turn: WriteId) -> Self {
        let follows = match found {
            UploadState::Completing { follows, .. } => *follows,
            _ => None,
        };
        Self { decided: false, follows, turn }
    }

    /// Returns true if the object was not written when the entry's write was the key's.
    pub(super) fn followed(self, entry: &Entry) -> bool {
        self.follows == Some(entry.write_id)
    }
}

/// Returns the state of one decision that two replicas hold, if it is one. Replicas of earlier releases store a decision
/// without the write that it follows.
pub(super) fn decided_alike(one: &UploadState, other: &UploadState) -> Option<UploadState> {
    let decision = |state: &UploadState| match state {
        UploadState::Completing { write_id, order, .. } => Some((*write_id, *order)),
        _ => None,
    };
    let names_write =
        |state: &UploadState| matches!(state, UploadState::Completing { follows: Some(_), .. });
    let is_same = decision(one).is_some() && decision(one) == decision(other);
    is_same.then(|| if names_write(one) { one } else { other }.clone())
}

/// A decided completion.
#[derive(Clone, Copy)]
pub(super) struct Decision<'a> {
    pub(super) write_id: WriteId,
    pub(super) order: Stamp,
    pub(super) object: &'a Object,
    pub(super) condition: &'a KeyCondition,
    pub(super) driver: Driver,
}

impl Decision<'_> {
    /// Returns true if the key's entry shows that the object was never written.
    pub(super) fn may_follow(&self, entry: Option<&Entry>, now_ms: u64) -> bool {
        match entry {
            Some(entry) if entry.order <= self.order => true,
            Some(entry) => self.driver.followed(entry) && !self.is_late(now_ms),
            None => !self.is_late(now_ms),
        }
    }

    /// Returns true if a tombstone of the object may have been collected.
    pub(super) fn is_late(&self, now_ms: u64) -> bool {
        now_ms > self.order.time_ms() + UNDRIVEN_MS_MAX
    }

    /// Returns true if the entry is a version that came after the decision. A version keeps its position, also where a change
    /// of another one writes it again under its own id.
    pub(super) fn is_before(&self, entry: &Entry) -> bool {
        entry.value.version().is_some_and(|version| version.position > self.order.time)
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Version;
    use martlet_protocol::entry::{Attributes, Body, DeleteMarker, ETag, Value};

    use super::*;

    const DECIDED_MS: u64 = 1_000_000;
    const LATE_MS: u64 = DECIDED_MS + UNDRIVEN_MS_MAX + 1;
    /// A proxy without a proof.
    const ANOTHER: Driver = Driver { decided: false, follows: None, turn: WriteId([8; 16]) };

    fn id(of: u8) -> WriteId {
        WriteId([of; 16])
    }

    /// An entry of this write, with a version of a position.
    fn entry(of: u8, order_ms: u64, position_ms: u64) -> Entry {
        let version = Version { position: Stamp::at_ms(position_ms).time, id: Some(id(of)) };
        let marker = DeleteMarker { modified_ms: 0, version: Some(version) };
        let value = Value::DeleteMarker(Box::new(marker));
        Entry { order: Stamp::at_ms(order_ms), write_id: id(of), value }
    }

    fn judged<T>(driver: Driver, judge: impl FnOnce(Decision<'_>) -> T) -> T {
        let object = Object {
            size: 0,
            etag: ETag::Md5([0; 16]),
            modified_ms: 0,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        };
        let (write_id, order) = (id(9), Stamp::at_ms(DECIDED_MS));
        let condition = KeyCondition::default();
        judge(Decision { write_id, order, object: &object, condition: &condition, driver })
    }

    #[test]
    fn m1_a_raised_order_needs_a_proof_and_a_proof_lasts_as_long_as_tombstones() {
        let knows_1 = Driver { follows: Some(id(1)), ..ANOTHER };
        let decided_over_1 = Driver::decider(Some(id(1)), id(8));
        let (lower, raised) = (entry(1, DECIDED_MS, 5), entry(1, DECIDED_MS + 1, 5));
        let another = entry(2, DECIDED_MS + 1, 5);
        for (driver, is_known) in [(ANOTHER, false), (knows_1, true), (decided_over_1, true)] {
            let may = |entry, now_ms| judged(driver, |it| it.may_follow(entry, now_ms));
            assert!(may(Some(&lower), LATE_MS));
            assert_eq!(may(Some(&raised), DECIDED_MS), is_known);
            assert!(!may(Some(&another), DECIDED_MS));
            assert!(!may(Some(&raised), LATE_MS) && !may(None, LATE_MS));
            assert!(may(None, LATE_MS - 1));
        }
    }

    #[test]
    fn m1_a_decision_without_its_followed_write_is_the_same_decision() {
        let state = |decided: u8, order_ms, follows| {
            let object = judged(ANOTHER, |it| Box::new(it.object.clone()));
            let (write_id, order) = (id(decided), Stamp::at_ms(order_ms));
            let condition = KeyCondition::default();
            UploadState::Completing { write_id, order, object, condition, follows }
        };
        let (named, unnamed) = (state(9, 5, Some(id(1))), state(9, 5, None));
        for [one, other] in [[&named, &unnamed], [&unnamed, &named], [&named, &named]] {
            assert_eq!(decided_alike(one, other).as_ref(), Some(&named));
        }
        assert_eq!(decided_alike(&unnamed, &unnamed).as_ref(), Some(&unnamed));
        for other in [state(8, 5, None), state(9, 6, None), UploadState::Open] {
            assert_eq!(decided_alike(&named, &other), None);
            assert_eq!(decided_alike(&other, &named), None);
        }
        assert_eq!(decided_alike(&UploadState::Open, &UploadState::Open), None);
    }

    #[test]
    fn m1_a_version_came_after_the_decision_by_its_position() {
        let is_before = |entry: &Entry| judged(ANOTHER, |it| it.is_before(entry));
        assert!(!is_before(&entry(1, DECIDED_MS + 9, DECIDED_MS)));
        assert!(is_before(&entry(1, DECIDED_MS + 9, DECIDED_MS + 1)));
        let tombstone = Entry { value: Value::Tombstone, ..entry(1, DECIDED_MS + 9, 0) };
        assert!(!is_before(&tombstone));
    }
}
