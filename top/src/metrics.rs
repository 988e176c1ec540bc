//! Readings of a process's metrics page, and rates between two readings.

use std::collections::{BTreeMap, VecDeque};

use crate::text::escaped;

/// Number of operations that a reading tells apart. Requests of others count in the sums alone.
const OPERATIONS_MAX: usize = 200;
/// Number of buckets of a histogram that a reading keeps.
const BUCKETS_MAX: usize = 100;
/// Points of the history: ten minutes at an interval of two seconds.
const POINTS_MAX: usize = 300;

/// Counters of a process at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Time of the reading in milliseconds, by the clock of the caller.
    at_ms: u64,
    /// Processor time, which starts at zero with the process.
    cpu_seconds: f64,
    requests: f64,
    errors: f64,
    bytes_in: f64,
    bytes_out: f64,
    operations: BTreeMap<String, OperationCounts>,
    /// Cumulative counts of the time to the first byte, by upper bound.
    buckets: Vec<Bucket>,
    /// True if the page has requests of S3 clients.
    serves_s3: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct OperationCounts {
    requests: f64,
    errors: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    bound_s: f64,
    count: f64,
}

/// Rates between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Requests per second.
    pub requests: f64,
    /// Replies with a status of 500 or more, per second.
    pub errors: f64,
    /// Bytes of request bodies per second.
    pub bytes_in: f64,
    /// Bytes of reply bodies per second.
    pub bytes_out: f64,
    /// Upper bound of the median time to the first byte, in seconds. `None` without requests.
    pub p50_s: Option<f64>,
    /// As `p50_s`, for 99 % of the requests.
    pub p99_s: Option<f64>,
    /// Rates of operations with requests, the highest first.
    pub operations: Vec<OperationRate>,
}

/// Rates of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationRate {
    /// Name of the operation, escaped.
    pub name: String,
    /// Requests per second.
    pub requests: f64,
    /// Replies with a status of 500 or more, per second.
    pub errors: f64,
}

/// Point of the history. `None` marks an interval without rates: the first, or a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    pub(crate) requests: Option<f64>,
    pub(crate) bytes_out: Option<f64>,
}

/// Rates of the last minutes.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    last: Option<Reading>,
    /// Rates of the last interval.
    pub(crate) rates: Option<Rates>,
    /// Points, the oldest first.
    pub(crate) points: VecDeque<Point>,
}

impl Reading {
    /// Parses a page of Prometheus' text format or of `OpenMetrics`. Lines of other metrics are
    /// ignored.
    pub fn parse(page: &str, at_ms: u64) -> Self {
        let mut reading = Self { at_ms, ..Self::default() };
        for sample in page.lines().filter_map(Sample::parse) {
            reading.add(&sample);
        }
        reading.buckets.sort_by(|a, b| a.bound_s.total_cmp(&b.bound_s));
        reading
    }

    /// Returns true if the page has requests of S3 clients.
    pub fn serves_s3(&self) -> bool {
        self.serves_s3
    }

    fn add(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "martlet_requests_total" => self.add_requests(sample),
            "martlet_request_body_bytes_total" => {
                self.serves_s3 = true;
                self.bytes_in += sample.value;
            }
            "martlet_reply_body_bytes_total" => self.bytes_out += sample.value,
            "martlet_request_first_byte_seconds_bucket" => self.add_bucket(sample),
            "process_cpu_seconds_total" => self.cpu_seconds += sample.value,
            _ => {}
        }
    }

    fn add_requests(&mut self, sample: &Sample<'_>) {
        let is_error = sample.label("status").is_some_and(|status| status.starts_with('5'));
        let errors = if is_error { sample.value } else { 0.0 };
        self.requests += sample.value;
        self.errors += errors;
        let name = escaped(sample.label("operation").unwrap_or("-"));
        if self.operations.len() < OPERATIONS_MAX || self.operations.contains_key(&name) {
            let counts = self.operations.entry(name).or_default();
            counts.requests += sample.value;
            counts.errors += errors;
        }
    }

    fn add_bucket(&mut self, sample: &Sample<'_>) {
        let bound = sample.label("le").and_then(|bound| match bound {
            "+Inf" => Some(f64::INFINITY),
            number => number.parse::<f64>().ok().filter(|it| it.is_finite()),
        });
        let Some(bound_s) = bound else { return };
        let has_room = self.buckets.len() < BUCKETS_MAX;
        match self.buckets.iter_mut().find(|it| it.bound_s.total_cmp(&bound_s).is_eq()) {
            Some(bucket) => bucket.count += sample.value,
            None if has_room => self.buckets.push(Bucket { bound_s, count: sample.value }),
            None => {}
        }
    }

    /// Returns true if a counter is lower than before: the process has restarted since.
    fn has_restarted_since(&self, before: &Self) -> bool {
        self.cpu_seconds < before.cpu_seconds
            || self.requests < before.requests
            || self.errors < before.errors
            || self.bytes_in < before.bytes_in
            || self.bytes_out < before.bytes_out
            || before.buckets.iter().any(|it| self.count_at(it.bound_s) < it.count)
    }

    fn count_at(&self, bound_s: f64) -> f64 {
        let bucket = self.buckets.iter().find(|it| it.bound_s.total_cmp(&bound_s).is_eq());
        bucket.map_or(0.0, |bucket| bucket.count)
    }

    /// Returns the upper bound of the bucket of a quantile; infinity above the last bound.
    fn quantile_s(&self, before: &Self, share: f64) -> Option<f64> {
        let since = |bound_s: f64| self.count_at(bound_s) - before.count_at(bound_s);
        let all = since(f64::INFINITY);
        let mut reached = self.buckets.iter().filter(|it| since(it.bound_s) >= share * all);
        reached.next().filter(|_| all > 0.0).map(|bucket| bucket.bound_s)
    }
}

impl Rates {
    /// Returns the rates between two readings of a process. `None` if no time has passed or if the
    /// process has restarted between them.
    pub fn between(before: &Reading, after: &Reading) -> Option<Self> {
        let ms = after.at_ms.checked_sub(before.at_ms).filter(|ms| *ms > 0)?;
        if after.has_restarted_since(before) {
            return None;
        }
        let seconds = crate::text::float(ms) / 1000.0;
        let rate = |before: f64, after: f64| (after - before) / seconds;
        let operation = |(name, after): (&String, &OperationCounts)| {
            let before = before.operations.get(name).copied().unwrap_or_default();
            let requests = rate(before.requests, after.requests);
            let errors = rate(before.errors, after.errors);
            (requests > 0.0).then(|| OperationRate { name: name.clone(), requests, errors })
        };
        let mut operations: Vec<_> = after.operations.iter().filter_map(operation).collect();
        operations.sort_by(|a, b| b.requests.total_cmp(&a.requests));
        Some(Self {
            requests: rate(before.requests, after.requests),
            errors: rate(before.errors, after.errors),
            bytes_in: rate(before.bytes_in, after.bytes_in),
            bytes_out: rate(before.bytes_out, after.bytes_out),
            p50_s: after.quantile_s(before, 0.5),
            p99_s: after.quantile_s(before, 0.99),
            operations,
        })
    }
}

impl History {
    /// Adds a reading.
    pub(crate) fn push(&mut self, reading: Reading) {
        let rates = self.last.as_ref().and_then(|last| Rates::between(last, &reading));
        if self.last.is_some() {
            let point = Point {
                requests: rates.as_ref().map(|it| it.requests),
                bytes_out: rates.as_ref().map(|it| it.bytes_out),
            };
            self.points.push_back(point);
            if self.points.len() > POINTS_MAX {
                self.points.pop_front();
            }
        }
        self.rates = rates;
        self.last = Some(reading);
    }

    /// Forgets the last reading, so that the next interval begins at the next reading.
    pub(crate) fn interrupt(&mut self) {
        self.last = None;
    }

    /// Returns the last reading.
    pub(crate) fn last(&self) -> Option<&Reading> {
        self.last.as_ref()
    }
}

/// Line of a metrics page.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    /// Parses a line. `None` for comments, and for lines without a finite value.
    fn parse(line: &'a str) -> Option<Self> {
        if !line.starts_with("martlet_re") && !line.starts_with("process_cpu") {
            return None;
        }
        let at = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(at);
        let (labels, rest) = match rest.strip_prefix('{') {
            None => ("", rest),
            Some(rest) => rest.split_at(end_of_labels(rest)?),
        };
        let value = rest.trim_start_matches('}').split_whitespace().next()?;
        let value = value.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0)?;
        Some(Self { name, labels, value })
    }

    /// Returns the value of a label, as it stands on the page.
    fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
            let end = end_of_quote(after)?;
            if label == name {
                return Some(&after[..end]);
            }
            rest = &after[end + 1..];
        }
    }
}

/// Returns the place of the brace after all labels.
fn end_of_labels(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let next = at + text[at..].find(['"', '}'])?;
        if text[next..].starts_with('}') {
            return Some(next);
        }
        at = next + 1 + end_of_quote(&text[next + 1..])? + 1;
    }
}

/// Returns the place of the first quote without a backslash before it.
fn end_of_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, character)| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(gets: u64, errors: u64, fast: u64, cpu: f64) -> String {
        let all = gets + errors;
        format!(
            "# HELP martlet_requests Requests\n\
             martlet_requests_total{{operation=\"GetObject\",status=\"200\"}} {gets}\n\
             martlet_requests_total{{operation=\"PutObject\",status=\"503\"}} {errors} 1700000000\n\
             martlet_request_body_bytes_total {}\n\
             martlet_reply_body_bytes_total{{role=\"proxy }} p1\"}} {}\n\
             martlet_request_first_byte_seconds_bucket{{le=\"0.005\",operation=\"GetObject\"}} {fast}\n\
             martlet_request_first_byte_seconds_bucket{{le=\"0.1\",operation=\"GetObject\"}} {all}\n\
             martlet_request_first_byte_seconds_bucket{{le=\"+Inf\",operation=\"GetObject\"}} {all} # {{}} 1\n\
             martlet_requests_broken{{ 9\nmartlet_requests_total{{operation=\"open 7\n\
             process_cpu_seconds_total {cpu}\n",
            gets * 10,
            gets * 1000,
        )
    }

    #[test]
    fn rates_are_differences_by_time() {
        let before = Reading::parse(&page(100, 0, 90, 1.0), 1000);
        let after = Reading::parse(&page(300, 4, 200, 1.5), 3000);
        assert!(after.serves_s3());
        let rates = Rates::between(&before, &after).unwrap();
        assert!((rates.requests - 102.0).abs() < 1e-9, "{rates:?}");
        assert!((rates.errors - 2.0).abs() < 1e-9);
        assert!((rates.bytes_in - 1000.0).abs() < 1e-9);
        assert!((rates.bytes_out - 100_000.0).abs() < 1e-6);
        assert_eq!((rates.p50_s, rates.p99_s), (Some(0.005), Some(0.1)));
        let names: Vec<_> = rates.operations.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["GetObject", "PutObject"]);
        assert!(Rates::between(&after, &after).is_none(), "no time has passed");
        let idle = Reading::parse(&page(300, 4, 200, 1.5), 5000);
        let rates = Rates::between(&after, &idle).unwrap();
        assert_eq!((rates.p50_s, rates.operations.len()), (None, 0));
    }

    #[test]
    fn a_restart_leaves_a_gap_and_no_negative_rate() {
        let mut history = History::default();
        for (at, page) in [
            page(100, 0, 90, 9.0),
            page(200, 0, 190, 9.5),
            // The counters start again, first below the last values, then above them.
            page(5, 0, 5, 0.1),
            page(25, 0, 25, 0.2),
            page(900, 0, 900, 0.15),
            page(910, 0, 910, 0.3),
        ]
        .into_iter()
        .enumerate()
        {
            history.push(Reading::parse(&page, 1000 * u64::try_from(at).unwrap()));
        }
        let requests: Vec<_> = history.points.iter().map(|it| it.requests).collect();
        assert_eq!(requests, [Some(100.0), None, Some(20.0), None, Some(10.0)]);
    }

    #[test]
    fn pages_of_any_length_are_bounded() {
        let lines = (0..1000).map(|at| {
            format!(
                "martlet_requests_total{{operation=\"o{at}\u{1b}\",status=\"200\"}} 1\n\
                 martlet_request_first_byte_seconds_bucket{{le=\"{at}\"}} 1\n"
            )
        });
        let page: String = lines.collect();
        let reading = Reading::parse(&page, 0);
        assert_eq!((reading.operations.len(), reading.buckets.len()), (200, 100));
        assert!((reading.requests - 1000.0).abs() < 1e-9);
        assert!(reading.operations.keys().all(|name| name.ends_with("\\u{1b}")));
        let mut history = History::default();
        for at in 0..1000 {
            history.push(Reading::parse("", at));
        }
        assert_eq!(history.points.len(), POINTS_MAX);
    }
}
