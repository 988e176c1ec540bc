//! JSON messages about pushes of rings: the answer of each node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Ring file in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RingFile {
    /// Name of the ring: `index`, `data-0`, `data-1` and so on.
    pub name: String,
    /// The file in base64.
    pub file: String,
}

/// Answer of a node to a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RingPushLine {
    /// Name of the node.
    pub node: String,
    /// Internal address of the node.
    pub address: String,
    /// Name of the ring.
    pub ring: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// Outcome.
    pub outcome: PushOutcome,
    /// Reason of a refusal, or of the failed request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Outcome of a ring at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PushOutcome {
    /// The ring is in use now.
    Accepted,
    /// The ring waits for the end of the ring change before it.
    Waits,
    /// The node has the ring already.
    Known,
    /// The node refused the ring.
    Refused,
    /// The request failed.
    Unreachable,
}

impl PushOutcome {
    /// All outcomes, the good ones first.
    pub const ALL: [Self; 5] =
        [Self::Accepted, Self::Waits, Self::Known, Self::Refused, Self::Unreachable];

    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Waits => "waits",
            Self::Known => "known",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
        }
    }

    /// Returns true if the node has the ring now.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Accepted | Self::Waits | Self::Known)
    }
}

impl RingPushLine {
    /// Returns the answer as a sentence.
    pub fn text(&self) -> String {
        let Self { node, address, ring, epoch, outcome, reason } = self;
        let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{node} ({address}): {ring} of epoch {epoch} {}{reason}", outcome.name())
    }
}

/// Returns the number of answers of each outcome, such as `3 accepted, 0 waits, …`.
pub fn push_summary(answers: &[RingPushLine]) -> String {
    let count = |outcome: PushOutcome| {
        let number = answers.iter().filter(|answer| answer.outcome == outcome).count();
        format!("{number} {}", outcome.name())
    };
    PushOutcome::ALL.map(count).join(", ")
}

/// Checks that all nodes have the rings.
///
/// # Errors
/// A node refused a ring or was out: a sentence for operators.
pub fn check_push(answers: &[RingPushLine]) -> Result<(), String> {
    if answers.iter().all(|answer| answer.outcome.is_good()) {
        return Ok(());
    }
    Err("some nodes have not taken the rings: remove the reasons that they give, and push the rings \
         again; nodes that were out fetch the rings from others when they are back"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_shown_and_a_missing_node_fails_the_push() {
        let push = |outcome: PushOutcome, reason: Option<&str>| RingPushLine {
            node: "n1".into(),
            address: "a:1".into(),
            ring: "index".into(),
            epoch: 7,
            outcome,
            reason: reason.map(str::to_owned),
        };
        let accepted = push(PushOutcome::Accepted, None);
        assert_eq!(accepted.text(), "n1 (a:1): index of epoch 7 accepted");
        let refused = push(PushOutcome::Refused, Some("older"));
        assert_eq!(refused.text(), "n1 (a:1): index of epoch 7 refused: older");
        let good = [accepted, push(PushOutcome::Waits, None), push(PushOutcome::Known, None)];
        assert_eq!(check_push(&good), Ok(()));
        assert_eq!(push_summary(&good), "1 accepted, 1 waits, 1 known, 0 refused, 0 unreachable");
        for bad in [refused, push(PushOutcome::Unreachable, Some("no route"))] {
            assert!(check_push(&[bad]).is_err());
        }
        for outcome in PushOutcome::ALL {
            let name = serde_json::to_value(outcome).unwrap();
            assert_eq!(name, outcome.name());
        }
    }
}
