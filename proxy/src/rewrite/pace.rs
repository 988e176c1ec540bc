//! Speed of a rewrite: limited by its rate, and slower while clients wait.
//!
//! All concurrent moves share one rate. Bytes are counted as they are read; those of a failed
//! attempt are subtracted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::{ByteStream, Error};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

/// Interval at which waiting clients are checked.
const LOOK: Duration = Duration::from_millis(50);
/// Checks after which a chunk is read although clients wait.
const LOOKS_MAX: u32 = 20;

/// Returns true if clients wait longer than they should.
pub type ClientsWait = dyn Fn() -> bool + Send + Sync;

/// Speed limits of a rewrite.
#[derive(Clone, Default)]
pub struct RewriteOptions {
    /// Maximum rate in bytes per second; none for no limit.
    pub bytes_per_s: Option<u64>,
    /// Called before each chunk. While it returns true, the chunk is delayed, by at most one
    /// second.
    pub clients_wait: Option<Arc<ClientsWait>>,
}

impl fmt::Debug for RewriteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_per_s, clients_wait } = self;
        let gives_way = clients_wait.is_some();
        f.debug_struct("RewriteOptions")
            .field("bytes_per_s", bytes_per_s)
            .field("gives_way", &gives_way)
            .finish()
    }
}

/// The pace of one rewrite.
pub(super) struct Pace {
    options: RewriteOptions,
    /// Start of the next chunk.
    next: Mutex<Instant>,
    copied_bytes: AtomicU64,
    stopped: AtomicBool,
}

impl Pace {
    pub(super) fn new(options: RewriteOptions) -> Self {
        Self {
            options,
            next: Mutex::new(Instant::now()),
            copied_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(super) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// Time that `bytes` take at the configured rate; none without a limit.
    pub(super) fn span_of(&self, bytes: u64) -> Option<Duration> {
        let nanos =
            u128::from(bytes) * 1_000_000_000 / u128::from(self.options.bytes_per_s?.max(1));
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Waits until a chunk of `bytes` may pass.
    async fn take(&self, bytes: u64) {
        for _ in 0..LOOKS_MAX {
            if !self.options.clients_wait.as_ref().is_some_and(|they_do| they_do()) {
                break;
            }
            sleep(LOOK).await;
        }
        let Some(span) = self.span_of(bytes) else { return };
        let until = {
            let mut next = self.next.lock();
            *next = (*next).max(Instant::now()) + span;
            *next
        };
        sleep_until(until).await;
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("bytes_per_s", &self.options.bytes_per_s)
            .finish_non_exhaustive()
    }
}

/// Bytes read by one attempt at an object.
pub(super) struct Attempt {
    pace: Arc<Pace>,
    bytes: AtomicU64,
}

impl Attempt {
    pub(super) fn new(pace: &Arc<Pace>) -> Arc<Self> {
        Arc::new(Self { pace: pace.clone(), bytes: AtomicU64::new(0) })
    }

    /// The stream `bytes`, limited to the pace. Fails once the rewrite is stopped.
    pub(super) fn paced(self: &Arc<Self>, bytes: ByteStream) -> ByteStream {
        let attempt = self.clone();
        let paced = bytes.then(move |chunk| {
            let attempt = attempt.clone();
            async move {
                let chunk = chunk?;
                attempt.pace.take(chunk.len() as u64).await;
                if attempt.pace.is_stopped() {
                    return Err(Error::unavailable("the rewrite was stopped"));
                }
                attempt.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                attempt.pace.copied_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                Ok(chunk)
            }
        });
        paced.boxed()
    }

    /// Subtracts the bytes of a failed attempt.
    pub(super) fn take_back(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.pace.copied_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn of(bytes_per_s: u64, clients_wait: bool) -> Arc<Pace> {
        let clients_wait: Arc<ClientsWait> = Arc::new(move || clients_wait);
        let options =
            RewriteOptions { bytes_per_s: Some(bytes_per_s), clients_wait: Some(clients_wait) };
        Arc::new(Pace::new(options))
    }

    fn stream(chunks: usize) -> ByteStream {
        futures::stream::iter((0..chunks).map(|_| Ok(Bytes::from(vec![7; 1000])))).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_are_moved_side_by_side_share_the_rate() {
        let (pace, begun) = (of(1000, false), Instant::now());
        let attempts = [Attempt::new(&pace), Attempt::new(&pace)];
        let counts = attempts.each_ref().map(|attempt| attempt.paced(stream(3)).count());
        assert_eq!(futures::future::join_all(counts).await, [3, 3]);
        assert_eq!(begun.elapsed().as_secs(), 6);
        assert_eq!(pace.copied_bytes(), 6000);
        attempts[0].take_back();
        assert_eq!(pace.copied_bytes(), 3000);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_go_first_but_not_for_ever() {
        let (pace, begun) = (of(u64::MAX, true), Instant::now());
        assert_eq!(Attempt::new(&pace).paced(stream(2)).count().await, 2);
        assert_eq!(begun.elapsed(), LOOK * LOOKS_MAX * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_rewrite_ends_in_an_error() {
        let pace = of(1000, false);
        let mut paced = Attempt::new(&pace).paced(stream(2));
        assert!(paced.next().await.unwrap().is_ok());
        pace.stop();
        assert!(paced.next().await.unwrap().is_err());
    }
}
