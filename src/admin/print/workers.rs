//! Text output for background workers.

use std::fmt::Write;

use martlet_admin_api::{ProcessWorkers, WorkerLine};

use super::cells::{row, size, span};
use crate::columns::table;

/// Age in milliseconds of a report that is worth a line. Its process has probably ended, unless there are more
/// than some 500 storage nodes, to which processes report in turns.
const OLD_MS: u64 = 15_000;

/// Formats the workers of all processes.
pub(crate) fn workers(processes: &[ProcessWorkers]) -> String {
    if processes.is_empty() {
        return "no process with workers is known\n".to_owned();
    }
    let mut heads = vec!["process", "worker", "rate", "done", "mended", "copied", "freed", "kept"];
    heads.extend(["ahead", "waiting", "oldest", "eta", "state"]);
    let mut rows: Vec<Vec<String>> = vec![heads.into_iter().map(str::to_owned).collect()];
    for process in processes {
        rows.extend(process.workers.iter().map(|line| {
            let mut row = vec![process.process.clone()];
            row.extend(cells(line));
            row
        }));
    }
    let mut text = table(&rows, &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    for process in processes {
        if let Some(ms) = process.heard_ms_ago.filter(|ms| *ms > OLD_MS) {
            let _ = writeln!(text, "last report of {}: {} ago", process.process, span(ms));
        }
    }
    text
}

fn cells(worker: &WorkerLine) -> Vec<String> {
    let state = match &worker.error {
        Some(error) => format!("{} failures, last: {error}", worker.failures),
        None if worker.idle => "idle".to_owned(),
        None => "working".to_owned(),
    };
    row([
        &worker.worker,
        &format!("{:.1}/s", worker.rate),
        &worker.done.to_string(),
        &worker.repaired.to_string(),
        &size(worker.copied_bytes),
        &size(worker.freed_bytes),
        &worker.kept.to_string(),
        &worker.ahead.to_string(),
        &worker.backlog.to_string(),
        &if worker.backlog == 0 { "-".to_owned() } else { span(worker.oldest_age_ms) },
        &eta(worker),
        &state,
    ])
}

/// Formats the estimated time for the backlog, or `-` if it is unknown.
pub(super) fn eta(worker: &WorkerLine) -> String {
    worker.eta_s.map_or_else(|| "-".to_owned(), |seconds| span(seconds.saturating_mul(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_is_a_line_with_what_waits_for_it() {
        let busy = WorkerLine {
            worker: "update".into(),
            rate: 12.25,
            done: 7,
            repaired: 4,
            copied_bytes: 3 << 20,
            freed_bytes: 1 << 10,
            ahead: 90,
            backlog: 300,
            oldest_age_ms: 240_000,
            eta_s: Some(25),
            ..WorkerLine::default()
        };
        let failed = WorkerLine {
            worker: "sweep".into(),
            failures: 3,
            error: Some("n2 does not answer".into()),
            ..WorkerLine::default()
        };
        let text = workers(&[ProcessWorkers {
            process: "replicator r1".into(),
            heard_ms_ago: Some(60_000),
            workers: vec![busy, failed],
        }]);
        for words in [
            "replicator r1  update  12.2/s     7       4  3.0 MiB  1.0 KiB     0     90      300   4 min  25 s  working",
            "3 failures, last: n2 does not answer",
            "last report of replicator r1: 60 s ago",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(workers(&[]).contains("no process"));
    }
}
