//! Devices and workers as the admin address tells of them.

use axum::routing::get;
use axum::{Json, Router};
use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
use martlet_replicator::WorkerStatus;

use super::metrics::AskWorkers;
use super::operator::Condition;
use crate::admin::wire::{self, DeviceLine, WorkerLine};

/// How the devices of a process are: it serves while one of them does.
pub(crate) fn condition(devices: &[DeviceStatus]) -> Condition {
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
    Condition { serves, reasons }
}

fn describe(health: &DeviceHealth) -> (&'static str, Option<&str>) {
    match health {
        DeviceHealth::Ready => ("ready", None),
        DeviceHealth::Full => ("full", None),
        DeviceHealth::Suspect(reason) => ("suspect", Some(reason)),
        DeviceHealth::Offline(reason) => ("offline", Some(reason)),
    }
}

/// A device as a line.
pub(crate) fn device_line(status: DeviceStatus) -> DeviceLine {
    let (health, reason) = describe(&status.health);
    DeviceLine {
        device: status.device.0,
        health: health.to_owned(),
        reason: reason.map(str::to_owned),
        voting: status.voting,
        path: status.path,
        total_bytes: status.total_bytes,
        free_bytes: status.free_bytes,
        extents: status.extents,
        extent_bytes: status.extent_bytes,
        quarantined: status.quarantined,
        hints: status.hints,
    }
}

/// Where `martlet admin workers` finds its answer.
pub(crate) fn workers(ask: AskWorkers) -> Router {
    let lines = move || {
        let ask = ask.clone();
        async move { Json(ask().into_iter().map(worker_line).collect::<Vec<_>>()) }
    };
    Router::new().route(wire::WORKERS, get(lines))
}

fn worker_line(status: WorkerStatus) -> WorkerLine {
    let totals = status.totals;
    WorkerLine {
        worker: status.name.to_owned(),
        steps: status.steps,
        failures: status.failures,
        rate: status.rate,
        items: totals.items,
        freed_extents: totals.freed,
        freed_bytes: totals.freed_bytes,
        kept: totals.kept,
        backlog: totals.backlog,
        oldest_age_ms: totals.oldest_age_ms,
        yields: status.yields,
        idle: totals.idle,
        error: status.error,
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{DeviceId, DeviceIdentity};

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
        }
    }

    #[test]
    fn one_device_that_serves_is_enough() {
        let offline = || device(1, DeviceHealth::Offline("no disk".into()));
        assert!(!condition(&[]).serves);
        assert!(!condition(&[offline()]).serves);
        assert!(condition(&[device(0, DeviceHealth::Full)]).serves);
        let some = condition(&[device(0, DeviceHealth::Ready), offline()]);
        let reasons = vec!["device d1 is offline: no disk".to_owned()];
        assert_eq!(some, Condition { serves: true, reasons });
    }
}
