//! Count of a bucket's usage as a job.
//!
//! Rows of devices are added up within a second. A bucket is listed only while too few devices have
//! rows: after an upgrade, or after a rebuild of their index.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::jobs::{self, JobProgress};
use martlet_admin_api::limits::QuotaLine;
use martlet_protocol::usage::UsageCounter;
use martlet_proxy::{CountProgress, ObjectStore};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::table::{JobOutcome, JobWork};
use crate::quotas;

/// Time before which a count has no rate.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// Count of the usage of a bucket.
pub(super) struct CountWork {
    store: ObjectStore,
    bucket: String,
    progress: Mutex<CountProgress>,
    /// Begin of the count, and the time of its last progress.
    began: Instant,
    progressed: Mutex<Instant>,
    counted: OnceLock<QuotaLine>,
    cancelled: watch::Sender<bool>,
}

impl CountWork {
    pub(super) fn new(store: ObjectStore, bucket: String) -> Self {
        let now = Instant::now();
        Self {
            store,
            bucket,
            progress: Mutex::default(),
            began: now,
            progressed: Mutex::new(now),
            counted: OnceLock::new(),
            cancelled: watch::Sender::new(false),
        }
    }

    async fn count(&self) -> JobOutcome {
        let mut cancelled = self.cancelled.subscribe();
        let counted = tokio::select! {
            counted = self.publish() => counted?,
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                return Err("the count was cancelled: the last one stays".to_owned());
            }
        };
        // The usage is set only here.
        let _ = self.counted.set(counted);
        Ok(())
    }

    /// Counts the bucket, and publishes the count.
    async fn publish(&self) -> Result<QuotaLine, String> {
        let mut observe = |progress: &CountProgress| {
            *self.progress.lock() = *progress;
            *self.progressed.lock() = Instant::now();
        };
        let text = |error: martlet_proxy::Error| error.to_string();
        let counted = self.store.count_bucket(&self.bucket, &mut observe);
        let count = counted.await.map_err(text)?;
        self.store.report(&count).await.map_err(|error| error.to_string())?;
        let quota = self.store.buckets().quota(&self.bucket).await.map_err(text)?;
        Ok(quotas::line(&self.bucket, quota, Some((count.usage, count.began_ms))))
    }

    fn pace(&self) -> CountPace {
        let progress = *self.progress.lock();
        CountPace { progress, took: self.progressed.lock().duration_since(self.began) }
    }
}

impl JobWork for CountWork {
    fn kind(&self) -> &'static str {
        jobs::BUCKET_COUNT
    }

    fn subject(&self) -> String {
        self.bucket.clone()
    }

    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
        async move { self.count().await }.boxed()
    }

    fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    fn progress(&self) -> JobProgress {
        if let Some(QuotaLine { objects: Some(objects), .. }) = self.counted.get() {
            return JobProgress {
                done: *objects,
                total: Some(*objects),
                unit: "versions".to_owned(),
                text: format!("{objects} versions counted"),
            };
        }
        let pace = self.pace();
        JobProgress {
            done: pace.progress.seen,
            total: pace.total().map(|total| total.max(pace.progress.seen)),
            unit: "items".to_owned(),
            text: pace.text(),
        }
    }

    fn eta_s(&self) -> Option<u64> {
        self.pace().left().map(|left| left.as_secs())
    }

    fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
        self.counted.get().and_then(|line| serde_json::to_value(line).ok())
    }
}

/// Progress of a count by listing, and the time that it took.
struct CountPace {
    progress: CountProgress,
    took: Duration,
}

impl CountPace {
    /// Estimated number of all items: by the shards that are counted, else by the last count.
    fn total(&self) -> Option<u64> {
        let CountProgress { seen_in_shards, shards, all_shards, last, .. } = self.progress;
        let by_shards = (u128::from(seen_in_shards) * u128::from(all_shards))
            .checked_div(u128::from(shards))
            .and_then(|all| u64::try_from(all).ok());
        by_shards.or(last)
    }

    fn rate(&self) -> Option<u64> {
        let ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        (self.took >= RATE_AFTER).then(|| self.progress.seen.saturating_mul(1000) / ms)
    }

    /// Estimated time until the end. None without a rate or a total.
    fn left(&self) -> Option<Duration> {
        self.rate()?;
        let seen = self.progress.seen;
        let left = self.total()?.checked_sub(seen)?;
        let ms = (self.took.as_millis() * u128::from(left)).checked_div(u128::from(seen))?;
        Some(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
    }

    fn text(&self) -> String {
        let CountProgress { seen, shards, all_shards, last, .. } = self.progress;
        if all_shards == 0 {
            return "adding up the counts of devices".to_owned();
        }
        let of = match (self.total(), last) {
            (Some(total), _) if shards > 0 => format!(" of about {}", total.max(seen)),
            (_, Some(last)) if last >= seen => format!(" of about {last} (by the last count)"),
            _ => String::new(),
        };
        let rate = self.rate().map(|rate| format!(", {rate} items/s")).unwrap_or_default();
        format!("{seen}{of} items listed, {shards} of {all_shards} shards done{rate}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(seen: u64, shards: u16, last: Option<u64>) -> CountPace {
        let progress = CountProgress {
            seen,
            seen_in_shards: if shards > 0 { 1000 } else { 0 },
            shards,
            all_shards: 16,
            last,
        };
        CountPace { progress, took: Duration::from_secs(10) }
    }

    #[test]
    fn a_listing_is_estimated_by_its_shards_or_by_the_last_count() {
        let first = pace(500, 0, None);
        assert_eq!((first.total(), first.left()), (None, None));
        assert_eq!(first.text(), "500 items listed, 0 of 16 shards done, 50 items/s");
        let last = pace(500, 0, Some(1000));
        assert_eq!(last.left(), Some(Duration::from_secs(10)));
        assert!(last.text().starts_with("500 of about 1000 (by the last count) items"));
        let by_shards = pace(1000, 2, Some(1));
        assert_eq!(
            (by_shards.total(), by_shards.left()),
            (Some(8000), Some(Duration::from_secs(70)))
        );
        assert_eq!(
            by_shards.text(),
            "1000 of about 8000 items listed, 2 of 16 shards done, 100 items/s"
        );
    }

    #[test]
    fn there_is_no_estimate_without_a_basis() {
        let rows = CountPace { progress: CountProgress::default(), took: Duration::ZERO };
        assert_eq!((rows.total(), rows.left()), (None, None));
        assert_eq!(rows.text(), "adding up the counts of devices");
        let early = CountPace { took: Duration::from_millis(500), ..pace(500, 0, Some(1000)) };
        assert_eq!(early.left(), None);
        assert_eq!(pace(1001, 0, Some(1000)).left(), None, "the last count was too low");
        assert!(!pace(1001, 0, Some(1000)).text().contains("about"));
    }
}
