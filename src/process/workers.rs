//! Pace of the background workers of a process.

use std::time::Duration;

use martlet_replicator::{ReclaimOptions, WorkerPace};
use martlet_serving::Failure;
use martlet_serving::settings::number_from;

/// Environment variable for tests only: grace time of garbage, and interval of workers, in
/// milliseconds.
const TEST_RECLAIM_GRACE_MS: &str = "MARTLET_TEST_RECLAIM_GRACE_MS";
/// Minimum pause of workers.
const REST_MIN: Duration = Duration::from_millis(50);

/// Returns the interval that tests set.
pub(crate) fn test_grace() -> Result<Option<Duration>, Failure> {
    Ok(number_from(TEST_RECLAIM_GRACE_MS)?.map(Duration::from_millis))
}

/// Returns the options of the reclaim worker.
pub(crate) fn reclaim(grace: Duration, hurry: Option<Duration>) -> ReclaimOptions {
    let grace = hurry.unwrap_or(grace);
    ReclaimOptions { grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX) }
}

/// Returns the pace of the workers.
pub(crate) fn pace(hurry: Option<Duration>) -> WorkerPace {
    let mut pace = WorkerPace::default();
    if let Some(hurry) = hurry {
        pace.idle_pause = hurry.max(REST_MIN);
        // A machine that runs many tests is slow for their clients too.
        pace.rest_beside_clients = 0;
        pace.yield_max = pace.yield_max.min(pace.idle_pause);
    }
    pace
}
