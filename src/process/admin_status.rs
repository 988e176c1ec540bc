//! Status lines of devices and workers for the admin API.

use axum::Json;
use martlet_admin_api::{self as wire, DeviceLine, ProcessWorkers, WorkerLine};
use martlet_protocol::DeviceId;
use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
use martlet_replicator::WorkerStatus;
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_serving::operator::RoleCondition;
use martlet_storage_node::Reserve;

use super::sources::{WorkerSource, eta_s};

/// Name of the ballast file in a device's folder.
const BALLAST: &str = "ballast";

/// Returns the condition of a process with these devices. It serves while one device is ready or
/// full.
pub(crate) fn condition(devices: &[DeviceStatus]) -> RoleCondition {
    let mut reasons = Vec::new();
    for device in devices {
        let (name, reason) = describe(&device.health);
        if device.health != DeviceHealth::Ready {
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            reasons.push(format!("device {} is {name}{reason}", device.device));
        }
    }
    let serves =
        devices.iter().any(|it| matches!(it.health, DeviceHealth::Ready | DeviceHealth::Full));
    RoleCondition { serves, reasons }
}

fn describe(health: &DeviceHealth) -> (&'static str, Option<&str>) {
    match health {
        DeviceHealth::Ready => ("ready", None),
        DeviceHealth::Full => ("full", None),
        DeviceHealth::Suspect(reason) => ("suspect", Some(reason)),
        DeviceHealth::Offline(reason) => ("offline", Some(reason)),
    }
}

/// Makes the status lines of devices. `name` returns a device's name.
pub(crate) async fn device_lines(
    statuses: Vec<DeviceStatus>,
    reserve: Reserve,
    name: impl Fn(DeviceId) -> String + Send + 'static,
) -> Vec<DeviceLine> {
    let lines = move || {
        let line = |status: DeviceStatus| {
            let ballast = status.path.join(BALLAST);
            let held_bytes = std::fs::metadata(ballast).map_or(0, |file| file.len());
            let name = name(status.device);
            device_line(status, name, reserve, held_bytes)
        };
        statuses.into_iter().map(line).collect()
    };
    // File metadata is read on a blocking thread, because a disk may hang.
    tokio::task::spawn_blocking(lines).await.unwrap_or_default()
}

fn device_line(
    status: DeviceStatus,
    name: String,
    reserve: Reserve,
    held_bytes: u64,
) -> DeviceLine {
    let (health, reason) = describe(&status.health);
    let (total_bytes, free_bytes) = (status.total_bytes, status.free_bytes);
    DeviceLine {
        device: status.device.0,
        name,
        health: health.to_owned(),
        reason: reason.map(str::to_owned),
        voting: status.voting,
        path: status.path,
        total_bytes,
        free_bytes,
        used_bytes: total_bytes.saturating_sub(free_bytes).saturating_sub(held_bytes),
        reserve_bytes: reserve.left_alone(total_bytes),
        extents: status.extents,
        extent_bytes: status.extent_bytes,
        quarantined: status.quarantined,
        hints: status.hints,
        term: status.term.0,
        joined: status.joined,
    }
}

/// Route of `martlet admin workers`, in a process that reports only its own workers.
pub(crate) fn workers(process: &'static str, source: WorkerSource) -> ApiRoutes {
    let lines = move || {
        let workers = worker_lines(&source);
        let own = ProcessWorkers { process: process.to_owned(), heard_ms_ago: None, workers };
        async move { Json(vec![own]) }
    };
    let doc =
        ApiDoc::reply::<Vec<ProcessWorkers>>(RouteAccess::Read, "List the workers of the process");
    ApiRoutes::new().get(wire::WORKERS, doc, lines)
}

/// Returns status lines of this process's workers.
pub(crate) fn worker_lines(source: &WorkerSource) -> Vec<WorkerLine> {
    source().into_iter().map(worker_line).collect()
}

fn worker_line(status: WorkerStatus) -> WorkerLine {
    let eta_s = eta_s(&status);
    let totals = status.totals;
    WorkerLine {
        worker: status.name.to_owned(),
        steps: status.steps,
        failures: status.failures,
        rate: status.rate,
        items: totals.items,
        done: totals.done,
        freed_extents: totals.freed,
        freed_bytes: totals.freed_bytes,
        copied_extents: totals.copied,
        copied_bytes: totals.copied_bytes,
        read_bytes: totals.read_bytes,
        repaired: totals.repaired,
        kept: totals.kept,
        differing_extents: totals.differing,
        ahead: totals.ahead,
        backlog: totals.backlog,
        oldest_age_ms: totals.oldest_age_ms,
        eta_s,
        yields: status.yields,
        idle: totals.idle,
        error: status.error,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use martlet_protocol::{DeviceIdentity, Term};

    use super::*;

    fn device(id: u32, health: DeviceHealth) -> DeviceStatus {
        DeviceStatus {
            device: DeviceId(id),
            identity: DeviceIdentity([0; 16]),
            voting: true,
            path: "/x".into(),
            health,
            total_bytes: 1,
            free_bytes: 1,
            extent_bytes: 0,
            extents: 0,
            quarantined: 0,
            hints: 0,
            term: Term(4),
            joined: 1,
        }
    }

    #[test]
    fn ballast_counts_as_reserve_and_not_as_used() {
        let status =
            DeviceStatus { total_bytes: 1000, free_bytes: 500, ..device(3, DeviceHealth::Full) };
        let line = device_line(status, "d1".into(), Reserve::Bytes(80), 80);
        assert_eq!((line.used_bytes, line.reserve_bytes), (420, 100));
        assert_eq!((line.name.as_str(), line.health.as_str()), ("d1", "full"));
    }

    #[test]
    fn the_line_of_a_worker_has_the_estimate_in_seconds() {
        let status = WorkerStatus { eta: Some(Duration::from_secs(13)), ..WorkerStatus::default() };
        assert_eq!(worker_line(status).eta_s, Some(13));
    }

    #[test]
    fn one_device_that_serves_is_enough() {
        let offline = || device(1, DeviceHealth::Offline("no disk".into()));
        assert!(!condition(&[]).serves);
        assert!(!condition(&[offline()]).serves);
        assert!(condition(&[device(0, DeviceHealth::Full)]).serves);
        let some = condition(&[device(0, DeviceHealth::Ready), offline()]);
        let reasons = vec!["device d1 is offline: no disk".to_owned()];
        assert_eq!(some, RoleCondition { serves: true, reasons });
    }
}
