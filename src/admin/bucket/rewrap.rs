//! Rewrap of a bucket's data keys, as a job.

use std::fmt::Write as _;

use clap::Args;
use martlet_admin_api::jobs::{JobLine, JobRequest, REWRAP};
use martlet_admin_api::rewrap::RewrapLine;
use martlet_serving::Failure;

use crate::admin::client::AdminEndpoint;
use crate::admin::{job, print};

/// Arguments of `martlet admin bucket rewrap`.
#[derive(Args, Debug)]
pub(in crate::admin) struct RewrapArgs {
    /// Bucket
    bucket: String,
    /// Maximum versions per second [default: unlimited while clients don't wait]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "stop")]
    rate: Option<u32>,
    /// Stop the running rewrap
    #[arg(long)]
    stop: bool,
    /// Start the rewrap, print its job and return
    #[arg(long, conflicts_with = "stop")]
    detach: bool,
}

impl RewrapArgs {
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let bucket = self.bucket.clone();
        if self.stop {
            let job = job::cancel_running(server, REWRAP, &bucket)?;
            print::show(&line_of(&job)?, json, text);
            return Ok(());
        }
        let begun = job::start(server, &JobRequest::Rewrap { bucket, versions_per_s: self.rate })?;
        if self.detach {
            job::show_detached(&begun, json);
            return Ok(());
        }
        let line = line_of(&job::follow(server, begun, json)?)?;
        print::show(&line, json, text);
        check_outcome(&line)
    }
}

/// Returns the figures of a rewrap from its job.
fn line_of(job: &JobLine) -> Result<RewrapLine, Failure> {
    let detail = job.detail.clone().unwrap_or_default();
    serde_json::from_value(detail).map_err(|error| {
        Failure::refused(format!("the job {} is not a rewrap of this version: {error}", job.id))
    })
}

fn text(line: &RewrapLine) -> String {
    let RewrapLine { bucket, state, seen, rewrapped, failed, uploads, .. } = line;
    let mut text =
        format!("{bucket}: {state}, rewrapped the keys of {rewrapped} versions, {seen} examined\n");
    if let Some(failure) = &line.failure {
        let _ = writeln!(text, "{failed} versions failed, last: {failure}");
    }
    if *uploads > 0 {
        let _ = writeln!(text, "{uploads} earlier uploads are still open");
    }
    text
}

/// Fails while the old master key may still be needed.
fn check_outcome(line: &RewrapLine) -> Result<(), Failure> {
    match (&line.error, line.failed, line.uploads) {
        (Some(error), ..) => Err(Failure::refused(format!(
            "the rewrap ended early, so the old master key is still needed: {error}"
        ))),
        (None, 0, 0) if line.state == "done" => Ok(()),
        _ => Err(Failure::refused("the rewrap is not done: run the command again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> RewrapLine {
        RewrapLine {
            bucket: "b".into(),
            state: "done".into(),
            pass: 1,
            seen: 5,
            rewrapped: 3,
            ..RewrapLine::default()
        }
    }

    #[test]
    fn only_a_run_that_left_nothing_ends_well() {
        assert!(check_outcome(&done()).is_ok());
        assert_eq!(text(&done()), "b: done, rewrapped the keys of 3 versions, 5 examined\n");
        let ended = RewrapLine { state: "ended".into(), error: Some("why".into()), ..done() };
        assert!(check_outcome(&ended).unwrap_err().to_string().ends_with("still needed: why"));
        for left in [
            RewrapLine { state: "running".into(), ..done() },
            RewrapLine { uploads: 1, ..done() },
            RewrapLine { failed: 1, ..done() },
        ] {
            assert!(check_outcome(&left).is_err(), "{left:?}");
        }
        let failed = RewrapLine { failed: 2, failure: Some("k: no".into()), uploads: 1, ..done() };
        assert!(text(&failed).contains("2 versions failed, last: k: no\n1 earlier uploads"));
    }

    #[test]
    fn a_job_of_another_kind_is_no_rewrap() {
        let detail = serde_json::to_value(done()).ok();
        let job = JobLine { detail, ..JobLine::default() };
        assert_eq!(line_of(&job).unwrap(), done());
        assert!(line_of(&JobLine::default()).is_err());
    }
}
