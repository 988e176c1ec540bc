//! Sources of the state of devices and workers, for metrics and for the admin API.

use std::sync::Arc;

use martlet_replicator::WorkerStatus;
use martlet_storage_node::DeviceMetrics;

/// Source of the devices' metrics.
pub(crate) type DeviceSource = Arc<dyn Fn() -> Vec<DeviceMetrics> + Send + Sync>;
/// Source of the workers' status.
pub(crate) type WorkerSource = Arc<dyn Fn() -> Vec<WorkerStatus> + Send + Sync>;

/// Estimated seconds for the backlog at the recent rate. `None` without a backlog, or if the time
/// is unknown.
pub(crate) fn eta_s(status: &WorkerStatus) -> Option<u64> {
    status.eta.filter(|eta| !eta.is_zero()).map(|eta| eta.as_secs().max(1))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_eta_is_known_where_something_is_left() {
        let status = |eta| WorkerStatus { eta, ..WorkerStatus::default() };
        assert_eq!(eta_s(&status(None)), None);
        assert_eq!(eta_s(&status(Some(Duration::ZERO))), None);
        assert_eq!(eta_s(&status(Some(Duration::from_millis(200)))), Some(1));
    }
}
