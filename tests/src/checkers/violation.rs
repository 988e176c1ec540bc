//! What a checker found wrong: a sentence, and the operations that show it.

use std::fmt;

use super::history::Operation;

/// A history that breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise, in a word or two.
    pub kind: &'static str,
    /// What is wrong, in a sentence.
    pub said: String,
    /// The operations that show it, as few as were found to do so.
    pub operations: Vec<Operation>,
}

impl Violation {
    /// Found in these operations.
    pub(super) fn new(kind: &'static str, said: String, operations: &[&Operation]) -> Self {
        let mut operations: Vec<Operation> = operations.iter().map(|it| (*it).clone()).collect();
        operations.sort_by_key(|operation| operation.invoked_at);
        Self { kind, said, operations }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.kind, self.said)?;
        for operation in &self.operations {
            writeln!(f, "  {operation}")?;
        }
        Ok(())
    }
}
