//! Verdict on one tombstone, by the holdings of every device of the index ring: a pure function.

use std::collections::HashMap;

use martlet_protocol::backend::Holding;
use martlet_protocol::{DeviceId, Stamp};

/// A tombstone, and every device's holding of its register.
pub(super) struct TombstoneCase<'a> {
    pub(super) order: Stamp,
    pub(super) primaries: &'a [DeviceId],
    /// Holdings of the primaries, and of all devices that hold something.
    pub(super) holdings: &'a HashMap<DeviceId, Holding>,
    /// No proxy uses a promise from before this stamp any more.
    pub(super) before: Stamp,
}

/// Allowed action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectDecision {
    /// None.
    Keep,
    /// Mark the tombstone on all primaries.
    Mark,
    /// Drop the tombstone, which is marked on all its holders.
    Drop {
        /// The drop is refused if anything above this has come.
        up_to: Stamp,
    },
}

impl TombstoneCase<'_> {
    pub(super) fn verdict(&self) -> CollectDecision {
        let (mut missing, mut unmarked, mut promise) = (0, 0, Stamp::ZERO);
        for (device, holding) in self.holdings {
            let is_primary = self.primaries.contains(device);
            promise = promise.max(holding.promise);
            match holding.held {
                _ if holding.hint.is_some() => return CollectDecision::Keep,
                // A marked tombstone is not exchanged, on any device.
                Some((order, _)) if order == self.order && (is_primary || holding.collectable) => {
                    unmarked += usize::from(!holding.collectable);
                }
                // A stray left when the others were settled anew: marked tombstones don't move, and
                // it is dropped with them.
                Some((order, _)) if !is_primary && holding.collectable && order < self.order => {}
                // Another order, or a stray copy that would come back.
                Some(_) => return CollectDecision::Keep,
                None => missing += usize::from(is_primary),
            }
        }
        if !self.all_answer() || promise >= self.before {
            return CollectDecision::Keep;
        }
        match (missing, unmarked) {
            // A primary may lack it: it has dropped it in a collection that was cut off, or is an
            // empty disk. It is asked again before the drop.
            (_, 0) => CollectDecision::Drop { up_to: self.order.max(promise) },
            (0, _) => CollectDecision::Mark,
            _ => CollectDecision::Keep,
        }
    }

    fn all_answer(&self) -> bool {
        self.primaries.iter().all(|id| self.holdings.contains_key(id))
    }

    /// Returns the highest promise for an otherwise empty register, if the promise has expired.
    pub(super) fn spent_promise(&self) -> Option<Stamp> {
        let mut holdings = self.holdings.values();
        let is_empty = holdings.all(|it| it.held.is_none() && it.hint.is_none());
        let promise = self.holdings.values().map(|holding| holding.promise).max()?;
        (self.all_answer() && is_empty && promise < self.before).then_some(promise)
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::WriteId;

    use super::*;

    const PRIMARIES: [DeviceId; 3] = [DeviceId(0), DeviceId(1), DeviceId(2)];
    const ORDER: Stamp = Stamp::at_ms(500);

    fn holds(order: Stamp, collectable: bool) -> Holding {
        Holding { held: Some((order, WriteId([1; 16]))), collectable, ..Holding::default() }
    }

    /// Returns the verdict for four devices, three of which are primaries.
    fn verdict(holdings: [Holding; 4]) -> CollectDecision {
        let holdings = (0..4).map(DeviceId).zip(holdings).collect();
        let before = Stamp::at_ms(1000);
        let holdings = &holdings;
        TombstoneCase { order: ORDER, primaries: &PRIMARIES, holdings, before }.verdict()
    }

    #[test]
    fn a_tombstone_that_all_hold_is_marked_and_then_goes() {
        let (held, marked, none) = (holds(ORDER, false), holds(ORDER, true), Holding::default());
        let of = |all: [&Holding; 4]| verdict(all.map(Clone::clone));
        let gone = CollectDecision::Drop { up_to: ORDER };
        assert_eq!(of([&held, &held, &held, &none]), CollectDecision::Mark);
        assert_eq!(
            of([&held, &marked, &marked, &none]),
            CollectDecision::Mark,
            "begun, and cut off"
        );
        assert_eq!(of([&marked, &marked, &marked, &none]), gone);
        assert_eq!(of([&marked, &none, &none, &none]), gone, "some let it go already");
        assert_eq!(of([&held, &held, &none, &none]), CollectDecision::Keep);
        assert_eq!(of([&held, &marked, &none, &none]), CollectDecision::Keep);
    }

    #[test]
    fn an_entry_on_any_other_device_keeps_the_tombstone() {
        let (marked, none) = (holds(ORDER, true), Holding::default());
        let with = |third: Holding, other: Holding| {
            verdict([marked.clone(), marked.clone(), third, other])
        };
        let hint = Holding { hint: Some(Stamp::at_ms(1)), ..none.clone() };
        assert_eq!(with(marked.clone(), hint), CollectDecision::Keep);
        assert_eq!(
            with(marked.clone(), holds(Stamp::at_ms(1), false)),
            CollectDecision::Keep,
            "older"
        );
        assert_eq!(
            with(marked.clone(), holds(ORDER, false)),
            CollectDecision::Keep,
            "not its place"
        );
        assert_eq!(with(marked.clone(), marked.clone()), CollectDecision::Drop { up_to: ORDER });
        assert_eq!(
            with(marked.clone(), holds(Stamp::at_ms(600), true)),
            CollectDecision::Keep,
            "newer"
        );
        assert_eq!(with(holds(Stamp::at_ms(1), false), none.clone()), CollectDecision::Keep);
        assert_eq!(
            with(holds(Stamp::at_ms(1), true), none.clone()),
            CollectDecision::Keep,
            "its place"
        );
        assert_eq!(with(holds(Stamp::at_ms(600), false), none.clone()), CollectDecision::Keep);
        let promised = |ms| Holding { promise: Stamp::at_ms(ms), ..marked.clone() };
        assert_eq!(
            with(promised(1000), none.clone()),
            CollectDecision::Keep,
            "it may be made use of yet"
        );
        let up_to = Stamp::at_ms(900);
        assert_eq!(with(promised(900), none), CollectDecision::Drop { up_to });
    }

    #[test]
    fn a_marked_one_that_was_left_behind_goes_with_the_others() {
        let (held, marked) = (holds(ORDER, false), holds(ORDER, true));
        let left = holds(Stamp::at_ms(1), true);
        let of = |one: &Holding| verdict([one.clone(), one.clone(), one.clone(), left.clone()]);
        assert_eq!(of(&held), CollectDecision::Mark);
        assert_eq!(of(&marked), CollectDecision::Drop { up_to: ORDER });
    }

    #[test]
    fn an_old_promise_is_spent_if_no_device_holds_an_entry() {
        let promised = |ms| Holding { promise: Stamp::at_ms(ms), ..Holding::default() };
        let spent = |holdings: [Holding; 4]| {
            let holdings = &(0..4).map(DeviceId).zip(holdings).collect();
            let before = Stamp::at_ms(1000);
            TombstoneCase { order: Stamp::ZERO, primaries: &PRIMARIES, holdings, before }
                .spent_promise()
        };
        let (none, hint) = (Holding::default(), Some(Stamp::at_ms(1)));
        let with = |other: Holding| spent([promised(900), promised(5), none.clone(), other]);
        assert_eq!(with(none.clone()), Some(Stamp::at_ms(900)));
        assert_eq!(with(promised(1000)), None, "young");
        assert_eq!(with(Holding { hint, ..none.clone() }), None, "a hint is on its way");
        assert_eq!(with(holds(Stamp::at_ms(1), true)), None, "somebody holds it");
        let some = [(DeviceId(0), promised(1)), (DeviceId(1), promised(1))];
        let before = Stamp::at_ms(1000);
        let (order, holdings) = (Stamp::ZERO, &some.into());
        let case = TombstoneCase { order, primaries: &PRIMARIES, holdings, before };
        assert_eq!(case.spent_promise(), None, "one is silent");
    }

    #[test]
    fn silence_keeps_it() {
        let holdings = [(DeviceId(0), holds(ORDER, true)), (DeviceId(1), holds(ORDER, true))];
        let before = Stamp::at_ms(1000);
        let case = TombstoneCase {
            order: ORDER,
            primaries: &PRIMARIES,
            holdings: &holdings.into(),
            before,
        };
        assert_eq!(case.verdict(), CollectDecision::Keep);
    }
}
