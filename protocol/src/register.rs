//! The state machine of one register on one replica, without any I/O.
//!
//! Rule R1: current entry, promise and accepted value form one register. An accept at a ballot is
//! held like a plain write of that order, so that plain and conditional writes share one order.
//!
//! Invariants, for every sequence of calls:
//! * `promise` and the order held never fall;
//! * nothing is stored below a promise, or at or below the order held;
//! * a write id that is held answers [`Verdict::Held`] again, so that retries are harmless. But not to
//!   the accept of a lower ballot: another proxy that drives the same write on gave it a place of its
//!   own among versions, and whoever comes late has to learn which.

use crate::id::WriteId;
use crate::stamp::Stamp;

/// What of a register matters for deciding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// No ballot or write below this is taken.
    pub promise: Stamp,
    /// Order and write id of the entry held.
    pub held: Option<(Stamp, WriteId)>,
}

/// How a write came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum WriteMode {
    /// A plain write that no replica has taken yet: it may be stamped again (rule R3).
    Fresh,
    /// A plain write that some replica took: a replica that holds a higher order acknowledges it
    /// as superseded (rule R4).
    Settled,
    /// The second half of a ballot: the order is the ballot that was promised (rule R7).
    Accept,
    /// A write that others hold already, brought by a hint, a repair or a move (rule R6). Not
    /// first-hand, so neither its age nor the bucket's generation is judged; its `commit_by_ms` is,
    /// so that what was read long ago brings nothing back that was collected since (rule T2).
    Repair,
}

impl WriteMode {
    /// Whether the write comes straight from a client's request.
    pub fn is_first_hand(self) -> bool {
        self != Self::Repair
    }
}

/// What a replica does with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Store it.
    Store,
    /// This write id is held already, at this order or a higher one.
    Held,
    /// Something newer is held, and the write counts as acknowledged and overwritten.
    Superseded,
    /// Refused: its order must lie above this.
    Behind(Stamp),
}

impl Register {
    /// The lowest order that a new write must exceed.
    pub fn floor(&self) -> Stamp {
        self.promise.max(self.order())
    }

    /// The order held, or [`Stamp::ZERO`].
    pub fn order(&self) -> Stamp {
        self.held.map_or(Stamp::ZERO, |(order, _)| order)
    }

    /// Promises `ballot`, or says what a ballot must exceed.
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

    /// Decides about a write, and holds it when the verdict is [`Verdict::Store`].
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

    #[derive(Clone, Debug)]
    enum Call {
        Promise(u64),
        Write(u64, u8, WriteMode),
    }

    fn any_call() -> impl Strategy<Value = Call> {
        let mode =
            prop_oneof![Just(WriteMode::Fresh), Just(WriteMode::Settled), Just(WriteMode::Accept)];
        prop_oneof![
            (1u64..20).prop_map(Call::Promise),
            (1u64..20, 0u8..5, mode).prop_map(|(time, id, mode)| Call::Write(time, id, mode)),
        ]
    }

    proptest! {
        /// Repairs, hints and moves merge: in whatever order and however often they come, a register
        /// and those beside it hold the same in the end.
        #[test]
        fn repairs_merge_in_any_order_and_any_number(
            writes in proptest::collection::vec((0u8..4, 1u64..9), 0..12),
            again in proptest::collection::vec(0usize..12, 0..12),
        ) {
            // One order is one write, as everywhere.
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
                    Call::Promise(time) => {
                        let granted = register.promise(at(time)).is_ok();
                        prop_assert_eq!(granted, at(time) > before.floor());
                    }
                    Call::Write(time, byte, mode) => {
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
