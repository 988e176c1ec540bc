//! What replicas made of one write, counted. Pure.

use martlet_protocol::backend::WriteReply;
use martlet_protocol::{DeviceId, Error, ErrorKind, Result, Stamp};

/// The replies of the primaries to one write.
#[derive(Default)]
pub(super) struct Verdicts {
    /// Who has it, or counts as having had it.
    pub(super) holders: Vec<DeviceId>,
    pub(super) stored: usize,
    pub(super) superseded: usize,
    pub(super) behind: Option<Stamp>,
    pub(super) fenced: bool,
    pub(super) out_of_time: bool,
    pub(super) unknown: Option<Error>,
    pub(super) refused: Option<Error>,
    /// A replica was not reached.
    pub(super) unreached: Option<Error>,
    /// Replicas that said what they made of it.
    pub(super) answered: usize,
    pub(super) replicas: usize,
}

impl Verdicts {
    pub(super) fn of(replicas: usize) -> Self {
        Self { replicas, ..Self::default() }
    }

    /// Counts the reply of one replica.
    pub(super) fn push(&mut self, device: DeviceId, reply: Result<WriteReply>) {
        if let Ok(WriteReply::Stored | WriteReply::Superseded | WriteReply::Behind(_)) = &reply {
            self.answered += 1;
        }
        match reply {
            Ok(WriteReply::Stored) => {
                self.stored += 1;
                self.holders.push(device);
            }
            Ok(WriteReply::Superseded) => {
                self.superseded += 1;
                self.holders.push(device);
            }
            Ok(WriteReply::Behind(floor)) => {
                self.behind = Some(self.behind.unwrap_or(floor).max(floor));
            }
            Ok(WriteReply::Fenced) => self.fenced = true,
            Ok(WriteReply::OutOfTime) => self.out_of_time = true,
            // It counts for nothing, and is there (rule G1).
            Ok(WriteReply::Unvoted) => {
                self.unknown = Some(Error::unavailable("a replica that has it has no vote"));
            }
            Err(error) if error.kind() == ErrorKind::Invalid => self.refused = Some(error),
            Err(error) if error.had_no_effect() => self.unreached = Some(error),
            // Also of a full device: its log may have run out of space in mid-record.
            Err(error) => self.unknown = Some(error),
        }
    }

    /// Some have not answered, and are not waited for.
    pub(super) fn leave_silent(&mut self) {
        let error = || Error::unavailable("a replica does not answer");
        self.unknown.get_or_insert_with(error);
    }

    pub(super) fn is_met_by(&self, yes: usize) -> bool {
        self.replicas > 0 && yes > self.replicas / 2
    }

    /// Whether no replica can hold the write.
    pub(super) fn untouched(&self) -> bool {
        self.stored == 0 && self.superseded == 0 && self.unknown.is_none()
    }

    pub(super) fn into_error(self) -> Error {
        if let Some(error) = self.unknown.or(self.refused).or(self.unreached) {
            return error;
        }
        if self.out_of_time {
            return Error::unavailable("the write came too late, or the clocks differ too much");
        }
        Error::unavailable("too few replicas took the write")
    }
}
