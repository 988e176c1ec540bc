//! Count of the replicas' replies to one write. Pure.

use martlet_protocol::backend::WriteReply;
use martlet_protocol::{DeviceId, Error, ErrorKind, Result, Stamp};
use martlet_ring::Sets;

use crate::quorum::QuorumTally;

/// Replies of the members to one write.
pub(super) struct ReplicaVotes<'a> {
    /// Devices that hold the write.
    stored: QuorumTally<'a>,
    /// Devices that hold it, or a later entry that superseded it.
    taken: QuorumTally<'a>,
    /// Devices that replied with a result.
    answered: QuorumTally<'a>,
    pub(super) behind: Option<Stamp>,
    pub(super) fenced: bool,
    pub(super) out_of_time: bool,
    pub(super) unknown: Option<Error>,
    pub(super) refused: Option<Error>,
    /// A replica was unreachable.
    pub(super) unreached: Option<Error>,
    /// A replica is at a later term.
    pub(super) outdated: Option<Error>,
}

impl<'a> ReplicaVotes<'a> {
    pub(super) fn of(sets: &'a Sets) -> Self {
        let none = || QuorumTally::new(sets);
        Self {
            stored: none(),
            taken: none(),
            answered: none(),
            behind: None,
            fenced: false,
            out_of_time: false,
            unknown: None,
            refused: None,
            unreached: None,
            outdated: None,
        }
    }

    /// Counts the reply of one replica.
    pub(super) fn push(&mut self, device: DeviceId, reply: Result<WriteReply>) {
        if let Ok(WriteReply::Stored | WriteReply::Superseded | WriteReply::Behind(_)) = &reply {
            self.answered.push(device, true);
        }
        match reply {
            Ok(WriteReply::Stored) => {
                self.stored.push(device, true);
                self.taken.push(device, true);
            }
            Ok(WriteReply::Superseded) => {
                self.taken.push(device, true);
            }
            Ok(WriteReply::Behind(floor)) => {
                self.behind = Some(self.behind.unwrap_or(floor).max(floor));
            }
            Ok(WriteReply::Fenced) => self.fenced = true,
            Ok(WriteReply::OutOfTime) => self.out_of_time = true,
            // Stored, but without a vote it doesn't count (rule G1).
            Ok(WriteReply::Unvoted) => {
                self.unknown =
                    Some(Error::unavailable("a replica stored the write without a vote"));
            }
            Err(error) if error.newer_term().is_some() => self.outdated = Some(error),
            Err(error) if error.kind() == ErrorKind::Invalid => self.refused = Some(error),
            Err(error) if error.had_no_effect() => put(&mut self.unreached, error),
            // Includes a full device: its log may have run out of space in the middle of a record.
            Err(error) => put(&mut self.unknown, error),
        }
    }

    /// Marks the missing replies as unknown results.
    pub(super) fn leave_silent(&mut self) {
        let error = || Error::unavailable("a replica does not answer");
        self.unknown.get_or_insert_with(error);
    }

    /// Returns true if a quorum of each set holds the write.
    pub(super) fn is_stored(&self) -> bool {
        self.stored.is_met()
    }

    /// Returns true if a quorum of each set holds the write or a later entry that superseded it.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_met()
    }

    /// Returns true if a quorum of each set replied with a result.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.is_met()
    }

    /// Devices that hold the write, or a later entry that superseded it.
    pub(super) fn holders(&self) -> Vec<DeviceId> {
        self.taken.yes().to_vec()
    }

    /// Marks the write as sent before at an earlier term: some replica may have it.
    pub(super) fn were_sent_before(&mut self) {
        let error = || Error::unavailable("a replica may have the write from an earlier attempt");
        self.unknown.get_or_insert_with(error);
    }

    /// Returns true if no replica can hold the write.
    pub(super) fn untouched(&self) -> bool {
        self.taken.yes().is_empty() && self.unknown.is_none()
    }

    /// The error of a failed write. "Full" is returned only if no other replica has replied, since
    /// it reports that nothing happened.
    pub(super) fn into_error(mut self) -> Error {
        if !self.answered.yes().is_empty() {
            for slot in [&mut self.unknown, &mut self.unreached] {
                let is_full = |error: &mut Error| error.kind() == ErrorKind::Full;
                if let Some(error) = slot.take_if(is_full) {
                    let message = format!("too few other replicas stored the write: {error}");
                    *slot = Some(Error::unavailable(message));
                }
            }
        }
        if let Some(error) = self.unknown.or(self.refused).or(self.outdated).or(self.unreached) {
            return error;
        }
        if self.out_of_time {
            return Error::unavailable("the write arrived too late, or clocks differ too much");
        }
        Error::unavailable("too few replicas stored the write")
    }
}

/// Stores an error; a "full" error doesn't replace another.
pub(super) fn put(slot: &mut Option<Error>, error: Error) {
    if slot.is_none() || error.kind() != ErrorKind::Full {
        *slot = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(replies: Vec<Result<WriteReply>>) -> (bool, ErrorKind) {
        let sets = Sets::single(&[1, 2, 3].map(DeviceId));
        let mut votes = ReplicaVotes::of(&sets);
        for (device, reply) in (1..).map(DeviceId).zip(replies) {
            votes.push(device, reply);
        }
        (votes.untouched(), votes.into_error().kind())
    }

    fn full() -> Result<WriteReply> {
        Err(Error::full("no room"))
    }

    #[test]
    fn a_full_replica_is_the_reason_only_where_no_other_answers() {
        let behind = || Ok(WriteReply::Behind(Stamp::ZERO));
        assert_eq!(after(vec![full(), full(), full()]), (false, ErrorKind::Full));
        for other in [Ok(WriteReply::Stored), behind()] {
            assert_eq!(after(vec![full(), other, behind()]), (false, ErrorKind::Unavailable));
        }
        let gone = || Err(Error::unavailable("gone"));
        assert_eq!(after(vec![full(), gone()]), (false, ErrorKind::Unavailable));
        assert_eq!(after(vec![gone(), full()]), (false, ErrorKind::Unavailable));
        // A refusal for lack of space without an effect counts as unreachable.
        let refused = || Err(Error::full("no room").without_effect("it looked first"));
        assert_eq!(after(vec![refused(), refused(), refused()]), (true, ErrorKind::Full));
        assert_eq!(after(vec![refused(), behind(), behind()]), (true, ErrorKind::Unavailable));
        assert_eq!(after(vec![Ok(WriteReply::Stored), refused()]), (false, ErrorKind::Unavailable));
    }

    #[test]
    fn each_count_needs_a_quorum_of_its_own_replies() {
        let sets = Sets::single(&[1, 2, 3].map(DeviceId));
        let met =
            |votes: &ReplicaVotes<'_>| [votes.is_stored(), votes.is_taken(), votes.is_answered()];
        let behind = || WriteReply::Behind(Stamp::ZERO);
        for (replies, expected, holders) in [
            ([WriteReply::Stored, WriteReply::Stored], [true, true, true], vec![1, 2]),
            ([WriteReply::Stored, WriteReply::Superseded], [false, true, true], vec![1, 2]),
            ([behind(), WriteReply::Stored], [false, false, true], vec![2]),
            ([WriteReply::Stored, WriteReply::Fenced], [false, false, false], vec![1]),
        ] {
            let mut votes = ReplicaVotes::of(&sets);
            assert_eq!(met(&votes), [false; 3]);
            for (device, reply) in (1..).map(DeviceId).zip(replies) {
                votes.push(device, Ok(reply));
            }
            assert_eq!(met(&votes), expected);
            let expected: Vec<_> = holders.into_iter().map(DeviceId).collect();
            assert_eq!(votes.holders(), expected);
        }
    }

    #[test]
    fn silent_replicas_and_earlier_attempts_may_have_the_write() {
        let sets = Sets::single(&[1, 2, 3].map(DeviceId));
        for mark in [ReplicaVotes::leave_silent, ReplicaVotes::were_sent_before] {
            let mut votes = ReplicaVotes::of(&sets);
            assert!(votes.untouched());
            mark(&mut votes);
            assert!(!votes.untouched());
            assert_eq!(votes.into_error().kind(), ErrorKind::Unavailable);
        }
        let invalid = Err(Error::invalid("the entry is too long"));
        assert_eq!(after(vec![invalid]), (true, ErrorKind::Invalid));
    }

    #[test]
    fn p1_who_is_at_a_later_term_has_no_trace_of_the_write() {
        let outdated = || Err(Error::outdated(martlet_protocol::Term(7)));
        assert_eq!(after(vec![outdated(), outdated()]), (true, ErrorKind::Unavailable));
        assert!(!after(vec![outdated(), Ok(WriteReply::Stored)]).0);
        // The later term is the reason, whatever else failed.
        let sets = Sets::single(&[1, 2].map(DeviceId));
        let mut votes = ReplicaVotes::of(&sets);
        votes.push(DeviceId(1), outdated());
        let unreached = Error::unavailable("gone").without_effect("it was not sent");
        votes.push(DeviceId(2), Err(unreached));
        assert_eq!(votes.into_error().newer_term(), Some(martlet_protocol::Term(7)));
    }
}
