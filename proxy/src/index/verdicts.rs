//! What replicas made of one write, counted. Pure.

use martlet_protocol::backend::WriteReply;
use martlet_protocol::{Error, ErrorKind, Result, Stamp};

use crate::quorum::{Progress, QuorumTally};

/// The replies of all primaries to one write.
#[derive(Default)]
pub(super) struct Verdicts {
    pub(super) stored: usize,
    pub(super) superseded: usize,
    pub(super) behind: Option<Stamp>,
    pub(super) fenced: bool,
    pub(super) out_of_time: bool,
    pub(super) unknown: Option<Error>,
    pub(super) refused: Option<Error>,
    /// Replicas that said what they made of it.
    pub(super) answered: usize,
    pub(super) replicas: usize,
}

impl Verdicts {
    pub(super) fn of(replies: Vec<Result<WriteReply>>) -> Self {
        let mut verdicts = Self { replicas: replies.len(), ..Self::default() };
        for reply in replies {
            if let Ok(WriteReply::Stored | WriteReply::Superseded | WriteReply::Behind(_)) = &reply
            {
                verdicts.answered += 1;
            }
            match reply {
                Ok(WriteReply::Stored) => verdicts.stored += 1,
                Ok(WriteReply::Superseded) => verdicts.superseded += 1,
                Ok(WriteReply::Behind(floor)) => {
                    verdicts.behind = Some(verdicts.behind.unwrap_or(floor).max(floor));
                }
                Ok(WriteReply::Fenced) => verdicts.fenced = true,
                Ok(WriteReply::OutOfTime) => verdicts.out_of_time = true,
                Ok(WriteReply::Unvoted) => {
                    let error = Error::unavailable("a replica that has it has no vote");
                    verdicts.unknown = Some(error);
                }
                Err(error) if error.kind() == ErrorKind::Invalid => verdicts.refused = Some(error),
                // Also of a full device: its log may have run out of space in mid-record.
                Err(error) => verdicts.unknown = Some(error),
            }
        }
        verdicts
    }

    pub(super) fn is_met_by(&self, yes: usize) -> bool {
        let mut tally = QuorumTally::majority(self.replicas);
        for _ in 0..yes {
            tally.push(true);
        }
        tally.progress() == Progress::Met
    }

    /// Whether no replica can hold the write.
    pub(super) fn untouched(&self) -> bool {
        self.stored == 0 && self.superseded == 0 && self.unknown.is_none()
    }

    pub(super) fn into_error(self) -> Error {
        if let Some(error) = self.unknown.or(self.refused) {
            return error;
        }
        if self.out_of_time {
            return Error::unavailable("the write came too late, or the clocks differ too much");
        }
        Error::unavailable("too few replicas took the write")
    }
}
