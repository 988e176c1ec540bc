//! Runs of `martlet doctor`, and their findings.

use std::process::Command;

use serde_json::Value;

use crate::server::finished;

/// Report of a run.
#[derive(Debug)]
pub struct DoctorReport {
    /// Exit code: 0, or 1 with warnings, or 2 with failures.
    pub code: i32,
    findings: Vec<Value>,
}

impl DoctorReport {
    /// Runs a command that prints JSON.
    pub fn of(command: &mut Command) -> Self {
        let output = finished(command);
        let text = String::from_utf8(output.stdout).unwrap();
        let json: Value = serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("no report: {}", String::from_utf8_lossy(&output.stderr)));
        let findings = json["findings"].as_array().unwrap().clone();
        Self { code: output.status.code().unwrap(), findings }
    }

    /// Returns verdict and facts of the findings of a check whose subject contains these words, as
    /// `fail: facts → advice`.
    pub fn of_check(&self, check: &str, subject: &str) -> Vec<String> {
        let is_it = |finding: &&Value| {
            finding["check"] == check && finding["subject"].as_str().unwrap().contains(subject)
        };
        let line = |finding: &Value| {
            let word = |name: &str| finding[name].as_str().unwrap_or_default();
            format!("{}: {} → {}", word("verdict"), word("seen"), word("advice"))
        };
        self.findings.iter().filter(is_it).map(line).collect()
    }

    /// Asserts that a check has one finding about a subject, that begins with these words.
    pub fn assert_one(&self, check: &str, subject: &str, begins: &str) {
        let found = self.of_check(check, subject);
        assert_eq!(found.len(), 1, "{check} {subject}: {found:?} of {:#?}", self.findings);
        assert!(found[0].starts_with(begins), "{check} {subject}: {}", found[0]);
    }
}
