//! Progress of a rewrite, shown until the rewrite ends.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use martlet_serving::Failure;

use super::rewrite::{self, RewriteLine};
use crate::admin::client::AdminEndpoint;
use crate::admin::print::{size, span};

/// Interval between two requests for the progress.
const TICK: Duration = Duration::from_millis(300);

/// Polls the rewrite until it has ended. A terminal shows a progress bar.
pub(super) fn until_it_ends(
    server: &AdminEndpoint,
    mut line: RewriteLine,
    json: bool,
) -> Result<RewriteLine, Failure> {
    let is_seen = !json && std::io::stderr().is_terminal();
    let bar = if is_seen { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {msg}").expect("the template is valid");
    bar.set_style(style);
    while line.is_running() {
        bar.set_length(line.bytes_to_move.max(1));
        bar.set_position(line.bytes_to_move - line.left_bytes.min(line.bytes_to_move));
        bar.set_message(message(&line));
        rest();
        line = server.request_json(rewrite::REWRITE, &[("bucket", &line.bucket)])?;
    }
    bar.finish_and_clear();
    Ok(line)
}

#[expect(clippy::disallowed_methods, reason = "the command's only thread has no other work")]
fn rest() {
    thread::sleep(TICK);
}

/// Text beside the bar.
fn message(line: &RewriteLine) -> String {
    let (all, all_bytes) = (line.objects_to_move, size(line.bytes_to_move));
    if line.state == "looking" {
        return format!("scanning: {all} objects to move, {all_bytes}");
    }
    let mut message = format!(
        "{} of {all} objects moved, {} of {all_bytes}, {} seen",
        line.moved,
        size(line.moved_bytes),
        line.seen
    );
    if line.failed > 0 {
        let _ = write!(message, ", {} failed", line.failed);
    }
    match line.eta_s {
        Some(seconds) => message + &format!(", {} left", span(seconds.saturating_mul(1000))),
        None => message,
    }
}

/// Formats the result of a rewrite.
pub(super) fn text(line: &RewriteLine) -> String {
    let RewriteLine { bucket, state, moved, seen, failed, .. } = line;
    let bytes = size(line.moved_bytes);
    let mut text = format!("{bucket}: {state}, {moved} objects moved, {bytes}, of {seen} seen\n");
    if let Some(failure) = &line.failure {
        let _ = writeln!(text, "{failed} objects could not be moved, last: {failure}");
    }
    text
}

/// Fails if the rewrite ended early or could not move all objects.
pub(super) fn check_outcome(line: &RewriteLine) -> Result<(), Failure> {
    if let Some(error) = &line.error {
        let left = line.left;
        return Err(Failure::refused(format!(
            "{left} objects were not moved: {error}: start the rewrite again"
        )));
    }
    match line.failed {
        0 => Ok(()),
        failed => Err(Failure::refused(format!(
            "{failed} objects could not be moved and keep their storage policy: start the rewrite \
             again later"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moving() -> RewriteLine {
        RewriteLine {
            bucket: "b".into(),
            state: "moving".into(),
            objects_to_move: 10,
            bytes_to_move: 10 << 20,
            seen: 7,
            moved: 4,
            moved_bytes: 4 << 20,
            left: 6,
            left_bytes: 6 << 20,
            eta_s: Some(90),
            ..RewriteLine::default()
        }
    }

    #[test]
    fn the_bar_says_what_was_moved_and_what_is_left() {
        let text = "4 of 10 objects moved, 4.0 MiB of 10.0 MiB, 7 seen, 90 s left";
        assert_eq!(message(&moving()), text);
        let looking = RewriteLine { state: "looking".into(), ..moving() };
        assert_eq!(message(&looking), "scanning: 10 objects to move, 10.0 MiB");
    }

    #[test]
    fn one_that_left_something_ends_badly() {
        let done = RewriteLine { state: "done".into(), ..moving() };
        assert!(check_outcome(&done).is_ok());
        assert_eq!(text(&done), "b: done, 4 objects moved, 4.0 MiB, of 7 seen\n");
        let failed = RewriteLine { failed: 2, failure: Some("k: no".into()), ..done.clone() };
        assert!(text(&failed).contains("2 objects could not be moved, last: k: no"));
        assert!(
            check_outcome(&failed)
                .unwrap_err()
                .to_string()
                .contains("start the rewrite again later")
        );
        let ended = RewriteLine { error: Some("it was stopped".into()), ..done };
        assert!(
            check_outcome(&ended).unwrap_err().to_string().contains("6 objects were not moved")
        );
    }
}
