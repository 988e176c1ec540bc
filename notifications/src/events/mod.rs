//! Delivery of events to targets: webhooks, files of JSON lines, and message brokers.
//!
//! ```text
//! requests ─▶ queue (memory) ─▶ spool (data folder) ─▶ target
//!               full: lost        full: lost           retried until acknowledged
//!                                        ▲             or set aside
//!                                        └─ by hand ────┘
//! ```
//!
//! Each tenant has such a lane to a target.
//!
//! * [`settings`], [`mod@targets`]: configured targets.
//! * [`lanes`]: the queue and spool of each tenant's messages; [`lane_owner`]: their owner.
//! * [`spool`]: unacknowledged messages on disk.
//! * [`destination`]: the kinds of target, [`webhook`], [`queue_file`] and [`broker`];
//!   `webhook_stream`: connections of webhooks.
//! * [`retry`], [`dead_letter`]: limits on attempts, and messages that a target refused.
//! * [`delivery`]: the tasks of a lane, among the [`tasks`] of the process. [`counts`]: counters.
//!
//! Invariants:
//! * Messages in the spool are delivered at least once, in order, also across restarts. The
//!   exception are messages that a reachable target refuses: they are set aside, never dropped. An
//!   unreachable target delays its own messages only.
//! * Messages between queue and spool are lost if the process dies: no request waits for a disk
//!   here.
//! * Memory and disk are bounded for each lane, and lanes for each target. Messages beyond the
//!   bounds are counted as lost. Older messages and those of other tenants stay.

mod broker;
mod counts;
mod dead_letter;
mod delivery;
mod destination;
mod lane_owner;
mod lanes;
mod lines;
mod queue_file;
mod retry;
mod settings;
mod spool;
mod targets;
mod tasks;
mod webhook;
mod webhook_stream;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use bytes::Bytes;
use martlet_s3compat::EventSink;
use martlet_serving::folder::DataFolder;
use martlet_serving::{Failure, Size};
use parking_lot::Mutex;

use self::lanes::{LaneSettings, Lanes};
pub use self::settings::EventSettings;
use self::targets::TargetSettings;
pub use self::tasks::TaskSet;
use super::metrics::TargetFigures;

/// Maximum number of unknown targets whose messages are counted.
const UNKNOWN_MAX: usize = 64;
/// Folder of the spools within the data folder.
const FOLDER: &str = "events";

struct EventTarget {
    settings: TargetSettings,
    lanes: Lanes,
}

impl EventTarget {
    /// Opens the spools in `place`, and starts their tasks.
    fn open(
        settings: &EventSettings,
        name: &str,
        place: &Path,
        running: &mut TaskSet<'_>,
    ) -> Result<Self, Failure> {
        let Size(bytes_max) = settings.notification_spool;
        let target = settings.notifications[name].clone();
        let plan = LaneSettings {
            name: name.to_owned(),
            place: place.to_owned(),
            bytes_max,
            destination: target.destination()?,
            limits: settings.limits(),
        };
        let lanes = Lanes::open(plan, running).map_err(|error| {
            Failure::refused(format!(
                "the spool of the notification target \"{name}\" at {} can't be used: {error}",
                place.display()
            ))
        })?;
        Ok(Self { settings: target, lanes })
    }
}

/// All targets of a process.
pub struct Events {
    targets: BTreeMap<String, EventTarget>,
    /// Lost messages by the names of targets that rules name but the settings don't.
    unknown: Mutex<BTreeMap<String, u64>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.targets.keys()).finish()
    }
}

impl Events {
    /// Opens the spools of all targets, and starts their tasks, which run until `stopped`.
    pub fn open(
        settings: &EventSettings,
        folder: &DataFolder,
        running: &mut TaskSet<'_>,
    ) -> Result<Self, Failure> {
        let mut targets = BTreeMap::new();
        for name in settings.notifications.keys() {
            let place = folder.join(FOLDER).join(name);
            let target = EventTarget::open(settings, name, &place, running)?;
            targets.insert(name.clone(), target);
        }
        Ok(Self { targets, unknown: Mutex::default() })
    }

    /// Counts a message whose target this process does not know. Rules outlive settings, and
    /// another process with other targets may have accepted the rules.
    fn lose_unknown(&self, name: &str) {
        let mut unknown = self.unknown.lock();
        if let Some(count) = unknown.get_mut(name) {
            *count += 1;
        } else if unknown.len() < UNKNOWN_MAX {
            tracing::warn!(name, "bucket rules name an unknown notification target");
            unknown.insert(name.to_owned(), 1);
        }
    }

    /// Returns the counters of all targets.
    pub fn figures(&self) -> Vec<TargetFigures> {
        let figures = |(name, target): (&String, &EventTarget)| target.lanes.figures(name);
        let unknown = self.unknown.lock();
        let unknown_targets = unknown.iter().map(|(name, lost)| TargetFigures {
            name: name.clone(),
            lost: *lost,
            ..TargetFigures::default()
        });
        self.targets.iter().map(figures).chain(unknown_targets).collect()
    }
}

impl EventSink for Events {
    fn admits(&self, target: &str, tenant: &str) -> bool {
        self.targets.get(target).is_some_and(|target| target.settings.admits(tenant))
    }

    fn offer(&self, name: &str, owner: &str, message: Bytes) {
        match self.targets.get(name) {
            Some(target) => target.lanes.take(owner, message),
            None => self.lose_unknown(name),
        }
    }
}

#[cfg(test)]
mod tests;
