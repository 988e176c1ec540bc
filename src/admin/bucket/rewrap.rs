//! Rewrap of a bucket's data keys, page by page.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use martlet_admin_api::rewrap::{REWRAP, RewrapLine};
use martlet_serving::Failure;

use crate::admin::client::AdminEndpoint;
use crate::admin::print;

/// Arguments of `martlet admin bucket rewrap`.
#[derive(Args, Debug)]
pub(in crate::admin) struct RewrapArgs {
    /// Bucket
    bucket: String,
    /// Maximum versions per second [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
}

impl RewrapArgs {
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let mut all = RewrapLine::default();
        loop {
            let began = Instant::now();
            let mut query = vec![("bucket", self.bucket.as_str())];
            query.extend(all.after_key.as_deref().map(|key| ("after_key", key)));
            query.extend(all.after_version.as_deref().map(|id| ("after_version", id)));
            let page: RewrapLine = server.set(REWRAP, &query)?;
            let seen = page.seen;
            all = all.and(page);
            if all.after_key.is_none() {
                break;
            }
            rest(span_of(seen, self.rate).saturating_sub(began.elapsed()));
        }
        print::show(&all, json, text);
        check_outcome(&all)
    }
}

/// Minimum duration of a page with this many versions.
fn span_of(seen: u64, rate: Option<u32>) -> Duration {
    rate.map_or(Duration::ZERO, |rate| Duration::from_secs(seen) / rate)
}

#[expect(clippy::disallowed_methods, reason = "the command's only thread has no other work")]
fn rest(span: Duration) {
    thread::sleep(span);
}

fn text(line: &RewrapLine) -> String {
    let RewrapLine { bucket, seen, rewrapped, failed, uploads, .. } = line;
    let mut text = format!("{bucket}: rewrapped the keys of {rewrapped} of {seen} versions\n");
    if let Some(failure) = &line.failure {
        let _ = writeln!(text, "{failed} versions failed, last: {failure}");
    }
    if *uploads > 0 {
        let _ = writeln!(text, "{uploads} earlier uploads are still open");
    }
    text
}

/// Fails while the old master key is still needed.
fn check_outcome(line: &RewrapLine) -> Result<(), Failure> {
    match (line.failed, line.uploads) {
        (0, 0) => Ok(()),
        (0, uploads) => Err(Failure::refused(format!(
            "{uploads} open uploads need the old master key: run the command again after they end"
        ))),
        (failed, _) => Err(Failure::refused(format!(
            "{failed} versions still need the old master key: run the command again later"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_add_up_and_the_last_says_where_to_go_on() {
        let page = |seen, failure: Option<&str>, after: Option<&str>| RewrapLine {
            bucket: "b".into(),
            seen,
            rewrapped: seen,
            failed: u64::from(failure.is_some()),
            failure: failure.map(str::to_owned),
            after_key: after.map(str::to_owned),
            ..RewrapLine::default()
        };
        let all = page(3, Some("k: no"), Some("m")).and(page(2, None, None));
        assert_eq!((all.seen, all.rewrapped, all.failed), (5, 5, 1));
        assert_eq!((all.failure.as_deref(), all.after_key.as_deref()), (Some("k: no"), None));
        assert!(text(&all).contains("of 5 versions\n1 versions failed, last: k: no"));
        assert!(check_outcome(&all).is_err() && check_outcome(&page(9, None, None)).is_ok());
        assert!(check_outcome(&RewrapLine { uploads: 1, ..page(9, None, None) }).is_err());
    }

    #[test]
    fn a_page_takes_its_time() {
        assert_eq!(span_of(200, Some(100)), Duration::from_secs(2));
        assert_eq!(span_of(200, None), Duration::ZERO);
    }
}
