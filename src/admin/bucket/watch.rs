//! Result of a rewrite, for people.

use std::fmt::Write as _;

use martlet_admin_api::jobs::JobLine;
use martlet_admin_api::rewrite::RewriteLine;
use martlet_serving::Failure;

use crate::admin::print::size;

/// Returns the figures of a rewrite from its job.
pub(super) fn line_of(job: &JobLine) -> Result<RewriteLine, Failure> {
    let detail = job.detail.clone().unwrap_or_default();
    serde_json::from_value(detail).map_err(|error| {
        Failure::refused(format!("the job {} is not a rewrite of this version: {error}", job.id))
    })
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
