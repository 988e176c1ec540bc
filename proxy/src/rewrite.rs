//! The objects of a bucket whose bytes lie under another policy go to the bucket's present one.
//!
//! ```text
//! look: walk over all names ──▶ how many objects, how many bytes
//! move: walk over all names ──▶ a few at a time: read ─▶ write anew ─▶ replace the entry
//! ```
//!
//! Nothing is remembered between two rewrites: what lies where it should is passed over, so one that
//! was cut short is simply begun again, on whichever proxy. Two at a time do no harm, only work
//! twice.
//!
//! What a client sees is the same object before and after: the entry keeps all that it says of itself,
//! its date and tag included, and the extents that it named before are garbage as after any
//! overwrite, kept for readers until their grace is over. Only its order rises, as that of any write
//! may; whoever reads after a stamp of before is served.
//!
//! An object whose storage class names a policy stays where its client put it.
//!
//! * [`object`]: one object, and why it never comes back over what a client wrote.
//! * [`pace`]: how fast.

mod object;
mod pace;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Level, VersionId};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use self::object::Outcome;
use self::pace::{Attempt, Pace};
use crate::api::{ListVersions, VersionPage};
use crate::error::{Error, Result};
use crate::session::Ask;
use crate::store::ObjectStore;

/// Objects that are moved at a time.
const OBJECTS_AT_ONCE: usize = 4;
/// Names looked at in one go.
const PAGE: usize = 500;
/// How often an object is tried.
const TRIES: u32 = 3;
/// Before an object is tried again; longer each time.
const REST: Duration = Duration::from_millis(300);
/// So many objects in a row that can't be moved, and the rewrite gives up.
const FAILURES_IN_A_ROW_MAX: u32 = 16;
/// Nobody is answered from an older state than this.
const STRICT: Ask = Ask { level: Some(Level::Strict), read_after: None };

/// Says whether clients wait longer than they should.
pub type ClientsWait = dyn Fn() -> bool + Send + Sync;

/// How a rewrite goes about it.
#[derive(Clone, Default)]
pub struct RewriteOptions {
    /// Bytes a second that it moves at most; none for as fast as it goes.
    pub bytes_per_s: Option<u64>,
    /// Asked before each piece: while clients wait, it steps back for a moment.
    pub clients_wait: Option<Arc<ClientsWait>>,
}

impl fmt::Debug for RewriteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_per_s, clients_wait } = self;
        let gives_way = clients_wait.is_some();
        f.debug_struct("RewriteOptions")
            .field("bytes_per_s", bytes_per_s)
            .field("gives_way", &gives_way)
            .finish()
    }
}

/// How far a rewrite is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteProgress {
    /// Whether it is known how much there is to move.
    pub looked: bool,
    /// Objects that lay under another policy when that was looked for.
    pub objects_to_move: u64,
    /// Their bytes.
    pub bytes_to_move: u64,
    /// Objects looked at since.
    pub seen: u64,
    /// Objects moved.
    pub moved: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes read of objects that were moved or are on their way.
    pub copied_bytes: u64,
    /// Objects that could not be moved, and stay where they were.
    pub failed: u64,
    /// Why that was so for the last of them.
    pub failure: Option<String>,
    /// How long it has been moving objects.
    pub moving_for: Duration,
}

/// A rewrite of one bucket: to be run once, looked at by anyone meanwhile.
#[derive(Debug)]
pub struct Rewrite {
    bucket: String,
    pace: Arc<Pace>,
    progress: Mutex<RewriteProgress>,
    moving_since: Mutex<Option<Instant>>,
    failures_in_a_row: AtomicU32,
}

impl Rewrite {
    /// Of a bucket, not begun yet.
    pub fn new(bucket: impl Into<String>, options: RewriteOptions) -> Self {
        Self {
            bucket: bucket.into(),
            pace: Arc::new(Pace::new(options)),
            progress: Mutex::default(),
            moving_since: Mutex::default(),
            failures_in_a_row: AtomicU32::new(0),
        }
    }

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// How far it is.
    pub fn progress(&self) -> RewriteProgress {
        let moving_for = self.moving_since.lock().map(|since| since.elapsed()).unwrap_or_default();
        let copied_bytes = self.pace.copied_bytes();
        RewriteProgress { copied_bytes, moving_for, ..self.progress.lock().clone() }
    }

    /// Ends it soon. What is half moved stays where it was.
    pub fn stop(&self) {
        self.pace.stop();
    }

    fn note_moved(&self, size: u64) {
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        let mut progress = self.progress.lock();
        progress.moved += 1;
        progress.moved_bytes += size;
    }

    fn note_failure(&self, key: &str, why: &str) {
        tracing::debug!(bucket = self.bucket, key, why, "an object could not be rewritten");
        self.failures_in_a_row.fetch_add(1, Ordering::Relaxed);
        let mut progress = self.progress.lock();
        progress.failed += 1;
        progress.failure = Some(format!("{key}: {why}"));
    }

    /// An error if it should not go on.
    fn check(&self) -> Result<()> {
        let stopped = |why: String| Err(martlet_protocol::Error::unavailable(why).into());
        if self.pace.is_stopped() {
            return stopped("it was stopped".to_owned());
        }
        if self.failures_in_a_row.load(Ordering::Relaxed) < FAILURES_IN_A_ROW_MAX {
            return Ok(());
        }
        let last = self.progress.lock().failure.clone().unwrap_or_default();
        stopped(format!("{FAILURES_IN_A_ROW_MAX} objects in a row could not be moved, as {last}"))
    }
}

/// Where a walk over versions goes on.
type After = Option<(String, Option<VersionId>)>;

/// Some objects of a bucket.
struct Page {
    count: u64,
    /// Keys, versions and sizes of those that lie under another policy.
    astray: Vec<(String, VersionId, u64)>,
    next: After,
}

impl ObjectStore {
    /// Rewrites a bucket. Ends when every object was looked at; those that could not be moved are
    /// counted, and stay as they were.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; names that can't be listed; too many objects in a row that can't be
    /// moved; that it was stopped. What was moved by then stays moved.
    pub async fn rewrite(&self, rewrite: &Rewrite) -> Result<()> {
        self.look(rewrite).await?;
        *rewrite.moving_since.lock() = Some(Instant::now());
        let mut after = None;
        loop {
            let page = self.names(rewrite, after).await?;
            rewrite.progress.lock().seen += page.count - page.astray.len() as u64;
            stream::iter(page.astray)
                .for_each_concurrent(OBJECTS_AT_ONCE, |(key, version, size)| async move {
                    self.move_object(rewrite, (&key, version), size).await;
                })
                .await;
            after = page.next;
            if after.is_none() {
                return rewrite.check();
            }
        }
    }

    /// A page of the objects of its bucket: where to go on, and the keys and sizes of those that lie
    /// under another policy.
    async fn names(&self, rewrite: &Rewrite, after: After) -> Result<Page> {
        rewrite.check()?;
        let (after_key, after_version) = after.map_or((None, None), |(key, id)| (Some(key), id));
        let list = ListVersions { after_key, after_version, limit: PAGE, ..Default::default() };
        let session = self.session(STRICT);
        let VersionPage { versions, next, .. } =
            session.list_versions(&rewrite.bucket, list).await?;
        let inner = session.inner();
        let bucket = inner.bucket(&rewrite.bucket).await?;
        let objects = versions.into_iter().filter_map(|it| Some((it.key, it.id, it.object?)));
        let objects: Vec<_> = objects.collect();
        let count = objects.len() as u64;
        let astray = objects.into_iter().filter(|(.., it)| inner.astray(&bucket, it).is_some());
        let astray = astray.map(|(key, id, object)| (key, id, object.size)).collect();
        Ok(Page { count, astray, next })
    }

    /// Finds out how much there is to move.
    async fn look(&self, rewrite: &Rewrite) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.names(rewrite, after).await?;
            let mut progress = rewrite.progress.lock();
            progress.objects_to_move += page.astray.len() as u64;
            progress.bytes_to_move += page.astray.iter().map(|(.., size)| size).sum::<u64>();
            after = page.next;
            if after.is_none() {
                progress.looked = true;
                return Ok(());
            }
        }
    }

    /// Moves one object, if it has to be; what came of it is noted.
    async fn move_object(&self, rewrite: &Rewrite, name: (&str, VersionId), size: u64) {
        let key = name.0;
        if rewrite
            .pace
            .span_of(size)
            .is_some_and(|span| span > Duration::from_millis(COMMIT_WINDOW_MS))
        {
            rewrite.progress.lock().seen += 1;
            return rewrite.note_failure(key, "at this rate it takes longer than a day");
        }
        let mut why = "clients keep writing it".to_owned();
        for attempt in 0..TRIES {
            sleep(REST * attempt).await;
            if rewrite.check().is_err() {
                return;
            }
            // By the rings of now, not of when the rewrite began.
            let inner = self.session(STRICT).inner();
            let attempt = Attempt::new(&rewrite.pace);
            let outcome = inner.rewrite_object(&rewrite.bucket, name, &attempt).await;
            match outcome {
                Ok(Outcome::Moved) => {
                    rewrite.progress.lock().seen += 1;
                    return rewrite.note_moved(size);
                }
                Ok(Outcome::InPlace) => {
                    rewrite.progress.lock().seen += 1;
                    return;
                }
                Ok(Outcome::Overtaken) => attempt.take_back(),
                Err(Error::NoSuchBucket) => return,
                Err(error) => {
                    attempt.take_back();
                    why = error.to_string();
                }
            }
        }
        if !rewrite.pace.is_stopped() {
            rewrite.progress.lock().seen += 1;
            rewrite.note_failure(key, &why);
        }
    }
}
