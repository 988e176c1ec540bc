//! A device: its folder, identity, lock, parts and free space.
//!
//! ```text
//!              a write or sync failed             closed and opened again
//!   Ready ─────────────────────────────▶ Suspect ────────────────────────▶ Ready
//!   Full                                    │                              Full
//!                                           └──────── it did not open ───▶ Offline
//! ```
//!
//! A device whose index is found corrupt is opened again too. If it has peers, it becomes another
//! device with an empty index and without votes. A device that hangs is suspect until its disk
//! answers.
//!
//! * [`config`]: settings of a device, and the state that it shares with others.
//! * [`format`]: `format.json`, which makes a folder a device.
//! * [`ballast`]: the reserve, and the level of writes that the device still accepts.
//! * [`open`]: opening and closing: lock, format, ballast, index, extents, in this order;
//!   [`clean_marker`]: the file that an orderly closing leaves.
//! * [`lost`]: devices with a damaged index (rule G1); [`unreadable`]: when a file that the disk
//!   can't read counts as damaged.
//! * [`opening`]: openings that peers can distinguish (rule G1); [`opening_number`]: the opening that
//!   an index belongs to.
//! * [`pool`]: the threads that wait for its disk; [`pulse`]: the time they have waited.
//! * [`moment`]: the pace of retries and tidying;
//!   [`steady_time`]: the time by which delete marks are forgotten.

pub(crate) mod ballast;
mod clean_marker;
mod config;
pub(crate) mod format;
mod lost;
pub(crate) mod moment;
mod open;
mod opening;
mod opening_number;
pub(crate) mod pool;
pub(crate) mod pulse;
pub(crate) mod repeated_failures;
mod steady_time;
#[cfg(test)]
mod tests;
mod unreadable;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
use martlet_protocol::{DeviceId, DeviceIdentity, Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};

use self::ballast::FillLevel;
use self::config::DeviceHistory;
pub use self::config::{DeviceConfig, Reserve};
pub(crate) use self::config::{DeviceLevel, SharedResources};
pub use self::format::FolderFormat;
use self::moment::Moment;
pub(crate) use self::open::{OpenDevice, lock};
use self::pool::Pool;
use self::steady_time::SteadyTime;
use self::unreadable::Unreadable;
use crate::extents::ExtentUsage;
use crate::index::VotingSnapshot;
use crate::metrics::{DeviceMetrics, IndexCounters};

/// Interval of tidying, in milliseconds.
const TIDY_EVERY_MS: u64 = 10_000;
/// Interval of attempts to open a device that is offline, in milliseconds. Where the disk failed,
/// the interval doubles with each attempt, up to [`DOUBLINGS_MAX`] times.
const TRY_EVERY_MS: u64 = 10_000;
const DOUBLINGS_MAX: u32 = 6;
/// Maximum number of free runs that one tidying round returns to the file system.
const PUNCHES_MAX: usize = 16;
/// As above, while the device is short of space. With runs of 64 KiB, that is 256 MiB.
const PUNCHES_MAX_IF_SHORT: usize = 4096;
/// Time without writes after which a volume's rows are made durable. A crash leaves the free space
/// of the volumes to inspect that were written to within this time.
const VOLUME_IDLE: Duration = Duration::from_mins(1);
/// Time for which a delete is remembered (rule X4), in milliseconds. It far exceeds the time a
/// write may take to commit, and the expected absence of a holder that missed the delete.
const MARK_AGE_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// One device, open or closed.
pub(crate) struct Device {
    config: DeviceConfig,
    shared: SharedResources,
    state: RwLock<DeviceState>,
    /// Held by the thread that opens, tends or closes the device.
    attending: Mutex<()>,
    threads: Arc<Pool>,
    counters: Arc<IndexCounters>,
    /// Identity and voting state of the device at its last opening.
    formatting: RwLock<(DeviceIdentity, VotingSnapshot)>,
    history: Mutex<DeviceHistory>,
    reopened: AtomicU64,
    tidied: Mutex<Option<Moment>>,
    /// Time by which delete marks are forgotten.
    steady_time: Mutex<SteadyTime>,
    tried: Mutex<Option<Moment>>,
    /// Number of consecutive attempts to open that failed.
    tries: AtomicU32,
    /// True while a thread raises the format.
    is_raising: Arc<AtomicBool>,
    unreadable: Mutex<Unreadable>,
}

/// Mark of the one thread that raises the format of a device.
pub(crate) struct RaiseGuard(Arc<AtomicBool>);

impl Drop for RaiseGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

enum DeviceState {
    Online(Arc<OpenDevice>),
    Reopening(String),
    Offline { reason: String, kind: ErrorKind },
}

impl Device {
    /// Creates a device that is not open yet.
    pub(crate) fn new(config: DeviceConfig, shared: SharedResources) -> Self {
        let threads = Pool::new(config.id.to_string(), shared.stall_after);
        let formattings = config.formatting.into_iter().collect();
        Self {
            config,
            shared,
            state: RwLock::new(DeviceState::Reopening("the device is being opened".to_owned())),
            attending: Mutex::default(),
            threads: Arc::new(threads),
            counters: Arc::default(),
            formatting: RwLock::new((DeviceIdentity([0; 16]), VotingSnapshot::default())),
            history: Mutex::new(DeviceHistory { formattings, damage: None }),
            reopened: AtomicU64::new(0),
            tidied: Mutex::default(),
            steady_time: Mutex::default(),
            tried: Mutex::default(),
            tries: AtomicU32::new(0),
            is_raising: Arc::default(),
            unreadable: Mutex::default(),
        }
    }

    /// Opens the device. A device that does not open is offline, with the reason. Blocks.
    pub(crate) fn open(&self) {
        let _attending = self.attending.lock();
        self.or_offline(|| self.try_open(false));
    }

    /// Threads on which calls wait for its disk.
    pub(crate) fn threads(&self) -> &Arc<Pool> {
        &self.threads
    }

    /// Begins to raise the format. None while another thread does: its disk may hang.
    pub(crate) fn begin_raise(&self) -> Option<RaiseGuard> {
        let was_raising = self.is_raising.swap(true, Ordering::AcqRel);
        (!was_raising).then(|| RaiseGuard(self.is_raising.clone()))
    }

    /// Format level of the devices of the node.
    fn level(&self) -> &DeviceLevel {
        &self.shared.level
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.config.id
    }

    /// Returns the device's parts, if it serves.
    pub(crate) fn online(&self) -> Result<Arc<OpenDevice>> {
        match &*self.state.read() {
            DeviceState::Online(opened) => Ok(opened.clone()),
            DeviceState::Reopening(reason) => {
                Err(self.unavailable("is being opened again", reason))
            }
            DeviceState::Offline { reason, .. } => Err(self.unavailable("is offline", reason)),
        }
    }

    /// Returns the device's parts, if it accepts an extent of this length. `Unavailable` while the
    /// disk hangs. `Full` below the level `Ready`, unless the device accepts entries and the extent
    /// fits in blocks that its volumes have.
    pub(crate) fn writable(&self, length: Option<u64>) -> Result<Arc<OpenDevice>> {
        let opened = self.online()?;
        if let Some(reason) = self.threads.pulse().stalled() {
            return Err(self.unavailable("is suspect", &reason));
        }
        let has_blocks = || length.is_some_and(|length| opened.extents.has_blocks_for(length));
        match opened.ballast.level() {
            FillLevel::Ready => Ok(opened),
            FillLevel::Full if has_blocks() => Ok(opened),
            FillLevel::Full | FillLevel::Critical => {
                Err(Error::full(format!("device {} is full", self.config.id)))
            }
        }
    }

    /// Returns the device's parts, if it serves and is not suspect.
    pub(crate) fn trusted(&self) -> Result<Arc<OpenDevice>> {
        let opened = self.online()?;
        match self.threads.pulse().stalled().or_else(|| opened.extents.suspect()) {
            Some(reason) => Err(self.unavailable("is suspect", &reason)),
            None => Ok(opened),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    fn moment(&self) -> Moment {
        Moment::now(self.now_ms())
    }

    /// Returns the reason if the device is offline.
    pub(crate) fn offline(&self) -> Option<String> {
        match &*self.state.read() {
            DeviceState::Offline { reason, .. } => Some(reason.clone()),
            _ => None,
        }
    }

    /// Checks space and health; reopens a device that failed a write. Blocks.
    pub(crate) fn tend(&self) {
        // The thread that begins a device anew also opens it again.
        let Some(_attending) = self.attending.try_lock() else { return };
        let suspect = match self.online() {
            Ok(opened) => self.tend_open(&opened),
            Err(_) => self.tend_closed(),
        };
        if let Some(reason) = suspect {
            self.or_offline(|| self.reopen(reason));
        }
    }

    /// Tends an open device; returns the reason if it must be opened again.
    fn tend_open(&self, opened: &OpenDevice) -> Option<String> {
        opened.ballast.tend();
        self.tidy(opened);
        opened.index.probe();
        self.failure(opened)
    }

    /// Returns the reason if a closed device is to be tried again now.
    fn tend_closed(&self) -> Option<String> {
        match &*self.state.read() {
            // Space or the disk may have returned, or another process may have released the lock.
            DeviceState::Offline {
                reason,
                kind: ErrorKind::Full | ErrorKind::Unavailable | ErrorKind::Conflict,
            } => self.may_try_again(TRY_EVERY_MS).then(|| reason.clone()),
            DeviceState::Offline { reason, kind: ErrorKind::Internal } => {
                let doublings = self.tries.load(Ordering::Relaxed).min(DOUBLINGS_MAX);
                self.may_try_again(TRY_EVERY_MS << doublings).then(|| reason.clone())
            }
            // An operator must repair any other cause.
            DeviceState::Online(_) | DeviceState::Reopening(_) | DeviceState::Offline { .. } => {
                None
            }
        }
    }

    /// Returns the reason if an open device must be opened again.
    fn failure(&self, opened: &OpenDevice) -> Option<String> {
        if let Some(unread) = opened.index.take_unreadable() {
            self.note_unreadable(&unread);
        }
        if let Some(damage) = &self.history.lock().damage {
            return Some(damage.clone());
        }
        let fault = opened.fault()?;
        // A file that the disk can't read is not readable a moment later.
        let at_once = unreadable::file(&fault).is_none();
        (at_once || self.may_try_again(TRY_EVERY_MS)).then_some(fault)
    }

    /// Counts an error that names an unreadable file of the index. If the device has peers, a lost
    /// file makes it begin anew (rule G1).
    fn note_unreadable(&self, message: &str) {
        let lost = self.unreadable.lock().record(message, self.moment());
        if let Some(lost) = lost.filter(|_| self.shared.peers()) {
            self.history.lock().damage.get_or_insert(lost);
        }
    }

    /// Returns true, and records the attempt, if `every_ms` have passed since the last attempt.
    fn may_try_again(&self, every_ms: u64) -> bool {
        let (now, mut tried) = (self.moment(), self.tried.lock());
        let due = tried.is_none_or(|tried| now.is_after(tried, every_ms));
        if due {
            *tried = Some(now);
        }
        due
    }

    /// Returns long freed ranges to the file system and forgets old marks. Runs every
    /// [`TIDY_EVERY_MS`], and at each call while the device is full.
    fn tidy(&self, opened: &OpenDevice) {
        let now = self.moment();
        let short = opened.ballast.level() != FillLevel::Ready;
        let is_due = |tidied: Moment| now.is_after(tidied, TIDY_EVERY_MS);
        if !short && !self.tidied.lock().is_none_or(is_due) {
            return;
        }
        *self.tidied.lock() = Some(now);
        let punches_max = if short { PUNCHES_MAX_IF_SHORT } else { PUNCHES_MAX };
        let steady_ms = self.steady_time.lock().add(Instant::now(), self.now_ms());
        let forgotten = opened.extents.forget_marks(steady_ms.saturating_sub(MARK_AGE_MS));
        let tidied = forgotten
            .and_then(|()| opened.extents.close_idle_volumes(VOLUME_IDLE))
            .and_then(|_| opened.extents.reclaim(punches_max, short));
        if let Err(error) = tidied {
            tracing::warn!(device = %self.config.id, %error, "could not clean up the device");
        }
    }

    /// Closes the device in good order, so that the next opening need not check every extent.
    /// Blocks.
    pub(crate) fn close(&self) -> Result<()> {
        let _attending = self.attending.lock();
        self.take_away().map_or(Ok(()), OpenDevice::close)
    }

    /// Releases the device as it is, as a crash of the process would. Blocks.
    pub(crate) fn leave(&self) {
        let _attending = self.attending.lock();
        drop(self.take_away());
    }

    /// Takes the device offline for good; returns its parts if it was open.
    fn take_away(&self) -> Option<Arc<OpenDevice>> {
        let closed = DeviceState::Offline {
            reason: "the device was closed".into(),
            kind: ErrorKind::Unavailable,
        };
        match std::mem::replace(&mut *self.state.write(), closed) {
            DeviceState::Online(opened) => Some(opened),
            DeviceState::Reopening(_) | DeviceState::Offline { .. } => None,
        }
    }

    pub(crate) fn status(&self) -> DeviceStatus {
        self.metrics().status
    }

    pub(crate) fn metrics(&self) -> DeviceMetrics {
        // A device that is being reopened reports the votes that it had.
        let (identity, last_votes) = *self.formatting.read();
        let nothing = (ExtentUsage::default(), (0, 0), VotingSnapshot { hints: 0, ..last_votes });
        let (health, (extents, space, votes)) = match &*self.state.read() {
            DeviceState::Online(opened) => {
                let parts =
                    (opened.extents.usage(), opened.space(), opened.index.voting_snapshot());
                let hangs = self.threads.pulse().stalled().map(DeviceHealth::Suspect);
                (hangs.unwrap_or_else(|| opened.health()), parts)
            }
            DeviceState::Reopening(reason) => (DeviceHealth::Suspect(reason.clone()), nothing),
            DeviceState::Offline { reason, .. } => (DeviceHealth::Offline(reason.clone()), nothing),
        };
        let status = DeviceStatus {
            device: self.config.id,
            identity,
            voting: votes.voting,
            path: self.config.path.clone(),
            health,
            total_bytes: space.0,
            free_bytes: space.1,
            extent_bytes: extents.bytes,
            extents: extents.extents,
            quarantined: extents.quarantined,
            hints: votes.hints,
            term: votes.term,
            joined: votes.joined,
        };
        let reopened = self.reopened.load(Ordering::Relaxed);
        DeviceMetrics { status, index: self.counters.snapshot(), extents, reopened }
    }

    fn reopen(&self, reason: String) {
        tracing::warn!(device = %self.config.id, reason, "reopening the device");
        self.note_unreadable(&reason);
        let before = std::mem::replace(&mut *self.state.write(), DeviceState::Reopening(reason));
        if let DeviceState::Online(opened) = before {
            self.remember(&opened);
            if let Some(damage) = opened.index.damage() {
                self.history.lock().damage = Some(damage);
            }
            if let Err(error) = OpenDevice::abandon(opened) {
                self.set_offline(&error);
                return;
            }
        }
        self.try_open(true);
    }

    /// Reopens a device whose index is damaged.
    fn reopen_as_damaged(&self, reason: String) {
        let _attending = self.attending.lock();
        // The device may have been closed, or have failed, meanwhile.
        if self.online().is_err() {
            return;
        }
        self.history.lock().damage = Some(reason.clone());
        self.or_offline(|| self.reopen(reason));
    }

    /// Runs an opening. If it panics, the device is offline, and [`tend`](Self::tend) tries again
    /// after a pause.
    fn or_offline(&self, opening: impl FnOnce()) {
        let outcome = catch_unwind(AssertUnwindSafe(opening));
        if outcome.is_err() && self.online().is_err() {
            self.tries.fetch_add(1, Ordering::Relaxed);
            self.set_offline(&Error::internal("the opening of the device panicked"));
        }
    }

    /// Opens the device. An opening that fails is not counted as a reopening: a dead disk would look
    /// like one that comes and goes.
    fn try_open(&self, is_again: bool) {
        let mut history = self.history.lock();
        let damaged = history.damage.is_some();
        let (counters, threads) = (&self.counters, &self.threads);
        let outcome = OpenDevice::open(&self.config, &self.shared, counters, threads, &mut history);
        if damaged && history.damage.is_none() {
            self.unreadable.lock().clear();
        }
        drop(history);
        match outcome {
            Ok(opened) => {
                self.tries.store(0, Ordering::Relaxed);
                self.remember(&opened);
                self.reopened.fetch_add(u64::from(is_again), Ordering::Relaxed);
                *self.state.write() = DeviceState::Online(Arc::new(opened));
                // The level may have risen since the opening began.
                if let Err(error) = self.raise_format() {
                    let device = self.config.id;
                    tracing::error!(%device, %error, "could not raise the format of the device");
                }
            }
            Err(error) => {
                self.tries.fetch_add(1, Ordering::Relaxed);
                self.set_offline(&error);
            }
        }
    }

    fn remember(&self, opened: &OpenDevice) {
        *self.formatting.write() =
            (DeviceIdentity(opened.device.0), opened.index.voting_snapshot());
    }

    fn set_offline(&self, error: &Error) {
        tracing::error!(device = %self.config.id, %error, "the device is offline");
        *self.state.write() =
            DeviceState::Offline { reason: error.to_string(), kind: error.kind() };
    }

    fn unavailable(&self, what: &str, reason: &str) -> Error {
        Error::unavailable(format!("device {} {what}: {reason}", self.config.id))
    }
}
