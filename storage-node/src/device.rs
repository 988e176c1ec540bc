//! A folder that is a device: whose it is, who has it open, what it holds and what space is left.
//!
//! ```text
//!              a write or sync failed             closed and opened again
//!   Ready ─────────────────────────────▶ Suspect ────────────────────────▶ Ready
//!   Full                                    │                              Full
//!                                           └──────── it did not open ───▶ Offline
//! ```
//!
//! A device whose index is found corrupt is opened again too: where it has peers, as another device
//! with an empty index and without votes.
//!
//! * [`format`]: `format.json`, what makes the folder a device.
//! * [`ballast`]: the reserve, and how much the device still takes.
//! * [`open`]: opening and closing: lock, format, ballast, index, extents, in this order.
//! * [`lost`]: what becomes of a device whose index is damaged (rule G1).

pub(crate) mod ballast;
pub(crate) mod format;
mod lost;
mod open;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Clock, DeviceId, DeviceIdentity, Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use self::ballast::Level;
pub(crate) use self::open::Opened;
use crate::disk::Disk;
use crate::extents::ExtentUsage;
use crate::index::{Caches, StandingNow};
use crate::metrics::{DeviceMetrics, IndexCounters};

/// How often a device is tidied.
const TIDY_EVERY_MS: u64 = 10_000;
/// How often a device that did not open is tried again.
const TRY_EVERY_MS: u64 = 10_000;
/// How much is tidied at a time.
const MARKS_MAX: usize = 4096;
const PUNCHES_MAX: usize = 16;
/// How long a delete is remembered (rule X4): far longer than a write may take to commit, and than a
/// holder that missed the delete is expected to be away.
const MARK_AGE_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// A device of a node.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its id in the ring.
    pub id: DeviceId,
    /// Its folder.
    pub path: PathBuf,
    /// What is held back for deletes.
    pub reserve: Reserve,
}

/// What a device holds back for deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// 2 % of the file system, at least 2 GiB, at most 10 %.
    #[default]
    Standard,
    /// So many bytes.
    Bytes(u64),
}

impl DeviceConfig {
    /// A device with the standard reserve.
    pub fn new(id: DeviceId, path: impl Into<PathBuf>) -> Self {
        Self { id, path: path.into(), reserve: Reserve::Standard }
    }
}

/// Names a cluster, or a device in it, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// One that was never used before.
    pub fn random() -> Self {
        Self(martlet_protocol::id::random_bytes())
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl From<Uuid> for String {
    fn from(uuid: Uuid) -> Self {
        uuid.to_string()
    }
}

impl TryFrom<String> for Uuid {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// What all devices of a node share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) caches: Caches,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) cluster: Option<Uuid>,
    pub(crate) votes_when_new: bool,
    pub(crate) tree_key: TreeKey,
}

impl Shared {
    /// Whether other devices hold what these hold.
    fn peers(&self) -> bool {
        !self.votes_when_new
    }
}

/// One device, open or not.
pub(crate) struct Device {
    config: DeviceConfig,
    shared: Shared,
    state: RwLock<State>,
    counters: Arc<IndexCounters>,
    /// The formatting that was open last, and how it stood.
    formatting: RwLock<(DeviceIdentity, StandingNow)>,
    /// What its index was found to have, until it was opened again.
    damage: Mutex<Option<String>>,
    reopened: AtomicU64,
    tidied_ms: AtomicU64,
    tried_ms: AtomicU64,
}

enum State {
    Online(Arc<Opened>),
    Reopening(String),
    Offline { reason: String, kind: ErrorKind },
}

impl Device {
    /// Opens a device; one that does not open is offline, and says why. Blocks.
    pub(crate) fn open(config: DeviceConfig, shared: Shared) -> Self {
        let device = Self {
            config,
            shared,
            state: RwLock::new(State::Reopening("it is being opened".to_owned())),
            counters: Arc::default(),
            formatting: RwLock::new((DeviceIdentity([0; 16]), StandingNow::default())),
            damage: Mutex::default(),
            reopened: AtomicU64::new(0),
            tidied_ms: AtomicU64::new(0),
            tried_ms: AtomicU64::new(0),
        };
        device.try_open();
        device
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.config.id
    }

    /// The device's parts, if it serves.
    pub(crate) fn online(&self) -> Result<Arc<Opened>> {
        match &*self.state.read() {
            State::Online(opened) => Ok(opened.clone()),
            State::Reopening(reason) => Err(self.unavailable("is being opened again", reason)),
            State::Offline { reason, .. } => Err(self.unavailable("is offline", reason)),
        }
    }

    /// The device's parts, if it takes extents.
    pub(crate) fn writable(&self) -> Result<Arc<Opened>> {
        let opened = self.online()?;
        if opened.ballast.level() != Level::Ready {
            return Err(Error::full(format!("device {} is full", self.config.id)));
        }
        Ok(opened)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    /// Why it does not serve at all.
    pub(crate) fn offline(&self) -> Option<String> {
        match &*self.state.read() {
            State::Offline { reason, .. } => Some(reason.clone()),
            _ => None,
        }
    }

    /// Looks after space and health: reopens a device that failed a write. Blocks.
    pub(crate) fn tend(&self) {
        let suspect = match &*self.state.read() {
            State::Online(opened) => {
                opened.ballast.tend();
                self.tidy(opened);
                opened.index.probe();
                opened.fault()
            }
            // Space or the disk may have returned, or the last request that used it may have ended.
            State::Offline { reason, kind: ErrorKind::Full | ErrorKind::Unavailable } => {
                self.may_try_again().then(|| reason.clone())
            }
            // What else keeps a device from opening takes a person.
            State::Reopening(_) | State::Offline { .. } => None,
        };
        if let Some(reason) = suspect {
            self.reopen(reason);
        }
    }

    /// Whether it is time to try to open the device once more.
    fn may_try_again(&self) -> bool {
        let now_ms = self.now_ms();
        let due = now_ms >= self.tried_ms.load(Ordering::Relaxed).saturating_add(TRY_EVERY_MS);
        if due {
            self.tried_ms.store(now_ms, Ordering::Relaxed);
        }
        due
    }

    /// Gives long freed stretches back to the file system and forgets old marks: now and then, and
    /// at once when the device is full.
    fn tidy(&self, opened: &Opened) {
        let now_ms = self.now_ms();
        let due_ms = self.tidied_ms.load(Ordering::Relaxed).saturating_add(TIDY_EVERY_MS);
        let short = opened.ballast.level() != Level::Ready;
        if now_ms < due_ms && !short {
            return;
        }
        self.tidied_ms.store(now_ms, Ordering::Relaxed);
        let forgotten = opened.extents.forget_marks(now_ms.saturating_sub(MARK_AGE_MS), MARKS_MAX);
        let tidied = forgotten.and_then(|_| opened.extents.reclaim(PUNCHES_MAX, short));
        if let Err(error) = tidied {
            tracing::warn!(device = %self.config.id, %error, "the device can't be tidied");
        }
    }

    /// Closes the device in good order, so that the next opening need not look at every extent.
    /// Blocks.
    pub(crate) fn close(&self) -> Result<()> {
        let closed =
            State::Offline { reason: "it was closed".into(), kind: ErrorKind::Unavailable };
        match std::mem::replace(&mut *self.state.write(), closed) {
            State::Online(opened) => Opened::close(opened),
            _ => Ok(()),
        }
    }

    pub(crate) fn status(&self) -> DeviceStatus {
        self.metrics().status
    }

    pub(crate) fn metrics(&self) -> DeviceMetrics {
        // What is being opened again has the votes that it had.
        let (identity, stood) = *self.formatting.read();
        let nothing = (ExtentUsage::default(), (0, 0), StandingNow { hints: 0, ..stood });
        let (health, (extents, space, standing)) = match &*self.state.read() {
            State::Online(opened) => {
                let parts = (opened.extents.usage(), opened.space(), opened.index.standing());
                (opened.health(), parts)
            }
            State::Reopening(reason) => (DeviceHealth::Suspect(reason.clone()), nothing),
            State::Offline { reason, .. } => (DeviceHealth::Offline(reason.clone()), nothing),
        };
        let status = DeviceStatus {
            device: self.config.id,
            identity,
            voting: standing.voting,
            path: self.config.path.clone(),
            health,
            total_bytes: space.0,
            free_bytes: space.1,
            extent_bytes: extents.bytes,
            extents: extents.extents,
            quarantined: extents.quarantined,
            hints: standing.hints,
            term: standing.term,
            joined: standing.joined,
        };
        let reopened = self.reopened.load(Ordering::Relaxed);
        DeviceMetrics { status, index: self.counters.snapshot(), extents, reopened }
    }

    fn reopen(&self, reason: String) {
        tracing::warn!(device = %self.config.id, reason, "reopening the device");
        let before = std::mem::replace(&mut *self.state.write(), State::Reopening(reason));
        if let State::Online(opened) = before {
            self.remember(&opened);
            *self.damage.lock() = opened.index.damage();
            if let Err(error) = Opened::abandon(opened) {
                self.set_offline(&error);
                return;
            }
        }
        self.reopened.fetch_add(1, Ordering::Relaxed);
        self.try_open();
    }

    fn try_open(&self) {
        let mut damage = self.damage.lock();
        match Opened::open(&self.config, &self.shared, &self.counters, &mut damage) {
            Ok(opened) => {
                self.remember(&opened);
                *self.state.write() = State::Online(Arc::new(opened));
            }
            Err(error) => self.set_offline(&error),
        }
    }

    fn remember(&self, opened: &Opened) {
        *self.formatting.write() = (DeviceIdentity(opened.device.0), opened.index.standing());
    }

    fn set_offline(&self, error: &Error) {
        tracing::error!(device = %self.config.id, %error, "the device is offline");
        *self.state.write() = State::Offline { reason: error.to_string(), kind: error.kind() };
    }

    fn unavailable(&self, what: &str, reason: &str) -> Error {
        Error::unavailable(format!("device {} {what}: {reason}", self.config.id))
    }
}
