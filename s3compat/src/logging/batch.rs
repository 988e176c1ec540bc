//! Batches of log lines, delivered as objects into target buckets.
//!
//! ```text
//! BucketLogs ─▶ queue ─▶ Delivery: a batch for each source ─▶ PUT into the target bucket
//! ```
//!
//! Invariants:
//! * A batch is delivered when it is old or large enough, and when the process stops.
//! * Waiting lines are bounded in number and bytes; lines beyond the bounds are lost, and counted.
//! * Each delivery checks that the target bucket still belongs to the source's owner and accepts
//!   logs. If not, the batch is lost. A batch that can't be written is retried a limited number of
//!   times.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::entry::{Attributes, Marks};
use martlet_protocol::id::random_bytes;
use martlet_protocol::{ByteStream, Clock};
use martlet_proxy::{Error, NewBody, ObjectStore, PutObject, WriteConditions};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::settings::{KeySource, Logging};
use super::target::{mark_log, may_deliver};
use crate::checksums;

/// Maximum number of lines in the queue.
const QUEUED_LINES_MAX: usize = 16 * 1024;
/// Maximum bytes of text in the queue. A line may exceed the length of its request's head.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Maximum bytes of text in batches.
const GATHERED_BYTES_MAX: usize = 32 << 20;
/// Size in bytes at which a batch is delivered at the next tick.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Maximum number of retries for a batch that can't be written.
const RETRIES_MAX: u32 = 5;
/// Timeout of the last deliveries when the process stops.
const FAREWELL: Duration = Duration::from_secs(10);

/// Source bucket of logged requests, and its log settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSource {
    pub(crate) bucket: String,
    pub(crate) owner: String,
    pub(crate) logging: Logging,
    /// Day of the requests, if each day has its own objects.
    pub(crate) day: Option<u64>,
}

/// A queued line, with the lines of its keys if the request deleted many.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) source: LogSource,
    pub(crate) line: String,
}

/// Receives log lines of buckets that have logging enabled.
#[derive(Debug)]
pub struct BucketLogs {
    queue: mpsc::Sender<Entry>,
    queued_bytes: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
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
    queue: mpsc::Receiver<Entry>,
    queued_bytes: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    /// Batches by source bucket, its settings document, and day.
    batches: HashMap<(String, Vec<u8>, Option<u64>), LogBatch>,
    gathered_bytes: usize,
}

#[derive(Debug)]
struct LogBatch {
    source: LogSource,
    text: String,
    lines: u64,
    since: Instant,
    retries: u32,
}

impl BucketLogs {
    /// Creates a receiver of lines, and the delivery of these lines into `store`.
    pub fn new(
        store: ObjectStore,
        clock: Arc<dyn Clock>,
        options: DeliveryOptions,
    ) -> (Arc<Self>, Delivery) {
        let (sender, queue) = mpsc::channel(QUEUED_LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let (queued, batches) = (queued_bytes.clone(), HashMap::new());
        let logs = Self { queue: sender, queued_bytes: queued, lost: lost.clone() };
        let gathered_bytes = 0;
        let delivery =
            Delivery { store, clock, options, queue, queued_bytes, lost, batches, gathered_bytes };
        (Arc::new(logs), delivery)
    }

    /// Number of lines that were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn offer(&self, entry: Entry) {
        let (bytes, lines) = (entry.line.len(), lines_of(&entry.line));
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > QUEUED_BYTES_MAX || self.queue.try_send(entry).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.lost.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

impl Delivery {
    /// Delivers until `stopped` is true, then delivers the remaining lines within ten seconds.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let pace =
            (self.options.interval / 4).clamp(Duration::from_millis(50), Duration::from_secs(5));
        let mut tick = tokio::time::interval(pace);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = until_stopped(&mut stopped) => break,
                entry = self.queue.recv() => match entry {
                    Some(entry) => self.gather(entry),
                    None => break,
                },
                _ = tick.tick() => {
                    let interval = self.options.interval;
                    self.deliver(|batch| {
                        batch.since.elapsed() >= interval || batch.text.len() >= BATCH_BYTES_MAX
                    })
                    .await;
                }
            }
        }
        while let Ok(entry) = self.queue.try_recv() {
            self.gather(entry);
        }
        if tokio::time::timeout(FAREWELL, self.deliver(|_| true)).await.is_err() {
            tracing::warn!("lost access logs of buckets that were not delivered in time");
        }
    }

    fn gather(&mut self, entry: Entry) {
        let Entry { source, line } = entry;
        self.queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
        if self.gathered_bytes + line.len() > GATHERED_BYTES_MAX {
            self.lost.fetch_add(lines_of(&line), Ordering::Relaxed);
            return;
        }
        self.gathered_bytes += line.len() + 1;
        let name = (source.bucket.clone(), source.logging.document(), source.day);
        let batch = self.batches.entry(name).or_insert_with(|| LogBatch {
            source,
            text: String::new(),
            lines: 0,
            since: Instant::now(),
            retries: 0,
        });
        batch.text.push_str(&line);
        batch.text.push('\n');
        batch.lines += lines_of(&line);
    }

    async fn deliver(&mut self, is_due: impl Fn(&LogBatch) -> bool) {
        let due = self.batches.extract_if(|_, batch| is_due(batch));
        let due: Vec<_> = due.collect();
        for (name, mut batch) in due {
            match Box::pin(self.put(&batch)).await {
                Ok(()) => self.gathered_bytes -= batch.text.len(),
                Err(error) if is_worth_another_try(&error) && batch.retries < RETRIES_MAX => {
                    tracing::debug!(bucket = batch.source.bucket, %error, "keeping a log for now");
                    batch.retries += 1;
                    batch.since = Instant::now();
                    self.batches.insert(name, batch);
                }
                Err(error) => {
                    let LogSource { bucket, logging, .. } = &batch.source;
                    let (target, lines) = (&logging.target, batch.lines);
                    tracing::info!(bucket, target, lines, %error, "could not deliver a log");
                    self.lost.fetch_add(lines, Ordering::Relaxed);
                    self.gathered_bytes -= batch.text.len();
                }
            }
        }
    }

    async fn put(&self, batch: &LogBatch) -> Result<(), Error> {
        let LogSource { bucket, owner, logging, day } = &batch.source;
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
            body: body(&batch.text),
            conditions: WriteConditions::default(),
        };
        self.store.put(&logging.target, &key, put).await.map(drop)
    }
}

/// Number of lines in a text.
fn lines_of(text: &str) -> u64 {
    text.lines().count() as u64
}

async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // A closed channel also means to stop.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// True if a retry may succeed.
fn is_worth_another_try(error: &Error) -> bool {
    !matches!(error, Error::AccessDenied | Error::NoSuchBucket | Error::InvalidRequest(_))
}

fn body(text: &str) -> NewBody {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let size = bytes.len() as u64;
    let bytes: ByteStream = Box::pin(futures::stream::iter([Ok(bytes)]));
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
    use crate::logging::KeyFormat;

    #[test]
    fn no_more_waits_than_may_however_long_lines_are() {
        let (queue, _gathered) = mpsc::channel(QUEUED_LINES_MAX);
        let logs = BucketLogs { queue, queued_bytes: Arc::default(), lost: Arc::default() };
        let line = "x".repeat(1 << 20);
        let logging = Logging {
            target: "t".to_owned(),
            prefix: String::new(),
            format: KeyFormat::Simple,
            grants: Vec::new(),
        };
        let source =
            LogSource { bucket: "b".to_owned(), owner: "o".to_owned(), logging, day: None };
        for _ in 0..QUEUED_BYTES_MAX / line.len() + 3 {
            logs.offer(Entry { source: source.clone(), line: line.clone() });
        }
        assert_eq!(logs.lost(), 3);
    }
}
