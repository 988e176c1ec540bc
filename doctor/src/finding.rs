//! Findings of checks, and the report of all.

use std::fmt::Write as _;

use serde::Serialize;

/// Most findings of one kind that a check lists.
pub(crate) const LISTED_MAX: usize = 16;

/// Verdict of a check. Later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing to do.
    Ok,
    /// Works, but is risky, slow or could not be checked.
    Warn,
    /// Does not work, or loses data.
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// Result of one check of one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check, such as `clock`.
    pub check: &'static str,
    /// Examined thing: a device, an address, a file, a node.
    pub subject: String,
    /// Verdict.
    pub verdict: Verdict,
    /// Observed facts.
    pub seen: String,
    /// Remedy, unless the verdict is [`Verdict::Ok`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Makes a finding without a problem.
    pub fn ok(check: &'static str, subject: impl Into<String>, seen: impl Into<String>) -> Self {
        let (subject, seen) = (subject.into(), seen.into());
        Self { check, subject, verdict: Verdict::Ok, seen, advice: None }
    }

    /// Returns this finding as a warning with a remedy.
    #[must_use]
    pub fn warn(self, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, advice: Some(advice.into()), ..self }
    }

    /// Returns this finding as a failure with a remedy.
    #[must_use]
    pub fn fail(self, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, advice: Some(advice.into()), ..self }
    }
}

/// Cuts a list of problems at [`LISTED_MAX`], and counts the others in one more finding with the
/// worst verdict among them.
pub(crate) fn shortened(mut findings: Vec<Finding>) -> Vec<Finding> {
    if findings.len() <= LISTED_MAX {
        return findings;
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let others = findings.split_off(LISTED_MAX);
    let first = others.first().expect("the list was longer");
    let seen = format!("{} more findings like those above", others.len());
    let rest = Finding { seen, subject: "others".into(), ..first.clone() };
    findings.push(rest);
    findings
}

/// Findings of all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Findings in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the worst verdict.
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// Returns the exit code: 0 if all is well, 1 with warnings, 2 with failures.
    pub fn exit_code(&self) -> u8 {
        self.verdict() as u8
    }

    /// Formats the report for people: a line for each finding, and one for each remedy.
    pub fn to_text(&self) -> String {
        let widest =
            |cell: fn(&Finding) -> usize| self.findings.iter().map(cell).max().unwrap_or(0);
        let check_width = widest(|finding| finding.check.len());
        let subject_width = widest(|finding| finding.subject.chars().count()).min(32);
        let mut text = String::new();
        for Finding { check, subject, verdict, seen, advice } in &self.findings {
            let word = verdict.word();
            let _ = writeln!(
                text,
                "{word:<4}  {check:<check_width$}  {subject:<subject_width$}  {seen}"
            );
            if let Some(advice) = advice {
                let _ = writeln!(text, "{:check_width$}        → {advice}", "");
            }
        }
        let count = |verdict| self.findings.iter().filter(|it| it.verdict == verdict).count();
        let (ok, warn, fail) = (count(Verdict::Ok), count(Verdict::Warn), count(Verdict::Fail));
        let _ = writeln!(text, "{ok} ok, {warn} warnings, {fail} failures");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(subject: &str) -> Finding {
        Finding::ok("clock", subject, "3 ms ahead")
    }

    #[test]
    fn the_worst_finding_decides_the_exit_code() {
        let report = |findings: Vec<Finding>| Report { findings };
        assert_eq!(report(vec![]).exit_code(), 0);
        assert_eq!(report(vec![finding("n1")]).exit_code(), 0);
        assert_eq!(report(vec![finding("n1").warn("x"), finding("n2")]).exit_code(), 1);
        assert_eq!(report(vec![finding("n1").fail("x"), finding("n2").warn("y")]).exit_code(), 2);
    }

    #[test]
    fn each_problem_has_a_line_with_its_remedy() {
        let findings = vec![finding("n1"), finding("node2").fail("set the clock")];
        let report = Report { findings };
        let text = report.to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ok    clock  n1     3 ms ahead");
        assert_eq!(lines[1], "FAIL  clock  node2  3 ms ahead");
        assert_eq!(lines[2].trim(), "→ set the clock");
        assert_eq!(lines[3], "1 ok, 0 warnings, 1 failures");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["findings"][1]["verdict"], "fail");
        assert!(json["findings"][0].get("advice").is_none());
    }

    #[test]
    fn many_findings_are_counted_and_the_worst_are_listed() {
        let mut many: Vec<Finding> = (0..40).map(|at| finding(&at.to_string()).warn("x")).collect();
        many[39] = many[39].clone().fail("y");
        let short = shortened(many);
        assert_eq!(short.len(), LISTED_MAX + 1);
        assert_eq!(short[0].verdict, Verdict::Fail);
        assert!(short[LISTED_MAX].seen.starts_with("24 more"));
        assert_eq!(shortened(vec![finding("a")]).len(), 1);
    }
}
