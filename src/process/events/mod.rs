//! Events on their way to targets: webhooks, and files of JSON lines.
//!
//! ```text
//! requests ─▶ queue (memory) ─▶ spool (data folder) ─▶ target
//!               full: lost        full: lost           again until it is acknowledged,
//!                                        ▲             or put aside
//!                                        └─ by hand ────┘
//! ```
//!
//! * [`settings`], [`mod@targets`]: which there are, as the process is told.
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
//! * Memory and disk are bounded for each target. What is beyond that is counted as lost: the oldest
//!   messages stay.

mod aside;
mod carrier;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use martlet_s3compat::Outlet;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::aside::Aside;
use self::carrier::{Carrier, Keeper, Plight};
pub(crate) use self::settings::EventSettings;
use super::folder::DataFolder;
use super::metrics::TargetFigures;
use crate::failure::Failure;
use crate::units::Size;

/// Messages of a target between requests and its spool.
const QUEUED_MAX: usize = 4096;
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
    queue: mpsc::Sender<Bytes>,
    counts: Arc<Counts>,
}

/// Where tasks go, and what ends them.
pub(crate) struct Running<'a> {
    pub(crate) tasks: &'a mut JoinSet<()>,
    pub(crate) stopped: &'a watch::Receiver<bool>,
}

impl Target {
    /// Opens the spool in `place`, and starts what delivers from it.
    fn open(
        settings: &EventSettings,
        name: &str,
        place: &Path,
        running: &mut Running<'_>,
    ) -> Result<Self, Failure> {
        let counts = Arc::new(Counts::default());
        let Size(bytes_max) = settings.notification_spool;
        let (tail, head) = spool::open(place, bytes_max, &counts).map_err(|error| {
            Failure::refused(format!(
                "the spool of the notification target \"{name}\" at {} can't be used: {error}",
                place.display()
            ))
        })?;
        let aside = Arc::new(Aside::new(place, bytes_max, &counts));
        let (sender, queue) = mpsc::channel(QUEUED_MAX);
        let written = Arc::new(tokio::sync::Notify::new());
        let keeper = Keeper {
            tail,
            queue,
            aside: aside.clone(),
            counts: counts.clone(),
            written: written.clone(),
        };
        let carrier = Carrier {
            name: name.to_owned(),
            head,
            destination: settings.notifications[name].destination()?,
            aside,
            limits: settings.limits(),
            counts: counts.clone(),
            written,
            plight: Plight::default(),
        };
        running.tasks.spawn(keeper.run(running.stopped.clone()));
        running.tasks.spawn(carrier.run(running.stopped.clone()));
        Ok(Self { queue: sender, counts })
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
        let figures = |(name, target): (&String, &Target)| {
            let counts = &target.counts;
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            TargetFigures {
                name: name.clone(),
                taken: read(&counts.taken),
                delivered: read(&counts.delivered),
                lost: read(&counts.lost),
                failures: read(&counts.failures),
                waiting_bytes: read(&counts.waiting_bytes),
                refused: read(&counts.refused),
                refused_bytes: read(&counts.refused_bytes),
            }
        };
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
    fn knows(&self, target: &str) -> bool {
        self.targets.contains_key(target)
    }

    fn offer(&self, name: &str, message: Bytes) {
        let Some(target) = self.targets.get(name) else { return self.lose_unknown(name) };
        match target.queue.try_send(message) {
            Ok(()) => {
                target.counts.taken.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => target.counts.lose(1),
        }
    }
}

#[cfg(test)]
mod tests;
