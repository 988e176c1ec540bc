//! Conditions of calls whose effect must not come late, or on another device than the caller saw.
//!
//! A request may be executed minutes after it was sent, and a device may be replaced meanwhile. A
//! call with a condition is refused then, without effect. The node compares in the same serial step
//! that changes its state, so nothing comes between.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{DeviceIdentity, PolicyId};
use crate::limits::CONDITION_MS;
use crate::term::Term;

/// Condition of a call for one formatting of a device, for a limited time (rules G1, G2, P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCondition {
    /// Identity of the device that the caller saw.
    pub identity: DeviceIdentity,
    /// Cluster time after which the call is refused, in milliseconds since 1970.
    pub not_after_ms: u64,
}

/// Condition of a drop of registers: strays, which their partition's members hold (rules P1, P3), and
/// collected tombstones and promises (rule T1). A device has a ring change's term before it joins. So no
/// drop of an earlier term reaches a device that has become a member again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrayCondition {
    /// Term by which the device is no member. The device has recorded exactly this term.
    pub term: Term,
    /// Cluster time after which the call is refused, in milliseconds since 1970.
    pub not_after_ms: u64,
}

/// Condition of a delete of extents that no entry needs (rule X8). After its time a hold on collection
/// may be in force, and an entry may need the extents again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteCondition {
    /// Cluster time after which the call is refused, in milliseconds since 1970.
    pub not_after_ms: u64,
}

/// Condition of a release of copies (rule X9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseCondition {
    /// Cluster time after which the call is refused, in milliseconds since 1970.
    pub not_after_ms: u64,
    /// Rings by which the caller knows the other holders. Each is refused by a node that has a later
    /// ring of that policy, another one of its epoch, or none.
    pub rings: Vec<RingEpoch>,
}

/// Epoch of a policy's ring, and the ring among those of this epoch: two builders may be in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingEpoch {
    /// Policy of the ring.
    pub policy: PolicyId,
    /// Epoch of the ring.
    pub epoch: u64,
    /// First bytes of the ring's hash.
    pub hash: [u8; 8],
}

impl RingEpoch {
    /// Returns the epoch of a ring with this hash.
    pub fn of(policy: PolicyId, epoch: u64, hash: &[u8; 32]) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        Self { policy, epoch, hash: first }
    }
}

/// Epochs of the data rings that a node has on disk. They never fall.
#[derive(Debug, Default)]
pub struct RingEpochs(RwLock<BTreeMap<PolicyId, RingEpoch>>);

impl DeviceCondition {
    /// Returns a condition for calls that are sent at `now_ms`, or little later.
    pub fn at(identity: DeviceIdentity, now_ms: u64) -> Self {
        Self { identity, not_after_ms: now_ms.saturating_add(CONDITION_MS) }
    }

    /// Checks the condition at a device. `Conflict` without effect on another device, `Unavailable`
    /// without effect after the time.
    pub fn check(&self, identity: DeviceIdentity, now_ms: u64) -> Result<()> {
        if self.identity != identity {
            return Err(Error::conflict("the call is for another device").without_effect(format!(
                "device {identity} is in the place of {}",
                self.identity
            )));
        }
        check_time(self.not_after_ms, now_ms)
    }
}

impl StrayCondition {
    /// Returns a condition for calls that are sent at `now_ms`, or little later.
    pub fn at(term: Term, now_ms: u64) -> Self {
        Self { term, not_after_ms: now_ms.saturating_add(CONDITION_MS) }
    }

    /// Checks the condition at a device. `Conflict` without effect on a device of another term,
    /// `Unavailable` without effect after the time.
    pub fn check(&self, term: Term, now_ms: u64) -> Result<()> {
        if self.term != term {
            return Err(Error::conflict("the ring has changed")
                .without_effect(format!("the device has term {term}, the caller {}", self.term)));
        }
        check_time(self.not_after_ms, now_ms)
    }
}

impl DeleteCondition {
    /// Checks the condition. `Unavailable` without effect after the time.
    pub fn check(&self, now_ms: u64) -> Result<()> {
        check_time(self.not_after_ms, now_ms)
    }
}

impl ReleaseCondition {
    /// Returns the condition for a release of copies that the named bytes prove to be wrong. The
    /// bytes of an extent never change, so neither time nor rings matter.
    pub fn of_wrong_copies() -> Self {
        Self { not_after_ms: u64::MAX, rings: Vec::new() }
    }

    /// Returns true for [`Self::of_wrong_copies`]. No later opening of the device may find such a copy
    /// again.
    pub fn is_of_wrong_copies(&self) -> bool {
        *self == Self::of_wrong_copies()
    }

    /// Checks the time. `Unavailable` without effect after it.
    pub fn check_time(&self, now_ms: u64) -> Result<()> {
        check_time(self.not_after_ms, now_ms)
    }
}

fn check_time(not_after_ms: u64, now_ms: u64) -> Result<()> {
    if now_ms <= not_after_ms {
        return Ok(());
    }
    let late_ms = now_ms - not_after_ms;
    Err(Error::unavailable("the call came too late").without_effect(format!("by {late_ms} ms")))
}

impl RingEpochs {
    /// Records a ring that the node has on disk.
    pub fn raise(&self, ring: RingEpoch) {
        let mut epochs = self.0.write();
        let known = epochs.entry(ring.policy).or_insert(ring);
        if ring.epoch > known.epoch {
            *known = ring;
        }
    }

    /// Checks a release by these rings. `Unavailable` without effect if the node has a later ring,
    /// another one of the same epoch, or none of a policy.
    pub fn check_release(&self, rings: &[RingEpoch]) -> Result<()> {
        self.check(rings, |own, named| own <= named)
    }

    /// Checks a statement about copies by these rings. `Unavailable` without effect if the node has
    /// an earlier ring, another one of the same epoch, or none of a policy.
    pub fn check_statement(&self, rings: &[RingEpoch]) -> Result<()> {
        self.check(rings, |own, named| own >= named)
    }

    fn check(&self, rings: &[RingEpoch], fits: impl Fn(u64, u64) -> bool) -> Result<()> {
        let epochs = self.0.read();
        for named in rings {
            let own = epochs.get(&named.policy);
            let is_another = |own: &RingEpoch| own.epoch == named.epoch && own.hash != named.hash;
            if own.is_some_and(|own| fits(own.epoch, named.epoch) && !is_another(own)) {
                continue;
            }
            let has = match own {
                None => "none".to_owned(),
                Some(own) if is_another(own) => format!("another of epoch {}", own.epoch),
                Some(own) => format!("epoch {}", own.epoch),
            };
            let RingEpoch { policy, epoch, .. } = named;
            return Err(Error::unavailable("the node has another ring")
                .without_effect(format!("{has} of policy {}, not epoch {epoch}", policy.0)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn ring(policy: u16, epoch: u64) -> RingEpoch {
        RingEpoch::of(PolicyId(policy), epoch, &[1; 32])
    }

    #[test]
    fn another_device_and_a_late_call_are_refused_without_effect() {
        let (own, other) = (DeviceIdentity([1; 16]), DeviceIdentity([2; 16]));
        let condition = DeviceCondition::at(own, 1000);
        assert!(condition.check(own, 1000).is_ok());
        assert!(condition.check(own, 0).is_ok(), "a clock behind the caller's");
        assert!(condition.check(own, 1000 + CONDITION_MS).is_ok());
        let late = condition.check(own, 1001 + CONDITION_MS).unwrap_err();
        assert_eq!((late.kind(), late.had_no_effect()), (ErrorKind::Unavailable, true));
        let swapped = condition.check(other, 1000).unwrap_err();
        assert_eq!((swapped.kind(), swapped.had_no_effect()), (ErrorKind::Conflict, true));
        assert!(DeviceCondition::at(own, u64::MAX).check(own, u64::MAX).is_ok());
    }

    #[test]
    fn strays_are_dropped_at_their_term_alone_and_in_time() {
        let condition = StrayCondition::at(Term(4), 1000);
        assert!(condition.check(Term(4), 1000 + CONDITION_MS).is_ok());
        for other in [Term(3), Term(5)] {
            let refusal = condition.check(other, 1000).unwrap_err();
            assert_eq!((refusal.kind(), refusal.had_no_effect()), (ErrorKind::Conflict, true));
        }
        let late = condition.check(Term(4), 1001 + CONDITION_MS).unwrap_err();
        assert_eq!((late.kind(), late.had_no_effect()), (ErrorKind::Unavailable, true));
    }

    #[test]
    fn a_delete_is_refused_without_effect_after_its_time() {
        let condition = DeleteCondition { not_after_ms: 1000 };
        assert!(condition.check(0).is_ok() && condition.check(1000).is_ok());
        let late = condition.check(1001).unwrap_err();
        assert_eq!((late.kind(), late.had_no_effect()), (ErrorKind::Unavailable, true));
    }

    #[test]
    fn only_a_release_without_time_and_rings_is_one_of_wrong_copies() {
        let wrong = ReleaseCondition::of_wrong_copies();
        assert!(wrong.is_of_wrong_copies());
        let late = ReleaseCondition { not_after_ms: u64::MAX - 1, ..wrong.clone() };
        let by_ring = ReleaseCondition { rings: vec![ring(0, 1)], ..wrong };
        assert!(!late.is_of_wrong_copies() && !by_ring.is_of_wrong_copies());
    }

    #[test]
    fn a_node_releases_by_no_earlier_ring_and_states_nothing_by_a_later_one() {
        let epochs = RingEpochs::default();
        assert!(epochs.check_release(&[]).is_ok() && epochs.check_statement(&[]).is_ok());
        assert!(epochs.check_release(&[ring(0, 1)]).is_err(), "no ring is known");
        assert!(epochs.check_statement(&[ring(0, 1)]).is_err());
        epochs.raise(ring(0, 5));
        epochs.raise(ring(0, 4));
        for (epoch, releases, states) in [(4, false, true), (5, true, true), (6, true, false)] {
            assert_eq!(epochs.check_release(&[ring(0, epoch)]).is_ok(), releases, "{epoch}");
            assert_eq!(epochs.check_statement(&[ring(0, epoch)]).is_ok(), states, "{epoch}");
        }
        // Two builders made a ring of this epoch, each with other holders.
        let another = RingEpoch::of(PolicyId(0), 5, &[2; 32]);
        assert!(epochs.check_release(&[another]).is_err());
        assert!(epochs.check_statement(&[another]).is_err());
        let refused = epochs.check_release(&[ring(0, 5), ring(1, 1)]).unwrap_err();
        assert!(refused.had_no_effect() && refused.kind() == ErrorKind::Unavailable);
    }
}
