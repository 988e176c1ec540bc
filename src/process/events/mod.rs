//! Events on their way to targets: webhooks, and files of JSON lines.
//!
//! ```text
//! requests ─▶ queue (memory) ─▶ spool (data folder) ─▶ target
//!               full: lost        full: lost           again until it is acknowledged,
//!                                        ▲             or put aside
//!                                        └─ by hand ────┘
//! ```
//!
//! Each tenant has such a lane to a target.
//!
//! * [`settings`], [`mod@targets`]: which there are, as the process is told.
//! * [`lanes`]: which tenant's messages go through which queue and spool.
//! * [`spool`]: what was taken and not acknowledged yet, on disk.
//! * [`webhook`], [`queue_file`]: the two kinds of target; [`line`](mod@line): connections.
//! * [`tries`], [`aside`]: how long a message is tried, and where it goes that a target does not take.
//! * [`carrier`]: the tasks between them.
//!
//! Invariants:
//! * What is in the spool is delivered at least once, in order, also after the process was started
//!   again; but for what a target that is there does not take, which is put aside and never dropped. A
//!   target that answers nothing holds up its own messages alone.
//! * What is on its way to the spool is lost if the process dies: no request waits for a disk here.
//! * Memory and disk are bounded for each lane, and lanes for each target. What is beyond that is counted
//!   as lost: the oldest messages stay, and those of other tenants.

mod aside;
mod carrier;
mod lanes;
mod line;
mod queue_file;
mod settings;
mod spool;
mod targets;
mod tries;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use martlet_s3compat::Outlet;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::lanes::{Lanes, Plan};
pub(crate) use self::settings::EventSettings;
use self::targets::TargetSettings;
use super::folder::DataFolder;
use super::metrics::TargetFigures;
use crate::failure::Failure;
use crate::units::Size;

/// Names of targets that are not known and that messages are counted for.
const UNKNOWN_MAX: usize = 64;
/// Where the spools are, in the data folder.
const FOLDER: &str = "events";

/// What became of the messages of a target.
#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    delivered: AtomicU64,
    lost: AtomicU64,
    /// Attempts that failed.
    failures: AtomicU64,
    /// Bytes in the spool.
    waiting_bytes: AtomicU64,
    /// Messages that were put aside.
    refused: AtomicU64,
    /// Bytes of them that are there still.
    refused_bytes: AtomicU64,
}

impl Counts {
    fn lose(&self, messages: u64) {
        self.lost.fetch_add(messages, Ordering::Relaxed);
    }
}

struct Target {
    settings: TargetSettings,
    lanes: Lanes,
}

/// Where tasks go, and what ends them.
pub(crate) struct Running<'a> {
    pub(crate) tasks: &'a mut JoinSet<()>,
    pub(crate) stopped: &'a watch::Receiver<bool>,
}

impl Target {
    /// Opens the spools in `place`, and starts what delivers from them.
    fn open(
        settings: &EventSettings,
        name: &str,
        place: &Path,
        running: &mut Running<'_>,
    ) -> Result<Self, Failure> {
        let Size(bytes_max) = settings.notification_spool;
        let target = settings.notifications[name].clone();
        let plan = Plan {
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
pub(crate) struct Events {
    targets: BTreeMap<String, Target>,
    /// Messages for targets that rules name and the process was not told of.
    unknown: Mutex<BTreeMap<String, u64>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.targets.keys()).finish()
    }
}

impl Events {
    /// Opens the spools of the targets, and starts what delivers from them, until `stopped`.
    pub(crate) fn open(
        settings: &EventSettings,
        folder: &DataFolder,
        running: &mut Running<'_>,
    ) -> Result<Self, Failure> {
        let mut targets = BTreeMap::new();
        for name in settings.notifications.keys() {
            let place = folder.join(FOLDER).join(name);
            let target = Target::open(settings, name, &place, running)?;
            targets.insert(name.clone(), target);
        }
        Ok(Self { targets, unknown: Mutex::default() })
    }

    /// Counts a message that is lost because nobody here knows its target: rules outlive settings, and
    /// were accepted by a process that may have been told of other targets than this one.
    fn lose_unknown(&self, name: &str) {
        let mut unknown = self.unknown.lock();
        if let Some(count) = unknown.get_mut(name) {
            *count += 1;
        } else if unknown.len() < UNKNOWN_MAX {
            tracing::warn!(
                name,
                "rules name a notification target that this process is not told of"
            );
            unknown.insert(name.to_owned(), 1);
        }
    }

    /// What became of the messages.
    pub(crate) fn figures(&self) -> Vec<TargetFigures> {
        let figures = |(name, target): (&String, &Target)| target.lanes.figures(name);
        let unknown = self.unknown.lock();
        let strangers = unknown.iter().map(|(name, lost)| TargetFigures {
            name: name.clone(),
            lost: *lost,
            ..TargetFigures::default()
        });
        self.targets.iter().map(figures).chain(strangers).collect()
    }
}

impl Outlet for Events {
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
