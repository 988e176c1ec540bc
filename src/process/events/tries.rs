//! How long a message is tried, and what is to blame when it fails.
//!
//! A message at the head of a spool holds up all behind it. Where its target can't be reached, the others
//! would fare no better: it stays. Where the target was reached and doesn't acknowledge, the message may be
//! to blame, and more so the more often that happens; where the target says that it will not take this one,
//! soon.

/// Why a message was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nobody was reached: no message is to blame.
    Away(String),
    /// It was reached, and something is wrong with it, or with the message.
    Failed(String),
    /// It will not take this message.
    Refused(String),
}

impl Trouble {
    /// What went wrong, in a sentence.
    pub(super) fn reason(&self) -> &str {
        let (Self::Away(reason) | Self::Failed(reason) | Self::Refused(reason)) = self;
        reason
    }
}

/// How often a message is sent at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) attempts: u32,
    /// Attempts that are answered by a refusal.
    pub(super) refusals: u32,
}

/// How often the message at the head was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tries {
    pub(super) attempts: u32,
    refusals: u32,
}

impl Tries {
    /// Counts an attempt.
    pub(super) fn count(&mut self, trouble: &Trouble) {
        self.attempts += u32::from(!matches!(trouble, Trouble::Away(_)));
        self.refusals += u32::from(matches!(trouble, Trouble::Refused(_)));
    }

    /// Whether those behind it have waited long enough.
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
        let over = |troubles: &[&Trouble]| {
            let mut tries = Tries::default();
            for trouble in troubles {
                tries.count(trouble);
            }
            tries.are_over(limits)
        };
        let away = &Trouble::Away(String::new());
        let failed = &Trouble::Failed(String::new());
        let refused = &Trouble::Refused(String::new());
        assert!(!over(&[away; 50]));
        assert!(!over(&[failed, failed, away, away]));
        assert!(over(&[failed, away, failed, failed]));
        assert!(!over(&[refused, failed]));
        assert!(over(&[refused, away, refused]));
    }
}
