//! Limits on attempts for a message, and the blame for failures.
//!
//! A message at the head of a spool blocks all later messages. If its target is unreachable, later
//! messages would fail too, so the message stays. If the target is reached but doesn't acknowledge,
//! the message may be to blame; it is given up after many attempts. If the target refuses the
//! message explicitly, few attempts suffice.

use std::{fmt, io};

/// Cause of a missing acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeliveryFailure {
    /// The target was not reached, or takes no message at all: no message is to blame.
    Away(String),
    /// The target was reached; either the target or the message is at fault.
    Failed(String),
    /// The target refuses this message.
    Refused(String),
}

impl DeliveryFailure {
    /// Returns a failure of the target, for which no message is to blame.
    pub(super) fn away(reason: impl fmt::Display) -> Self {
        Self::Away(reason.to_string())
    }

    /// Returns the failure with another reason.
    pub(super) fn map_reason(self, map: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Away(reason) => Self::Away(map(reason)),
            Self::Failed(reason) => Self::Failed(map(reason)),
            Self::Refused(reason) => Self::Refused(map(reason)),
        }
    }

    /// Returns the cause as a sentence.
    pub(super) fn reason(&self) -> &str {
        let (Self::Away(reason) | Self::Failed(reason) | Self::Refused(reason)) = self;
        reason
    }
}

/// An error of a disk or of a connection, for which no message is to blame.
impl From<io::Error> for DeliveryFailure {
    fn from(error: io::Error) -> Self {
        Self::Away(error.to_string())
    }
}

/// Limits on the attempts for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) attempts: u32,
    /// Limit on attempts that are answered by a refusal.
    pub(super) refusals: u32,
}

/// Attempts so far for the message at the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeliveryAttempts {
    pub(super) attempts: u32,
    refusals: u32,
}

impl DeliveryAttempts {
    /// Counts an attempt. Unreachable targets don't count.
    pub(super) fn count(&mut self, failure: &DeliveryFailure) {
        self.attempts += u32::from(!matches!(failure, DeliveryFailure::Away(_)));
        self.refusals += u32::from(matches!(failure, DeliveryFailure::Refused(_)));
    }

    /// Returns true if the message has used up its attempts.
    pub(super) fn are_over(self, limits: Limits) -> bool {
        self.attempts >= limits.attempts || self.refusals >= limits.refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_away_is_never_held_against_a_message() {
        let limits = Limits { attempts: 3, refusals: 2 };
        let over = |failures: &[&DeliveryFailure]| {
            let mut tries = DeliveryAttempts::default();
            for failure in failures {
                tries.count(failure);
            }
            tries.are_over(limits)
        };
        let away = &DeliveryFailure::Away(String::new());
        let failed = &DeliveryFailure::Failed(String::new());
        let refused = &DeliveryFailure::Refused(String::new());
        assert!(!over(&[away; 50]));
        assert!(!over(&[failed, failed, away, away]));
        assert!(over(&[failed, away, failed, failed]));
        assert!(!over(&[refused, failed]));
        assert!(over(&[refused, away, refused]));
    }
}
