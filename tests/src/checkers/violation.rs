//! Violation that a checker found: a sentence, and the operations that prove it.

use std::fmt;

use super::history::Operation;

/// A history that breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Short name of the broken promise.
    pub kind: &'static str,
    /// Description of the violation in one sentence.
    pub message: String,
    /// Operations that prove the violation, reduced where possible.
    pub operations: Vec<Operation>,
}

impl Violation {
    /// Makes a violation and sorts its operations by the time of their requests.
    pub(super) fn new(kind: &'static str, message: String, operations: &[&Operation]) -> Self {
        let mut operations: Vec<Operation> = operations.iter().map(|it| (*it).clone()).collect();
        operations.sort_by_key(|operation| operation.invoked_at);
        Self { kind, message, operations }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.kind, self.message)?;
        for operation in &self.operations {
            writeln!(f, "  {operation}")?;
        }
        Ok(())
    }
}
