//! Consistency: the level requested for a bucket or request, and the level achieved.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Consistency level that a client requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A quorum of primaries; without one, any replicas that answer.
    #[default]
    Available,
    /// A quorum of primaries; without one, an error.
    Strict,
    /// Writes as [`Level::Available`]; reads from the first good replica.
    Any,
}

/// Consistency that a reply achieved, best first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum AchievedLevel {
    /// A quorum of primaries.
    #[default]
    Quorum,
    /// The first replica that answered.
    Any,
    /// Replicas that answered while a quorum of primaries was out (rule A1).
    Degraded,
}

impl Level {
    /// Name in headers and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Strict => "strict",
            Self::Any => "any",
        }
    }
}

impl AchievedLevel {
    /// Name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Any => "any",
            Self::Degraded => "degraded",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for AchievedLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Available, Self::Strict, Self::Any];
        all.into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| Error::invalid("the consistency must be available, strict or any"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_they_are_written() {
        for level in [Level::Available, Level::Strict, Level::Any] {
            assert_eq!(level.to_string().parse::<Level>().unwrap(), level);
        }
        assert!("quorum".parse::<Level>().is_err());
    }

    #[test]
    fn the_worst_that_was_given_counts() {
        assert_eq!(AchievedLevel::Quorum.max(AchievedLevel::Degraded), AchievedLevel::Degraded);
        assert_eq!(AchievedLevel::Any.max(AchievedLevel::Quorum), AchievedLevel::Any);
    }
}
