//! State machine of one register on one replica, without I/O.
//!
//! Rule R1: current entry, promise and accepted value form one register. An accept at a ballot is
//! stored like a plain write of that order, so that plain and conditional writes share one order.
//!
//! Invariants, for every sequence of calls:
//! * `promise` and the held order never fall;
//! * nothing is stored below a promise, or at or below the held order;
//! * a write with the held write id answers [`Verdict::Held`] again, so that retries are harmless.
//!   The accept of a lower ballot is an exception: another proxy that continued this write gave it
//!   another position among the versions, and the late proxy must learn that position.

use crate::id::WriteId;
use crate::stamp::Stamp;

/// State of a register that decides about writes and ballots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// Lowest ballot or write order that is accepted.
    pub promise: Stamp,
    /// Order and write id of the held entry.
    pub held: Option<(Stamp, WriteId)>,
}

/// Origin of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum WriteMode {
    /// A plain write that no replica has accepted yet: it may be stamped again (rule R3).
    Fresh,
    /// A plain write that some replica has accepted: a replica that holds a higher order
    /// acknowledges the write as superseded (rule R4).
    Settled,
    /// The second half of a ballot: the order is the ballot that was promised (rule R7).
    Accept,
    /// A write copied from other replicas by a hint, a repair or a move (rule R6). It isn't
    /// first-hand, so its age and the bucket's generation aren't checked. Its `commit_by_ms` is, so
    /// that a late copy doesn't restore collected entries (rule T2).
    Repair,
}

impl WriteMode {
    /// True if the write comes directly from a client's request.
    pub fn is_first_hand(self) -> bool {
        self != Self::Repair
    }
}

/// Decision of a replica about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Stored.
    Store,
    /// This write id is held already, at this order or a higher one.
    Held,
    /// Something newer is held; the write counts as acknowledged and overwritten.
    Superseded,
    /// Refused: the order must lie above this stamp.
    Behind(Stamp),
}

impl Register {
    /// Stamp that a new ballot must exceed: the higher of promise and held order.
    pub fn floor(&self) -> Stamp {
        self.promise.max(self.order())
    }

    /// Held order, or [`Stamp::ZERO`].
    pub fn order(&self) -> Stamp {
        self.held.map_or(Stamp::ZERO, |(order, _)| order)
    }

    /// Promises `ballot`.
    ///
    /// # Errors
    /// The floor, when `ballot` is not above it.
    pub fn promise(&mut self, ballot: Stamp) -> Result<(), Stamp> {
        if ballot <= self.floor() {
            return Err(self.floor());
        }
        self.promise = ballot;
        Ok(())
    }

    /// Decides about a write, and holds it if the verdict is [`Verdict::Store`].
    pub fn write(&mut self, order: Stamp, write_id: WriteId, mode: WriteMode) -> Verdict {
        let is_late = |held| held > order && mode == WriteMode::Accept;
        match self.held {
            Some((held, id)) if id == write_id && held >= order && !is_late(held) => {
                return Verdict::Held;
            }
            Some((held, _)) if held >= order => {
                return match mode {
                    WriteMode::Settled | WriteMode::Repair => Verdict::Superseded,
                    WriteMode::Fresh | WriteMode::Accept => Verdict::Behind(self.floor()),
                };
            }
            _ => {}
        }
        if order < self.promise {
            return Verdict::Behind(self.floor());
        }
        self.held = Some((order, write_id));
        Verdict::Store
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stamp::WriterId;

    fn at(time: u64) -> Stamp {
        Stamp { time, writer: WriterId(0) }
    }

    fn id(byte: u8) -> WriteId {
        WriteId([byte; 16])
    }

    #[test]
    fn a_ballot_shuts_out_what_lies_below() {
        let mut register = Register::default();
        register.promise(at(5)).unwrap();
        assert_eq!(register.promise(at(5)), Err(at(5)));
        assert_eq!(register.write(at(4), id(1), WriteMode::Fresh), Verdict::Behind(at(5)));
        assert_eq!(register.write(at(5), id(2), WriteMode::Accept), Verdict::Store);
        assert_eq!(register.promise(at(5)), Err(at(5)));
    }

    #[test]
    fn two_creates_with_promises_crossed_have_one_winner() {
        let mut register = Register::default();
        register.promise(at(1)).unwrap();
        register.promise(at(2)).unwrap();
        assert_eq!(register.write(at(1), id(1), WriteMode::Accept), Verdict::Behind(at(2)));
        assert_eq!(register.write(at(2), id(2), WriteMode::Accept), Verdict::Store);
    }

    #[test]
    fn a_retry_is_held_and_a_settled_write_is_superseded() {
        let mut register = Register::default();
        assert_eq!(register.write(at(3), id(1), WriteMode::Fresh), Verdict::Store);
        assert_eq!(register.write(at(3), id(1), WriteMode::Fresh), Verdict::Held);
        assert_eq!(register.write(at(2), id(2), WriteMode::Settled), Verdict::Superseded);
        assert_eq!(register.write(at(2), id(2), WriteMode::Fresh), Verdict::Behind(at(3)));
    }

    #[test]
    fn an_identity_round_may_raise_a_write() {
        let mut register = Register::default();
        register.write(at(3), id(1), WriteMode::Fresh);
        register.promise(at(9)).unwrap();
        assert_eq!(register.write(at(9), id(1), WriteMode::Accept), Verdict::Store);
        assert_eq!(register.order(), at(9));
        assert_eq!(register.write(at(9), id(1), WriteMode::Accept), Verdict::Held);
        assert_eq!(register.write(at(3), id(1), WriteMode::Fresh), Verdict::Held);
        assert_eq!(register.write(at(8), id(1), WriteMode::Accept), Verdict::Behind(at(9)));
    }

    #[test]
    fn only_repairs_are_not_first_hand() {
        let first_hand = [WriteMode::Fresh, WriteMode::Settled, WriteMode::Accept];
        assert!(first_hand.into_iter().all(WriteMode::is_first_hand));
        assert!(!WriteMode::Repair.is_first_hand());
    }

    #[derive(Clone, Debug)]
    enum ReplicaCall {
        Promise(u64),
        Write(u64, u8, WriteMode),
    }

    fn any_call() -> impl Strategy<Value = ReplicaCall> {
        let mode =
            prop_oneof![Just(WriteMode::Fresh), Just(WriteMode::Settled), Just(WriteMode::Accept)];
        prop_oneof![
            (1u64..20).prop_map(ReplicaCall::Promise),
            (1u64..20, 0u8..5, mode)
                .prop_map(|(time, id, mode)| ReplicaCall::Write(time, id, mode)),
        ]
    }

    proptest! {
        /// Repairs, hints and moves merge: registers end in equal states whatever the order and
        /// number of the writes.
        #[test]
        fn repairs_merge_in_any_order_and_any_number(
            writes in proptest::collection::vec((0u8..4, 1u64..9), 0..12),
            again in proptest::collection::vec(0usize..12, 0..12),
        ) {
            // Equal orders mean equal writes.
            let apply = |writes: &[(u8, u64)]| {
                let mut registers = std::collections::BTreeMap::<u8, Register>::new();
                for &(name, time) in writes {
                    let register = registers.entry(name).or_default();
                    register.write(at(time), id(u8::try_from(time).unwrap()), WriteMode::Repair);
                }
                registers
            };
            let mut others: Vec<_> = writes.iter().rev().copied().collect();
            others.extend(again.iter().filter_map(|at| writes.get(*at)));
            prop_assert_eq!(apply(&writes), apply(&others));
            for (name, register) in apply(&writes) {
                let of_name = writes.iter().filter(|(of, _)| *of == name).map(|(_, time)| *time);
                prop_assert_eq!(register.order(), of_name.max().map_or(Stamp::ZERO, at));
            }
        }

        #[test]
        fn nothing_ever_falls(calls in proptest::collection::vec(any_call(), 0..50)) {
            let mut register = Register::default();
            for call in calls {
                let before = register;
                match call {
                    ReplicaCall::Promise(time) => {
                        let granted = register.promise(at(time)).is_ok();
                        prop_assert_eq!(granted, at(time) > before.floor());
                    }
                    ReplicaCall::Write(time, byte, mode) => {
                        let verdict = register.write(at(time), id(byte), mode);
                        if verdict == Verdict::Store {
                            prop_assert!(at(time) >= before.promise && at(time) > before.order());
                        } else {
                            prop_assert_eq!(register, before);
                        }
                    }
                }
                prop_assert!(register.promise >= before.promise);
                prop_assert!(register.order() >= before.order());
            }
        }
    }
}
