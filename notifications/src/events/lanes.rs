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
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io};

use bytes::Bytes;
use martlet_serving::wait_for_stop;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::counts::Counts;
use super::dead_letter::DeadLetters;
use super::delivery::{DeliveryState, DeliveryTask, SaveState, SpoolTask};
use super::destination::Destination;
use super::lane_owner::{LaneOwner, OTHERS, TENANTS, TENANTS_MAX};
use super::retry::Limits;
use super::spool::{self, SpoolReader, SpoolWriter};
use super::tasks::{TaskSet, off_thread};
use crate::metrics::TargetFigures;

/// Pause between two attempts to open a spool.
const REOPEN_AFTER: Duration = Duration::from_secs(10);

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
    fn open(&self, owner: &LaneOwner, counts: &Arc<Counts>) -> io::Result<LaneFiles> {
        let place = owner.place(&self.place);
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
    fn tasks(&self, lane: LaneQueue, files: LaneFiles) -> (SpoolTask, DeliveryTask) {
        let LaneQueue { owner, queue, counts } = lane;
        let LaneFiles { tail, head, aside } = files;
        let (aside, written) = (Arc::new(aside), Arc::new(Notify::new()));
        let name = match owner.name() {
            Some(tenant) => format!("{} of {tenant}", self.name),
            None => self.name.clone(),
        };
        let delivery = DeliveryTask {
            name,
            head,
            destination: self.destination.of(&owner),
            aside: aside.clone(),
            limits: self.limits,
            counts: counts.clone(),
            written: written.clone(),
            state: DeliveryState::default(),
            saving: SaveState::default(),
        };
        (SpoolTask { tail, queue, aside, counts, written }, delivery)
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

/// Queue of a lane, with the lane's owner and counters.
struct LaneQueue {
    owner: LaneOwner,
    queue: mpsc::Receiver<Bytes>,
    counts: Arc<Counts>,
}

/// Task that opens lanes of new tenants.
struct LaneOpener {
    plan: Arc<LaneSettings>,
    openings: mpsc::UnboundedReceiver<LaneQueue>,
}

impl LaneOpener {
    /// Opens lanes until `stopped`, then waits until their queued messages are in their spools.
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut lanes = JoinSet::new();
        loop {
            let opening = tokio::select! {
                opening = self.openings.recv() => opening,
                () = wait_for_stop(&mut stopped) => None,
            };
            let Some(opening) = opening else { break };
            lanes.spawn(run_lane(self.plan.clone(), opening, stopped.clone()));
        }
        self.openings.close();
        while let Some(opening) = self.openings.recv().await {
            lanes.spawn(run_lane(self.plan.clone(), opening, stopped.clone()));
        }
        while lanes.join_next().await.is_some() {}
    }
}

/// Opens a lane, and runs its tasks until `stopped`.
async fn run_lane(plan: Arc<LaneSettings>, opening: LaneQueue, mut stopped: watch::Receiver<bool>) {
    let LaneQueue { owner, mut queue, counts } = opening;
    let files = loop {
        let (planned, of, counted) = (plan.clone(), owner.clone(), counts.clone());
        match off_thread((), move |()| planned.open(&of, &counted)).await.1 {
            Ok(files) => break files,
            Err(error) => {
                let (name, whose) = (&plan.name, &owner);
                tracing::error!(name, ?whose, %error, "could not open a spool of events");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(REOPEN_AFTER) => {}
            () = wait_for_stop(&mut stopped) => {
                queue.close();
                while queue.recv().await.is_some() {
                    counts.lose(1);
                }
                return;
            }
        }
    };
    let (spool, delivery) = plan.tasks(LaneQueue { owner, queue, counts }, files);
    tokio::join!(spool.run(stopped.clone()), delivery.run(stopped));
}

/// All lanes of a target.
#[derive(Debug)]
pub(super) struct Lanes {
    open: Mutex<BTreeMap<LaneOwner, Lane>>,
    /// Requests to open a lane, at most one for each lane.
    openings: mpsc::UnboundedSender<LaneQueue>,
}

impl Lanes {
    /// Opens root's lane and the lanes with older messages, and starts their tasks.
    pub(super) fn open(plan: LaneSettings, running: &mut TaskSet<'_>) -> io::Result<Self> {
        let (openings, to_open) = mpsc::unbounded_channel();
        let mut open = BTreeMap::new();
        for owner in plan.found()? {
            let counts = Arc::new(Counts::default());
            let files = plan.open(&owner, &counts)?;
            let is_empty =
                counts.waiting_bytes.load(Ordering::Relaxed) == 0 && files.aside.is_empty();
            if owner != LaneOwner::Root && is_empty {
                fs::remove_dir_all(owner.place(&plan.place))?;
                continue;
            }
            let (sender, queue) = mpsc::channel(owner.queued_max());
            let lane = LaneQueue { owner: owner.clone(), queue, counts: counts.clone() };
            let (spool, delivery) = plan.tasks(lane, files);
            running.tasks.spawn(spool.run(running.stopped.clone()));
            running.tasks.spawn(delivery.run(running.stopped.clone()));
            open.insert(owner, Lane { queue: sender, counts });
        }
        let opener = LaneOpener { plan: Arc::new(plan), openings: to_open };
        running.tasks.spawn(opener.run(running.stopped.clone()));
        Ok(Self { open: Mutex::new(open), openings })
    }

    /// Queues a message of a bucket's owner, or counts it as lost.
    pub(super) fn take(&self, owner: &str, message: Bytes) {
        let mut open = self.open.lock();
        let mut lane = LaneOwner::of(owner);
        let is_tenant = |it: &&LaneOwner| matches!(it, LaneOwner::Tenant(_));
        if !open.contains_key(&lane) && open.keys().filter(is_tenant).count() >= TENANTS_MAX {
            lane = LaneOwner::Others;
        }
        open.entry(lane).or_insert_with_key(|owner| self.begin(owner)).take(message);
    }

    /// Makes a lane whose queue accepts messages while its spool is opened.
    fn begin(&self, owner: &LaneOwner) -> Lane {
        let (sender, queue) = mpsc::channel(owner.queued_max());
        let counts = Arc::new(Counts::default());
        let opening = LaneQueue { owner: owner.clone(), queue, counts: counts.clone() };
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
