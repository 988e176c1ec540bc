//! Text output for a census.

use std::fmt::Write;

use martlet_replicator::{CensusReport, KindCounts};

use super::cells::row;
use crate::columns::table;

/// Formats the counts and findings of a census.
pub(crate) fn census(report: &CensusReport) -> String {
    let heads = ["", "things", "copies", "missing", "behind", "stray"];
    let mut rows = vec![row(heads)];
    for (name, tally) in [("registers", &report.registers), ("extents", &report.extents)] {
        let KindCounts { things, copies, missing, older, stray } = tally;
        let counts = [things, copies, missing, older, stray].map(ToString::to_string);
        rows.push([row([name]), counts.to_vec()].concat());
    }
    let CensusReport { partitions, hints, moving, .. } = report;
    let mut text = table(&rows, &[1, 2, 3, 4, 5]);
    let _ = writeln!(
        text,
        "{partitions} partitions; {moving} replicas moving according to the rings; {hints} hints"
    );
    if report.lost > 0 {
        let _ = writeln!(
            text,
            "{} extents are LOST: too few fragments are left to recover them",
            report.lost
        );
    }
    for device in &report.silent {
        let _ = writeln!(text, "device {device} does not answer");
    }
    for device in &report.without_votes {
        let _ = writeln!(text, "device {device} has no votes");
    }
    for finding in &report.findings {
        let _ = writeln!(text, "  {finding}");
    }
    text += if report.clean {
        "clean: every replica is where the rings place it, and nowhere else\n"
    } else {
        "NOT CLEAN\n"
    };
    text
}

#[cfg(test)]
mod tests {
    use martlet_protocol::DeviceId;

    use super::*;

    #[test]
    fn the_fault_is_named() {
        let tally = KindCounts { things: 10, copies: 29, missing: 1, ..KindCounts::default() };
        let report = CensusReport {
            registers: tally,
            lost: 2,
            silent: vec![DeviceId(4)],
            findings: vec!["d4 lacks a register".into()],
            ..CensusReport::default()
        };
        let text = census(&report);
        for words in [
            "registers      10      29        1       0      0",
            "2 extents are LOST: too few fragments",
            "device d4 does not answer",
            "  d4 lacks a register",
            "NOT CLEAN",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let clean = CensusReport { clean: true, ..CensusReport::default() };
        assert!(census(&clean).ends_with("nowhere else\n"));
    }
}
