//! The lanes of a target: messages of each tenant's buckets have a queue, a spool and a file of their own.
//!
//! ```text
//! events/NAME/                  root's
//! events/NAME/tenants/OWNER/    a tenant's, by its canonical id
//! events/NAME/others/           of all that came when so many had theirs
//! ```
//!
//! Invariants:
//! * A tenant that makes more messages than its target takes drives out its own, and nobody else's.
//! * Lanes are bounded: [`TENANTS_MAX`] of tenants, that of root, and that of the others. A lane with
//!   nothing on disk is removed at the next start, and makes place for another tenant's.
//! * Opening a spool waits for a disk, so a task does it: whoever offers a message waits for nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use martlet_proxy::ROOT;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::aside::Aside;
use super::carrier::{Carrier, Destination, Keeper, Plight, off_thread, told_to_stop};
use super::spool::{self, Head, Tail};
use super::tries::Limits;
use super::{Counts, Running};
use crate::process::metrics::TargetFigures;

/// Tenants that have a lane of their own for a target, besides root.
pub(super) const TENANTS_MAX: usize = 32;
/// Messages of root between requests and its spool.
const QUEUED_MAX: usize = 4096;
/// Those of another lane.
const TENANT_QUEUED_MAX: usize = 512;
/// Longest id of a tenant that names a folder as it is.
const OWNER_CHARS_MAX: usize = 64;
/// Between two attempts to open a spool.
const REOPEN_AFTER: Duration = Duration::from_secs(10);
const TENANTS: &str = "tenants";
const OTHERS: &str = "others";

/// Whose messages a lane carries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Root,
    /// By the canonical id, or a hash of one that can't name a folder.
    Tenant(String),
    /// Those who came late.
    Others,
}

impl Whose {
    /// The lane of the owner of a bucket.
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

    /// What tells its file from root's.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Root => None,
            Self::Tenant(owner) => Some(owner),
            Self::Others => Some(OTHERS),
        }
    }

    /// Its folder within that of its target.
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

/// What the lanes of a target have in common.
pub(super) struct Plan {
    pub(super) name: String,
    /// The target's folder.
    pub(super) place: PathBuf,
    /// Bytes of each lane's spool.
    pub(super) bytes_max: u64,
    pub(super) destination: Destination,
    pub(super) limits: Limits,
}

/// The files of a lane.
struct Files {
    tail: Tail,
    head: Head,
    aside: Aside,
}

impl Plan {
    fn open(&self, whose: &Whose, counts: &Arc<Counts>) -> io::Result<Files> {
        let place = whose.place(&self.place);
        let (tail, head) = spool::open(&place, self.bytes_max, counts)?;
        Ok(Files { tail, head, aside: Aside::new(&place, self.bytes_max, counts) })
    }

    /// Root's lane, and those that an earlier process left.
    fn found(&self) -> io::Result<Vec<Whose>> {
        let mut found = vec![Whose::Root];
        if self.place.join(OTHERS).is_dir() {
            found.push(Whose::Others);
        }
        let entries = match fs::read_dir(self.place.join(TENANTS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if Whose::of(&name).name() == Some(&*name) {
                found.push(Whose::Tenant(name));
            }
        }
        Ok(found)
    }

    /// What keeps messages of a lane, and what carries them.
    fn tasks(
        &self,
        whose: &Whose,
        files: Files,
        (queue, counts): (mpsc::Receiver<Bytes>, Arc<Counts>),
    ) -> (Keeper, Carrier) {
        let Files { tail, head, aside } = files;
        let (aside, written) = (Arc::new(aside), Arc::new(Notify::new()));
        let name = match whose.name() {
            Some(tenant) => format!("{} of {tenant}", self.name),
            None => self.name.clone(),
        };
        let carrier = Carrier {
            name,
            head,
            destination: self.destination.of(whose),
            aside: aside.clone(),
            limits: self.limits,
            counts: counts.clone(),
            written: written.clone(),
            plight: Plight::default(),
        };
        (Keeper { tail, queue, aside, counts, written }, carrier)
    }
}

/// Where messages of a lane come in.
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

/// A lane that a task is to open.
struct Opening {
    whose: Whose,
    queue: mpsc::Receiver<Bytes>,
    counts: Arc<Counts>,
}

/// Opens lanes as tenants come.
struct Opener {
    plan: Arc<Plan>,
    openings: mpsc::UnboundedReceiver<Opening>,
}

impl Opener {
    /// Until `stopped`, and then until what the lanes have taken is in their spools.
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

/// Opens a lane, and carries what comes through it until `stopped`.
async fn carry(plan: Arc<Plan>, opening: Opening, mut stopped: watch::Receiver<bool>) {
    let Opening { whose, mut queue, counts } = opening;
    let files = loop {
        let (planned, place, counted) = (plan.clone(), whose.clone(), counts.clone());
        match off_thread((), move |()| planned.open(&place, &counted)).await.1 {
            Ok(files) => break files,
            Err(error) => {
                tracing::error!(name = plan.name, ?whose, %error, "a spool of events can't be used");
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
    open: Mutex<BTreeMap<Whose, Lane>>,
    /// At most one opening for each lane.
    openings: mpsc::UnboundedSender<Opening>,
}

impl Lanes {
    /// Opens root's lane and those that have messages from before, and starts what delivers from them.
    pub(super) fn open(plan: Plan, running: &mut Running<'_>) -> io::Result<Self> {
        let (openings, to_open) = mpsc::unbounded_channel();
        let mut open = BTreeMap::new();
        for whose in plan.found()? {
            let counts = Arc::new(Counts::default());
            let files = plan.open(&whose, &counts)?;
            let is_empty =
                counts.waiting_bytes.load(Ordering::Relaxed) == 0 && files.aside.is_empty();
            if whose != Whose::Root && is_empty {
                fs::remove_dir_all(whose.place(&plan.place))?;
                continue;
            }
            let (sender, queue) = mpsc::channel(whose.queued_max());
            let (keeper, carrier) = plan.tasks(&whose, files, (queue, counts.clone()));
            running.tasks.spawn(keeper.run(running.stopped.clone()));
            running.tasks.spawn(carrier.run(running.stopped.clone()));
            open.insert(whose, Lane { queue: sender, counts });
        }
        let opener = Opener { plan: Arc::new(plan), openings: to_open };
        running.tasks.spawn(opener.run(running.stopped.clone()));
        Ok(Self { open: Mutex::new(open), openings })
    }

    /// Takes a message of the owner of a bucket, or counts it as lost.
    pub(super) fn take(&self, owner: &str, message: Bytes) {
        let mut open = self.open.lock();
        let mut whose = Whose::of(owner);
        let is_tenant = |it: &&Whose| matches!(it, Whose::Tenant(_));
        if !open.contains_key(&whose) && open.keys().filter(is_tenant).count() >= TENANTS_MAX {
            whose = Whose::Others;
        }
        open.entry(whose).or_insert_with_key(|whose| self.begin(whose)).take(message);
    }

    /// A lane that is opened while its queue takes messages.
    fn begin(&self, whose: &Whose) -> Lane {
        let (sender, queue) = mpsc::channel(whose.queued_max());
        let counts = Arc::new(Counts::default());
        let opening = Opening { whose: whose.clone(), queue, counts: counts.clone() };
        // Where nobody opens lanes any more the process ends, and the queue takes nothing.
        let _ = self.openings.send(opening);
        Lane { queue: sender, counts }
    }

    /// What became of the messages of all lanes.
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
        assert_eq!(Whose::of("root"), Whose::Root);
        assert_eq!(Whose::of("0a-B_9"), Whose::Tenant("0a-B_9".to_owned()));
        let mut folders = Vec::new();
        for odd in ["", "..", "a/b", "others", "a b", "ü", &"x".repeat(65)] {
            let Whose::Tenant(name) = Whose::of(odd) else { panic!("{odd} is a tenant") };
            assert_eq!((name.len(), Whose::of(&name)), (64, Whose::Tenant(name.clone())));
            folders.push(name);
        }
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), 7);
    }
}
