//! Outcome of a write or a request for a checkpoint set, as replies report it.

use std::fmt;

/// State of the generation that a write of a marker, or a request, has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointOutcome {
    /// The generation is visible in the view.
    Committed {
        /// Number of the generation.
        generation: u64,
    },
    /// It is not visible yet, and may become so.
    Pending {
        /// Number of the generation, if it has one.
        generation: Option<u64>,
        /// The reason for which it waits.
        reason: String,
    },
    /// The write made no generation.
    Refused {
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for CheckpointOutcome {
    /// As in the header of a reply: printable ASCII.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, generation, reason) = match self {
            Self::Committed { generation } => ("committed", Some(generation), None),
            Self::Pending { generation, reason } => ("pending", generation.as_ref(), Some(reason)),
            Self::Refused { reason } => ("refused", None, Some(reason)),
        };
        f.write_str(word)?;
        if let Some(generation) = generation {
            write!(f, "; generation={generation}")?;
        }
        let Some(reason) = reason else { return Ok(()) };
        let plain = |it: char| if it.is_ascii_graphic() || it == ' ' { it } else { '?' };
        let plain: String = reason.chars().filter(|it| *it != '"').map(plain).take(500).collect();
        write!(f, "; reason=\"{plain}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_fit_into_a_header() {
        let committed = CheckpointOutcome::Committed { generation: 7 };
        assert_eq!(committed.to_string(), "committed; generation=7");
        let reason = "1 of 2 are missing: \"ä\r\n\"".to_owned();
        let pending = CheckpointOutcome::Pending { generation: Some(2), reason: reason.clone() };
        let said = "pending; generation=2; reason=\"1 of 2 are missing: ???\"";
        assert_eq!(pending.to_string(), said);
        let unknown = CheckpointOutcome::Pending { generation: None, reason: "x".into() };
        assert_eq!(unknown.to_string(), "pending; reason=\"x\"");
        let refused = CheckpointOutcome::Refused { reason: "y".repeat(1000) };
        assert_eq!(refused.to_string().len(), "refused; reason=\"\"".len() + 500);
    }
}
