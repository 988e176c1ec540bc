//! Batches of log lines, delivered as objects into target buckets.
//!
//! ```text
//! BucketLogs ─▶ a batch for each source ─▶ Delivery ─▶ PUT into the target bucket
//! ```
//!
//! A request appends its line to the batch of its bucket under one short lock. It wakes the
//! delivery only when a batch becomes full, or when lines begin to take much of their room.
//!
//! Invariants:
//! * A batch is delivered when it is old or large enough, and when the process stops.
//! * Waiting lines are bounded in bytes; lines beyond the bound are lost, and counted.
//! * Each delivery checks that the target bucket still belongs to the source's owner and accepts
//!   logs. If not, the batch is lost. A batch that can't be written is retried a limited number of
//!   times.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::entry::{Attributes, Marks};
use martlet_protocol::id::random_bytes;
use martlet_protocol::{ByteStream, Clock};
use martlet_proxy::{Error, NewBody, ObjectStore, PutObject, WriteConditions};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::settings::{KeySource, LoggedBucket};
use super::target::{mark_log, may_deliver};
use crate::checksums;

/// Maximum bytes of text in batches, those under delivery included.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Size in bytes at which a batch is delivered at once. Each object costs a delivery some syncs.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// The same while lines take more than [`CROWDED_BYTES`], so that many busy buckets lose none.
const CROWDED_BATCH_BYTES_MAX: usize = 1 << 20;
const CROWDED_BYTES: usize = WAITING_BYTES_MAX / 2;
/// Bounds of a chunk of a batch, in bytes, unless a line is longer.
const CHUNK_BYTES: RangeInclusive<usize> = (1 << 10)..=(64 << 10);
/// Maximum number of retries for a batch that can't be written.
const RETRIES_MAX: u32 = 5;
/// Timeout of the last deliveries when the process stops.
const FAREWELL: Duration = Duration::from_secs(10);

/// Source of log lines. Lines of equal sources share a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSource {
    of: Arc<LoggedBucket>,
    /// Day of the requests, if each day has its own objects.
    day: Option<u64>,
}

impl LogSource {
    /// Returns the source of a bucket's requests at `now_ms`, in milliseconds since 1970.
    pub(crate) fn at(of: Arc<LoggedBucket>, now_ms: u64) -> Self {
        let day = of.logging.day_of(now_ms);
        Self { of, day }
    }
}

/// Receives log lines of buckets that have logging enabled.
#[derive(Debug)]
pub struct BucketLogs(Arc<WaitingLines>);

/// Lines that wait for their delivery.
#[derive(Debug, Default)]
struct WaitingLines {
    batches: Mutex<Batches>,
    /// Wakes the delivery when a batch is full.
    full: Notify,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Batches {
    /// Batches by source bucket: several after a change of its settings, at the end of a day, and
    /// while one is retried.
    of_bucket: HashMap<String, Vec<LogBatch>>,
    /// Bytes of text in all batches, those under delivery included.
    bytes: usize,
}

/// Settings of log delivery.
#[derive(Clone, Debug)]
pub struct DeliveryOptions {
    /// Maximum age of a batch.
    pub interval: Duration,
    /// Region of the buckets, for object keys.
    pub region: String,
}

/// Delivers the lines that [`BucketLogs`] receives, while it runs.
#[derive(Debug)]
pub struct Delivery {
    store: ObjectStore,
    clock: Arc<dyn Clock>,
    options: DeliveryOptions,
    waiting: Arc<WaitingLines>,
}

#[derive(Debug)]
struct LogBatch {
    source: LogSource,
    text: LogText,
    lines: u64,
    since: Instant,
    retries: u32,
}

/// Text of a batch, in chunks that neither grow nor move. A chunk holds as many bytes as all before
/// it, within [`CHUNK_BYTES`], so that at most half of the memory is unused.
#[derive(Debug, Default)]
struct LogText {
    full: Vec<Bytes>,
    open: Vec<u8>,
    /// Bytes of all chunks.
    bytes: usize,
}

impl LogText {
    /// Appends a line that comes in parts, and an end of line.
    fn push(&mut self, line: &[&str]) {
        let needed = bytes_of(line);
        if self.open.capacity() - self.open.len() < needed {
            let usual = self.bytes.clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
            self.begin_chunk(needed.max(usual));
        }
        for part in line {
            self.open.extend_from_slice(part.as_bytes());
        }
        self.open.push(b'\n');
        self.bytes += needed;
    }

    /// All chunks, in order.
    fn chunks(&mut self) -> &[Bytes] {
        self.begin_chunk(0);
        &self.full
    }

    /// Puts the open chunk aside, and begins one of a capacity in bytes.
    fn begin_chunk(&mut self, capacity: usize) {
        let full = std::mem::replace(&mut self.open, Vec::with_capacity(capacity));
        if !full.is_empty() {
            self.full.push(full.into());
        }
    }
}

impl BucketLogs {
    /// Creates a receiver of lines, and the delivery of these lines into `store`.
    pub fn new(
        store: ObjectStore,
        clock: Arc<dyn Clock>,
        options: DeliveryOptions,
    ) -> (Arc<Self>, Delivery) {
        let waiting = Arc::new(WaitingLines::default());
        let logs = Arc::new(Self(waiting.clone()));
        (logs, Delivery { store, clock, options, waiting })
    }

    /// Number of lines that were lost.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Appends `lines` lines that come in parts, without the newline at their end: a line, and those of
    /// its keys if the request deleted many.
    pub(crate) fn offer(&self, source: &LogSource, text: &[&str], lines: u64) {
        let bytes = bytes_of(text);
        let mut batches = self.0.batches.lock();
        if batches.bytes + bytes > WAITING_BYTES_MAX {
            self.0.lost.fetch_add(lines, Ordering::Relaxed);
            return;
        }
        if batches.add(source, text, bytes, lines) {
            self.0.full.notify_one();
        }
    }
}

impl Batches {
    /// Appends lines of `bytes` bytes to the batch of their source. Returns true if a delivery is due:
    /// the batch has become full, or there is less room for lines than before.
    fn add(&mut self, source: &LogSource, text: &[&str], bytes: usize, lines: u64) -> bool {
        let full_before = self.full_bytes();
        self.bytes += bytes;
        let full_bytes = self.full_bytes();
        let bucket = &source.of.bucket;
        let batches = match self.of_bucket.get_mut(bucket) {
            Some(batches) => batches,
            None => self.of_bucket.entry(bucket.clone()).or_default(),
        };
        let at = batches.iter().position(|batch| batch.source == *source).unwrap_or_else(|| {
            batches.push(LogBatch::new(source.clone()));
            batches.len() - 1
        });
        let batch = &mut batches[at];
        let was_full = batch.text.bytes >= full_bytes;
        batch.text.push(text);
        batch.lines += lines;
        full_bytes < full_before || batch.text.bytes >= full_bytes && !was_full
    }

    /// Size in bytes of a full batch.
    fn full_bytes(&self) -> usize {
        if self.bytes > CROWDED_BYTES { CROWDED_BATCH_BYTES_MAX } else { BATCH_BYTES_MAX }
    }

    /// Removes and returns the batches that are due: full ones, and those that `is_due` accepts.
    fn take(&mut self, is_due: impl Fn(&LogBatch) -> bool) -> Vec<LogBatch> {
        let full_bytes = self.full_bytes();
        let is_due = |batch: &mut LogBatch| batch.text.bytes >= full_bytes || is_due(batch);
        let due = self.of_bucket.values_mut().flat_map(|batches| batches.extract_if(.., &is_due));
        let due = due.collect();
        self.of_bucket.retain(|_, batches| !batches.is_empty());
        due
    }
}

impl LogBatch {
    /// A batch without lines.
    fn new(source: LogSource) -> Self {
        Self { source, text: LogText::default(), lines: 0, since: Instant::now(), retries: 0 }
    }
}

impl Delivery {
    /// Delivers until `stopped` is true, then delivers the remaining lines within ten seconds.
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        let interval = self.options.interval;
        let pace = (interval / 4).clamp(Duration::from_millis(50), Duration::from_secs(5));
        let mut tick = tokio::time::interval(pace);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = until_stopped(&mut stopped) => break,
                () = self.waiting.full.notified() => self.deliver(|_| false).await,
                _ = tick.tick() => self.deliver(|it| it.since.elapsed() >= interval).await,
            }
        }
        if tokio::time::timeout(FAREWELL, self.deliver(|_| true)).await.is_err() {
            tracing::warn!("lost access logs of buckets that were not delivered in time");
        }
    }

    /// Delivers full batches, and those that `is_due` accepts.
    async fn deliver(&self, is_due: impl Fn(&LogBatch) -> bool) {
        let due = self.waiting.batches.lock().take(is_due);
        for mut batch in due {
            match Box::pin(self.put(&mut batch)).await {
                Ok(()) => self.release(&batch),
                Err(error) if is_worth_another_try(&error) && batch.retries < RETRIES_MAX => {
                    tracing::debug!(bucket = batch.source.of.bucket, %error, "keeping a log for now");
                    batch.retries += 1;
                    batch.since = Instant::now();
                    let mut batches = self.waiting.batches.lock();
                    let bucket = batch.source.of.bucket.clone();
                    // Behind a newer batch of the source: lines go to that one.
                    batches.of_bucket.entry(bucket).or_default().push(batch);
                }
                Err(error) => {
                    let LoggedBucket { bucket, logging, .. } = &*batch.source.of;
                    let (target, lines) = (&logging.target, batch.lines);
                    tracing::info!(bucket, target, lines, %error, "could not deliver a log");
                    self.waiting.lost.fetch_add(lines, Ordering::Relaxed);
                    self.release(&batch);
                }
            }
        }
    }

    /// Frees the place of a batch that was delivered or lost.
    fn release(&self, batch: &LogBatch) {
        self.waiting.batches.lock().bytes -= batch.text.bytes;
    }

    async fn put(&self, batch: &mut LogBatch) -> Result<(), Error> {
        let LogSource { of, day } = &batch.source;
        let LoggedBucket { bucket, owner, logging } = &**of;
        let target = self.store.bucket(&logging.target).await?;
        if target.owner != *owner || !may_deliver(&target, bucket, owner, logging) {
            return Err(Error::AccessDenied);
        }
        let unique = hex::encode_upper(random_bytes::<8>());
        let (region, now_ms) = (&self.options.region, self.clock.now_ms());
        let key = logging.key(&KeySource { owner, region, bucket, now_ms, day: *day }, &unique);
        let mut marks = Marks::default();
        mark_log(&mut marks, &target, logging);
        let attributes = Attributes {
            content_type: Some("text/plain".to_owned()),
            marks,
            ..Attributes::default()
        };
        let put = PutObject {
            attributes,
            body: body(batch.text.chunks()),
            conditions: WriteConditions::default(),
        };
        self.store.put(&logging.target, &key, put).await.map(drop)
    }
}

/// Bytes of a text in parts, and of an end of line.
fn bytes_of(text: &[&str]) -> usize {
    text.iter().map(|part| part.len()).sum::<usize>() + 1
}

async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // A closed channel also means to stop.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// True if a retry may succeed.
fn is_worth_another_try(error: &Error) -> bool {
    !matches!(error, Error::AccessDenied | Error::NoSuchBucket | Error::InvalidRequest(_))
}

fn body(chunks: &[Bytes]) -> NewBody {
    let size = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let chunks: Vec<_> = chunks.iter().cloned().map(Ok).collect();
    let bytes: ByteStream = Box::pin(futures::stream::iter(chunks));
    NewBody {
        bytes,
        size: Some(size),
        md5: None,
        compute: vec![checksums::DEFAULT.0],
        expected: Box::new(|| Ok(Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::{KeyFormat, Logging};

    fn source(bucket: &str, target: &str, day: Option<u64>) -> LogSource {
        let logging = Logging {
            target: target.to_owned(),
            prefix: String::new(),
            format: KeyFormat::Simple,
            grants: Vec::new(),
        };
        let of = LoggedBucket { bucket: bucket.to_owned(), owner: "o".to_owned(), logging };
        LogSource { of: of.into(), day }
    }

    #[test]
    fn no_more_waits_than_may_however_long_lines_are() {
        let logs = BucketLogs(Arc::default());
        let line = "x".repeat((1 << 20) - 1);
        for _ in 0..WAITING_BYTES_MAX / (line.len() + 1) + 3 {
            logs.offer(&source("b", "t", None), &[&line], 1);
        }
        assert_eq!(logs.lost(), 3);
        let taken = logs.0.batches.lock().take(|_| true);
        assert_eq!(taken.len(), 1);
        logs.offer(&source("b", "t", None), &["x"], 1);
        assert_eq!(logs.lost(), 4, "lines under delivery count too");
    }

    #[test]
    fn each_bucket_target_and_day_has_a_batch_of_its_own() {
        let logs = BucketLogs(Arc::default());
        let sources = [("a", "t", None), ("b", "t", None), ("b", "u", None), ("b", "t", Some(1))];
        for (parts, lines) in [(["1", ""], 1), (["2\n", "3"], 2)] {
            for (bucket, target, day) in sources {
                // Equal settings need not be one value.
                logs.offer(&source(bucket, target, day), &parts, lines);
            }
        }
        let batches = logs.0.batches.lock().take(|_| true);
        assert_eq!(batches.len(), sources.len());
        for mut batch in batches {
            let text = batch.text.chunks().concat();
            assert_eq!((&text[..], batch.lines), (&b"1\n2\n3\n"[..], 3), "{:?}", batch.source);
        }
        assert!(logs.0.batches.lock().of_bucket.is_empty(), "nothing stays of empty buckets");
    }

    #[test]
    fn chunks_grow_with_the_text_and_hold_all_lines_in_order() {
        let mut lines: Vec<String> = (0..4_000).map(|number| format!("{number:0100}")).collect();
        let long = "x".repeat(200_000);
        lines.push(long.clone());
        let mut text = LogText::default();
        for (number, line) in lines.iter().enumerate() {
            text.push(&[line]);
            if number == 1_000 {
                assert!(text.chunks().len() > 1);
            }
        }
        let expected = lines.join("\n") + "\n";
        assert_eq!(text.bytes, expected.len());
        let chunks = text.chunks();
        assert!(chunks.concat() == expected.as_bytes());
        let longest = chunks.iter().map(Bytes::len).filter(|length| *length < long.len()).max();
        assert!((60_000..=64 << 10).contains(&longest.unwrap()), "{longest:?}");
        assert!(chunks[0].len() <= 1 << 10, "a bucket of few requests needs little memory");
    }

    /// Returns true if the delivery was woken since the last call.
    async fn is_woken(logs: &BucketLogs) -> bool {
        tokio::time::timeout(Duration::from_millis(1), logs.0.full.notified()).await.is_ok()
    }

    #[tokio::test]
    async fn a_full_batch_wakes_the_delivery_once() {
        let logs = BucketLogs(Arc::default());
        let line = "x".repeat(BATCH_BYTES_MAX / 4);
        logs.offer(&source("b", "t", None), &[&line], 1);
        assert!(!is_woken(&logs).await);
        (0..9).for_each(|_| logs.offer(&source("b", "t", None), &[&line], 1));
        assert!(is_woken(&logs).await);
        assert!(!is_woken(&logs).await);
    }

    #[tokio::test]
    async fn batches_of_many_buckets_are_smaller() {
        let logs = BucketLogs(Arc::default());
        let line = "x".repeat(CROWDED_BATCH_BYTES_MAX);
        let offer = |bucket: usize, line: &str| {
            logs.offer(&source(&bucket.to_string(), "t", None), &[line], 1);
        };
        let buckets = CROWDED_BYTES / (line.len() + 1);
        (0..buckets).for_each(|bucket| offer(bucket, &line));
        assert!(!is_woken(&logs).await && logs.0.batches.lock().take(|_| false).is_empty());
        offer(buckets, &line);
        assert!(is_woken(&logs).await, "batches of this size are full now");
        offer(buckets + 1, "x");
        assert!(!is_woken(&logs).await);
        offer(buckets + 1, &line);
        assert!(is_woken(&logs).await);
        offer(buckets + 2, "x");
        assert_eq!(logs.0.batches.lock().take(|_| false).len(), buckets + 2);
    }
}
