//! `martlet admin job`: long work of a process, which goes on without the command that started it.

use std::thread;
use std::time::Duration;

use clap::Subcommand;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::jobs::{JOB, JOBS, JobLine, JobRequest};
use martlet_serving::Failure;

use super::client::AdminEndpoint;
use super::print::{show, span};
use crate::columns::table;
use crate::progress::{ProgressDisplay, WorkState};

/// Interval before the first request for the progress: many jobs are quick. Each next one is twice as
/// long, up to `TICK`.
const FIRST_TICK: Duration = Duration::from_millis(20);
/// Longest interval between two requests for the progress.
const TICK: Duration = Duration::from_millis(300);

/// Subcommands of `martlet admin job`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A job belongs to the process at the admin address and ends with it: a restart forgets all jobs. Start \
the work again then; a rewrite skips what was moved.

Examples:
  martlet admin job list
  martlet admin job follow 52fdfc072182654f
  martlet admin job cancel 52fdfc072182654f")]
pub(super) enum JobCommand {
    /// List running jobs and the last ended ones
    List,
    /// Show a job
    Show {
        /// Id of the job
        id: String,
    },
    /// Show the progress of a job until its end; exit code 1 if it fails
    Follow {
        /// Id of the job
        id: String,
    },
    /// Cancel a job
    Cancel {
        /// Id of the job
        id: String,
    },
}

impl JobCommand {
    /// Sends the command's request and prints the answer.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        match self {
            Self::List => {
                let page: ListPage<JobLine> = server.request_json(JOBS, &[])?;
                show(&page.items, json, |jobs| lines(jobs));
                Ok(())
            }
            Self::Show { id } => {
                let line: JobLine = server.request_json(JOB, &[("id", id)])?;
                show(&line, json, details);
                Ok(())
            }
            Self::Follow { id } => {
                let line = follow(server, server.request_json(JOB, &[("id", id)])?, json)?;
                show(&line, json, details);
                check_outcome(&line)
            }
            Self::Cancel { id } => {
                let line: JobLine = server.delete(JOB, &[("id", id)])?;
                show(&line, json, details);
                Ok(())
            }
        }
    }
}

/// Starts a job, or finds the one that is running.
pub(super) fn start(server: &AdminEndpoint, request: &JobRequest) -> Result<JobLine, Failure> {
    server.post(JOBS, request)
}

/// Starts a job, or finds the one that is running. None if the principal may not start jobs.
pub(super) fn start_if_permitted(
    server: &AdminEndpoint,
    request: &JobRequest,
) -> Result<Option<JobLine>, Failure> {
    server.post_if_permitted(JOBS, request)
}

/// Prints a job that was started and is not followed.
pub(super) fn show_detached(line: &JobLine, json: bool) {
    show(line, json, |line| {
        let id = &line.id;
        format!("job {id} runs: martlet admin job follow {id} shows its progress\n")
    });
}

/// Cancels the running job of this kind and subject. Returns the job after its end.
pub(super) fn cancel_running(
    server: &AdminEndpoint,
    kind: &str,
    subject: &str,
) -> Result<JobLine, Failure> {
    let page: ListPage<JobLine> = server.request_json(JOBS, &[])?;
    let mut matching = page.items.into_iter();
    let running = matching.find(|it| it.is_running() && it.kind == kind && it.subject == subject);
    let running = running.ok_or_else(|| {
        Failure::refused(format!(
            "no {kind} of {subject} is running here: use the proxy that runs it"
        ))
    })?;
    let line = server.delete(JOB, &[("id", &running.id)])?;
    follow(server, line, true)
}

/// Cancels the running job of this kind. Returns the job after its end.
pub(super) fn cancel_running_kind(server: &AdminEndpoint, kind: &str) -> Result<JobLine, Failure> {
    let page: ListPage<JobLine> = server.request_json(JOBS, &[])?;
    let running = page.items.into_iter().find(|it| it.is_running() && it.kind == kind);
    let running = running.ok_or_else(|| {
        Failure::refused(format!("no {kind} is running here: use the proxy that runs it"))
    })?;
    let line = server.delete(JOB, &[("id", &running.id)])?;
    follow(server, line, true)
}

/// Polls a job until its end, and shows its progress, unless the output is JSON.
pub(super) fn follow(
    server: &AdminEndpoint,
    mut line: JobLine,
    json: bool,
) -> Result<JobLine, Failure> {
    let mut display = ProgressDisplay::begin(title(&line), json);
    let mut pause = FIRST_TICK;
    while line.is_running() {
        let (done, total) = (line.progress.done, line.progress.total);
        display.show(&WorkState { done, total, text: message(&line) });
        rest(pause);
        pause = (pause * 2).min(TICK);
        line = server.request_json(JOB, &[("id", &line.id)])?;
    }
    Ok(line)
}

#[expect(clippy::disallowed_methods, reason = "the command's only thread has no other work")]
fn rest(span: Duration) {
    thread::sleep(span);
}

/// Fails if the job has failed or was cancelled.
pub(super) fn check_outcome(line: &JobLine) -> Result<(), Failure> {
    match line.state.as_str() {
        "failed" | "cancelled" => {
            let error = line.error.as_deref().unwrap_or("no reason is known");
            Err(Failure::refused(format!("the job {} is {}: {error}", line.id, line.state)))
        }
        _ => Ok(()),
    }
}

/// Text beside the bar.
fn message(line: &JobLine) -> String {
    let text = &line.progress.text;
    match line.eta_s {
        Some(seconds) => format!("{text}, {} left", span(seconds.saturating_mul(1000))),
        None => text.clone(),
    }
}

/// Formats kind and subject of a job.
fn title(JobLine { kind, subject, .. }: &JobLine) -> String {
    if subject.is_empty() { kind.clone() } else { format!("{kind} of {subject}") }
}

/// Formats a job.
fn details(line: &JobLine) -> String {
    let JobLine { id, state, error, .. } = line;
    let title = title(line);
    let error = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{id}: {title}, {state}{error}\n{}\n", message(line))
}

/// Formats jobs as a table.
fn lines(jobs: &[JobLine]) -> String {
    let mut rows = vec![["id", "kind", "of", "state", "progress"].map(str::to_owned).to_vec()];
    rows.extend(jobs.iter().map(|line| {
        let state = line.state.clone();
        vec![line.id.clone(), line.kind.clone(), line.subject.clone(), state, message(line)]
    }));
    table(&rows, &[])
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::jobs::JobProgress;

    use super::*;

    fn running() -> JobLine {
        let progress = JobProgress {
            done: 4,
            total: Some(10),
            unit: "bytes".into(),
            text: "4 of 10 objects moved".into(),
        };
        JobLine {
            id: "ab".into(),
            kind: "rewrite".into(),
            subject: "box".into(),
            state: "running".into(),
            eta_s: Some(90),
            progress,
            ..JobLine::default()
        }
    }

    #[test]
    fn a_job_is_printed_with_its_progress() {
        assert_eq!(
            details(&running()),
            "ab: rewrite of box, running\n4 of 10 objects moved, 90 s left\n"
        );
        let text = lines(&[running()]);
        assert!(
            text.contains("ab  rewrite  box  running  4 of 10 objects moved, 90 s left"),
            "{text}"
        );
    }

    #[test]
    fn failed_and_cancelled_jobs_end_badly() {
        let ended =
            |state: &str| JobLine { state: state.into(), error: Some("why".into()), ..running() };
        assert!(check_outcome(&JobLine { error: None, ..ended("done") }).is_ok());
        for state in ["failed", "cancelled"] {
            let refusal = check_outcome(&ended(state)).unwrap_err().to_string();
            assert_eq!(refusal, format!("the job ab is {state}: why"));
        }
    }
}
