//! Quotas and rates on the command line.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use martlet_admin_api::jobs::JobRequest;
use martlet_admin_api::limits::{
    BUCKET_QUOTA, BUCKET_USAGE, Bound, QuotaChange, QuotaLine, RateLine,
};
use martlet_serving::{Failure, Size};

use super::client::AdminEndpoint;
use super::job;
use super::print::show;
use crate::columns::table;
use crate::progress::{ProgressDisplay, WorkState};

/// Timeout for counting a bucket within a request.
const PATIENCE: Duration = Duration::from_mins(10);

/// Interval between two updates of the display.
const TICK: Duration = Duration::from_millis(200);

/// Parses a number or `none`.
pub(super) fn count(text: &str) -> Result<Bound, String> {
    match text {
        "none" => Ok(Bound::None),
        text => text
            .parse()
            .map(Bound::At)
            .map_err(|_| format!("{text:?} is neither a number nor none")),
    }
}

/// Parses a number of bytes or `none`.
pub(super) fn bytes(text: &str) -> Result<Bound, String> {
    match text {
        "none" => Ok(Bound::None),
        text => text.parse().map(|Size(bytes)| Bound::At(bytes)),
    }
}

/// Arguments of `quota`.
#[derive(Args, Debug)]
pub(super) struct QuotaArgs {
    /// Name of the bucket or tenant
    name: String,
    /// Maximum bytes of all versions and open uploads, such as 500GiB; none: unlimited
    #[arg(long, value_name = "BYTES|none", value_parser = bytes)]
    bytes: Option<Bound>,
    /// Maximum number of versions; none: unlimited
    #[arg(long, value_name = "N|none", value_parser = count)]
    objects: Option<Bound>,
    /// Maximum bytes of the index: 512, the key and its metadata for each version, delete marker,
    /// open upload, part and bucket; none: 1 GiB beside what the other limits allow
    #[arg(long, value_name = "BYTES|none", value_parser = bytes)]
    index: Option<Bound>,
}

impl QuotaArgs {
    /// Shows the quota at `path`, after setting it if any bound is present. `parameter` carries the
    /// name in the query.
    pub(super) fn run(
        &self,
        server: &AdminEndpoint,
        path: &str,
        parameter: &str,
        json: bool,
    ) -> Result<(), Failure> {
        let Self { name, bytes, objects, index } = self;
        let line: QuotaLine = if bytes.is_none() && objects.is_none() && index.is_none() {
            server.request_json(path, &[(parameter, name)])?
        } else {
            let (bytes, objects, index) = (*bytes, *objects, *index);
            server.put(path, &QuotaChange { name: name.clone(), bytes, objects, index })?
        };
        show(&line, json, quota);
        Ok(())
    }
}

/// Arguments of `martlet admin bucket usage`.
#[derive(Args, Debug)]
pub(super) struct UsageArgs {
    /// Bucket
    bucket: String,
    /// Count now, even if a count exists
    #[arg(long)]
    now: bool,
}

impl UsageArgs {
    /// Fetches and prints the usage of a bucket.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let known: QuotaLine = server.request_json(BUCKET_QUOTA, &[("bucket", &self.bucket)])?;
        let is_enough = !self.now && known.counted_ms.is_some();
        let line = if is_enough { known } else { self.count(server, json)? };
        show(&line, json, quota);
        Ok(())
    }

    /// Counts the bucket as a job. Viewers and admins of tenants start no jobs: for them the process
    /// counts within the request.
    fn count(&self, server: &AdminEndpoint, json: bool) -> Result<QuotaLine, Failure> {
        let request = JobRequest::BucketCount { bucket: self.bucket.clone() };
        let Some(begun) = job::start_if_permitted(server, &request)? else {
            return self.count_within_request(server, json);
        };
        let ended = job::follow(server, begun, json)?;
        job::check_outcome(&ended)?;
        serde_json::from_value(ended.detail.unwrap_or_default()).map_err(|error| {
            Failure::refused(format!("the count is not one of this version: {error}"))
        })
    }

    /// Counts the bucket within a request, and shows its time meanwhile: the process sends no progress.
    fn count_within_request(
        &self,
        server: &AdminEndpoint,
        json: bool,
    ) -> Result<QuotaLine, Failure> {
        let query = [("bucket", self.bucket.as_str()), ("now", "true")];
        let server = server.clone().patient(PATIENCE);
        let mut display = ProgressDisplay::begin(format!("count of {}", self.bucket), json);
        let began = Instant::now();
        thread::scope(|scope| {
            let (end, ended) = channel::<()>();
            let request = || {
                let reply = server.request_json(BUCKET_USAGE, &query);
                drop(end);
                reply
            };
            let request = scope.spawn(request);
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                display.show(&counting(began.elapsed()));
            }
            request.join().unwrap_or_else(|_| Err(Failure::refused("the request failed")))
        })
    }
}

/// State of a count within a request.
fn counting(elapsed: Duration) -> WorkState {
    let (seconds, most) = (elapsed.as_secs(), PATIENCE.as_secs());
    let text = format!("counting for {seconds} s, {most} s at most");
    WorkState { text, ..WorkState::default() }
}

fn number(number: Option<u64>, otherwise: &str) -> String {
    number.map_or_else(|| otherwise.to_owned(), |number| number.to_string())
}

/// Formats a quota and its usage.
fn quota(line: &QuotaLine) -> String {
    let row = |what: &str, held: Option<u64>, bound: Option<u64>| {
        vec![what.to_owned(), number(held, "not counted"), number(bound, "unlimited")]
    };
    let header = vec![line.name.clone(), "held".to_owned(), "allowed".to_owned()];
    let rows = [
        header,
        row("bytes", line.bytes, line.bytes_max),
        row("objects", line.objects, line.objects_max),
        row("bytes of the index", line.index, line.index_max),
    ];
    let mut text = table(&rows, &[1, 2]);
    if line.counted_ms.is_some() {
        text += "Counts are some seconds old or older; later writes are not included.\n";
    }
    text
}

/// Formats a rate.
pub(super) fn rate(line: &RateLine) -> String {
    let words = [
        line.requests.map(|requests| format!("{requests} requests/s")),
        line.bytes.map(|bytes| format!("{bytes} bytes/s")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "any".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_numbers_or_none() {
        assert_eq!(count("12"), Ok(Bound::At(12)));
        assert_eq!(bytes("2KiB"), Ok(Bound::At(2048)));
        assert_eq!((count("none"), bytes("none")), (Ok(Bound::None), Ok(Bound::None)));
        for wrong in ["", "-1", "1.5", "some"] {
            assert!(count(wrong).is_err() && bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn usage_is_printed_beside_its_limit() {
        let line = QuotaLine {
            name: "b".into(),
            bytes_max: Some(100),
            bytes: Some(7),
            objects: Some(2),
            counted_ms: Some(1),
            ..QuotaLine::default()
        };
        let text = quota(&line);
        for words in ["100", "7", "unlimited", "counts are"] {
            assert!(text.to_lowercase().contains(words), "{words}: {text}");
        }
        let text = quota(&QuotaLine::default());
        assert!(text.contains("not counted") && !text.contains("Counts are"), "{text}");
    }

    #[test]
    fn rates_are_printed_in_words() {
        assert_eq!(rate(&RateLine::default()), "any");
        let both = RateLine { requests: Some(5), bytes: Some(9) };
        assert_eq!(rate(&both), "5 requests/s, 9 bytes/s");
    }
}
