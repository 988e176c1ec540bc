//! Output of a command: text for people, JSON for programs.

use martlet_admin_api::ring_builder::StepLine;
use serde::Serialize;
use serde_json::{Value, json};

use super::text::append_line;

/// Answer of a command, for people and for programs.
pub(super) struct CommandOutput {
    pub(super) text: String,
    pub(super) json: Value,
}

impl CommandOutput {
    /// Makes an answer from its text and its JSON form.
    pub(super) fn new(text: impl Into<String>, json: &impl Serialize) -> Self {
        let json = serde_json::to_value(json).expect("plain data can be encoded");
        let mut text: String = text.into();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Self { text, json }
    }

    /// Makes an answer that reports a completed change, with notes for the operator.
    pub(super) fn done(StepLine { done, notes, .. }: &StepLine) -> Self {
        let mut text = done.clone();
        for line in notes {
            append_line(&mut text, format_args!("\n  note: {line}"));
        }
        Self::new(text, &json!({ "done": done, "notes": notes }))
    }
}
