//! Lanes of a target: each tenant's messages have a queue, a spool and a file of their own.
//!
//! ```text
//! events/NAME/                  root's lane
//! events/NAME/tenants/OWNER/    a tenant's lane, by its canonical id
//! events/NAME/others/           lane of all tenants beyond the limit
//! ```
//!
//! Invariants:
//! * A tenant whose messages exceed its target's pace loses its own messages, but no other
//!   tenant's.
//! * The number of lanes is bounded: [`TENANTS_MAX`] tenants, root, and the lane of all others. A
//!   lane without messages on disk is removed at the next start, which makes room for another
//!   tenant's lane.
//! * Opening a spool waits for a disk, so a task does it; offering a message never waits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io};

use bytes::Bytes;
use martlet_proxy::ROOT;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::dead_letter::DeadLetters;
use super::delivery::{
    DeliveryState, DeliveryTask, Destination, SpoolTask, off_thread, told_to_stop,
};
use super::retry::Limits;
use super::spool::{self, SpoolReader, SpoolWriter};
use super::{Counts, TaskSet};
use crate::metrics::TargetFigures;

/// Maximum number of tenants, besides root, with a lane of their own for a target.
pub(super) const TENANTS_MAX: usize = 32;
/// Maximum number of queued messages of root's lane.
const QUEUED_MAX: usize = 4096;
/// Maximum number of queued messages of any other lane.
const TENANT_QUEUED_MAX: usize = 512;
/// Maximum length of a tenant's id that serves as a folder's name.
const OWNER_CHARS_MAX: usize = 64;
/// Pause between two attempts to open a spool.
const REOPEN_AFTER: Duration = Duration::from_secs(10);
const TENANTS: &str = "tenants";
const OTHERS: &str = "others";

/// Owner of a lane's messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneOwner {
    Root,
    /// Canonical id of the tenant, or its hash if the id can't name a folder.
    Tenant(String),
    /// Tenants beyond [`TENANTS_MAX`].
    Others,
}

impl LaneOwner {
    /// Returns the lane of a bucket's owner.
    fn of(owner: &str) -> Self {
        if owner == ROOT {
            return Self::Root;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name = (1..=OWNER_CHARS_MAX).contains(&owner.len()) && owner != OTHERS;
        if is_name && owner.chars().all(is_plain) {
            return Self::Tenant(owner.to_owned());
        }
        Self::Tenant(blake3::hash(owner.as_bytes()).to_hex().to_string())
    }

    /// Suffix that distinguishes the lane's file from root's.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Root => None,
            Self::Tenant(owner) => Some(owner),
            Self::Others => Some(OTHERS),
        }
    }

    /// Returns the lane's folder within its target's folder.
    fn place(&self, target: &Path) -> PathBuf {
        match self {
            Self::Root => target.to_owned(),
            Self::Tenant(owner) => target.join(TENANTS).join(owner),
            Self::Others => target.join(OTHERS),
        }
    }

    fn queued_max(&self) -> usize {
        if *self == Self::Root { QUEUED_MAX } else { TENANT_QUEUED_MAX }
    }
}

/// Settings that all lanes of a target share.
pub(super) struct LaneSettings {
    pub(super) name: String,
    /// Folder of the target.
    pub(super) place: PathBuf,
    /// Maximum bytes of each lane's spool.
    pub(super) bytes_max: u64,
    pub(super) destination: Destination,
    pub(super) limits: Limits,
}

/// Files of a lane.
struct LaneFiles {
    tail: SpoolWriter,
    head: SpoolReader,
    aside: DeadLetters,
}

impl LaneSettings {
    fn open(&self, whose: &LaneOwner, counts: &Arc<Counts>) -> io::Result<LaneFiles> {
        let place = whose.place(&self.place);
        let (tail, head) = spool::open(&place, self.bytes_max, counts)?;
        Ok(LaneFiles { tail, head, aside: DeadLetters::new(&place, self.bytes_max, counts) })
    }

    /// Returns root's lane and the lanes that an earlier process left on disk.
    fn found(&self) -> io::Result<Vec<LaneOwner>> {
        let mut found = vec![LaneOwner::Root];
        if self.place.join(OTHERS).is_dir() {
            found.push(LaneOwner::Others);
        }
        let entries = match fs::read_dir(self.place.join(TENANTS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if LaneOwner::of(&name).name() == Some(&*name) {
                found.push(LaneOwner::Tenant(name));
            }
        }
        Ok(found)
    }

    /// Makes the two tasks of a lane.
    fn tasks(
        &self,
        whose: &LaneOwner,
        files: LaneFiles,
        (queue, counts): (mpsc::Receiver<Bytes>, Arc<Counts>),
    ) -> (SpoolTask, DeliveryTask) {
        let LaneFiles { tail, head, aside } = files;
        let (aside, written) = (Arc::new(aside), Arc::new(Notify::new()));
        let name = match whose.name() {
            Some(tenant) => format!("{} of {tenant}", self.name),
            None => self.name.clone(),
        };
        let carrier = DeliveryTask {
            name,
            head,
            destination: self.destination.of(whose),
            aside: aside.clone(),
            limits: self.limits,
            counts: counts.clone(),
            written: written.clone(),
            plight: DeliveryState::default(),
        };
        (SpoolTask { tail, queue, aside, counts, written }, carrier)
    }
}

/// Intake of a lane's messages.
#[derive(Debug)]
struct Lane {
    queue: mpsc::Sender<Bytes>,
    counts: Arc<Counts>,
}

impl Lane {
    fn take(&self, message: Bytes) {
        match self.queue.try_send(message) {
            Ok(()) => {
                self.counts.taken.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => self.counts.lose(1),
        }
    }
}

/// Lane that a task has yet to open.
struct PendingLane {
    whose: LaneOwner,
    queue: mpsc::Receiver<Bytes>,
    counts: Arc<Counts>,
}

/// Task that opens lanes of new tenants.
struct LaneOpener {
    plan: Arc<LaneSettings>,
    openings: mpsc::UnboundedReceiver<PendingLane>,
}

impl LaneOpener {
    /// Opens lanes until `stopped`, then waits until their queued messages are in their spools.
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut lanes = JoinSet::new();
        loop {
            let opening = tokio::select! {
                opening = self.openings.recv() => opening,
                () = told_to_stop(&mut stopped) => None,
            };
            let Some(opening) = opening else { break };
            lanes.spawn(carry(self.plan.clone(), opening, stopped.clone()));
        }
        self.openings.close();
        while let Some(opening) = self.openings.recv().await {
            lanes.spawn(carry(self.plan.clone(), opening, stopped.clone()));
        }
        while lanes.join_next().await.is_some() {}
    }
}

/// Opens a lane, and runs its tasks until `stopped`.
async fn carry(plan: Arc<LaneSettings>, opening: PendingLane, mut stopped: watch::Receiver<bool>) {
    let PendingLane { whose, mut queue, counts } = opening;
    let files = loop {
        let (planned, place, counted) = (plan.clone(), whose.clone(), counts.clone());
        match off_thread((), move |()| planned.open(&place, &counted)).await.1 {
            Ok(files) => break files,
            Err(error) => {
                tracing::error!(name = plan.name, ?whose, %error, "could not open a spool of \
                    events");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(REOPEN_AFTER) => {}
            () = told_to_stop(&mut stopped) => {
                queue.close();
                while queue.recv().await.is_some() {
                    counts.lose(1);
                }
                return;
            }
        }
    };
    let (keeper, carrier) = plan.tasks(&whose, files, (queue, counts));
    tokio::join!(keeper.run(stopped.clone()), carrier.run(stopped));
}

/// All lanes of a target.
#[derive(Debug)]
pub(super) struct Lanes {
    open: Mutex<BTreeMap<LaneOwner, Lane>>,
    /// Requests to open a lane, at most one for each lane.
    openings: mpsc::UnboundedSender<PendingLane>,
}

impl Lanes {
    /// Opens root's lane and the lanes with older messages, and starts their tasks.
    pub(super) fn open(plan: LaneSettings, running: &mut TaskSet<'_>) -> io::Result<Self> {
        let (openings, to_open) = mpsc::unbounded_channel();
        let mut open = BTreeMap::new();
        for whose in plan.found()? {
            let counts = Arc::new(Counts::default());
            let files = plan.open(&whose, &counts)?;
            let is_empty =
                counts.waiting_bytes.load(Ordering::Relaxed) == 0 && files.aside.is_empty();
            if whose != LaneOwner::Root && is_empty {
                fs::remove_dir_all(whose.place(&plan.place))?;
                continue;
            }
            let (sender, queue) = mpsc::channel(whose.queued_max());
            let (keeper, carrier) = plan.tasks(&whose, files, (queue, counts.clone()));
            running.tasks.spawn(keeper.run(running.stopped.clone()));
            running.tasks.spawn(carrier.run(running.stopped.clone()));
            open.insert(whose, Lane { queue: sender, counts });
        }
        let opener = LaneOpener { plan: Arc::new(plan), openings: to_open };
        running.tasks.spawn(opener.run(running.stopped.clone()));
        Ok(Self { open: Mutex::new(open), openings })
    }

    /// Queues a message of a bucket's owner, or counts it as lost.
    pub(super) fn take(&self, owner: &str, message: Bytes) {
        let mut open = self.open.lock();
        let mut whose = LaneOwner::of(owner);
        let is_tenant = |it: &&LaneOwner| matches!(it, LaneOwner::Tenant(_));
        if !open.contains_key(&whose) && open.keys().filter(is_tenant).count() >= TENANTS_MAX {
            whose = LaneOwner::Others;
        }
        open.entry(whose).or_insert_with_key(|whose| self.begin(whose)).take(message);
    }

    /// Makes a lane whose queue accepts messages while its spool is opened.
    fn begin(&self, whose: &LaneOwner) -> Lane {
        let (sender, queue) = mpsc::channel(whose.queued_max());
        let counts = Arc::new(Counts::default());
        let opening = PendingLane { whose: whose.clone(), queue, counts: counts.clone() };
        // Without an opener the process is ending, and the queue refuses messages.
        let _ = self.openings.send(opening);
        Lane { queue: sender, counts }
    }

    /// Sums the counters of all lanes.
    pub(super) fn figures(&self, name: &str) -> TargetFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut sum = TargetFigures { name: name.to_owned(), ..TargetFigures::default() };
        for Lane { counts, .. } in self.open.lock().values() {
            sum.taken += read(&counts.taken);
            sum.delivered += read(&counts.delivered);
            sum.lost += read(&counts.lost);
            sum.failures += read(&counts.failures);
            sum.waiting_bytes += read(&counts.waiting_bytes);
            sum.refused += read(&counts.refused);
            sum.refused_bytes += read(&counts.refused_bytes);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_named_by_what_can_name_a_folder() {
        assert_eq!(LaneOwner::of("root"), LaneOwner::Root);
        assert_eq!(LaneOwner::of("0a-B_9"), LaneOwner::Tenant("0a-B_9".to_owned()));
        let mut folders = Vec::new();
        for odd in ["", "..", "a/b", "others", "a b", "ü", &"x".repeat(65)] {
            let LaneOwner::Tenant(name) = LaneOwner::of(odd) else { panic!("{odd} is a tenant") };
            assert_eq!((name.len(), LaneOwner::of(&name)), (64, LaneOwner::Tenant(name.clone())));
            folders.push(name);
        }
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), 7);
    }
}
