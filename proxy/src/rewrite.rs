//! Rewrite of a bucket's objects under its current storage policy.
//!
//! ```text
//! look: walk over all names ──▶ number of objects and bytes to move
//! move: walk over all names ──▶ a few concurrently: read ─▶ write anew ─▶ replace the entry
//! ```
//!
//! No state is kept between rewrites: objects under the right policy are skipped. So an interrupted
//! rewrite is started again, on any proxy. Two concurrent rewrites are harmless, but duplicate
//! work.
//!
//! Clients see an unchanged object: its metadata, date and ETag stay. The former extents become
//! garbage as after any overwrite, and are kept for readers during the grace time. Only the order
//! rises, as that of any write may; reads after an earlier stamp are served.
//!
//! An object whose storage class names a policy is not moved.
//!
//! * [`object`]: moves one object without undoing clients' writes.
//! * [`pace`]: limits the speed.

mod object;
mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use martlet_protocol::VersionId;
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use self::object::{MoveOutcome, ObjectMove, policies_of};
use self::pace::{Attempt, Pace};
pub use self::pace::{ClientsWait, RewriteOptions};
use crate::api::{ListVersions, VersionPage};
use crate::consistency::ConsistencyOptions;
use crate::error::{Error, Result};
use crate::store::ObjectStore;

/// Concurrent moves.
const OBJECTS_AT_ONCE: usize = 4;
/// Versions on one page.
const PAGE: usize = 500;
/// Attempts for each object.
const TRIES: u32 = 3;
/// Wait before the second attempt; twice as long before the third.
const REST: Duration = Duration::from_millis(300);
/// Number of consecutive failed objects after which the rewrite gives up.
const FAILURES_IN_A_ROW_MAX: u32 = 16;

/// Progress of a rewrite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteProgress {
    /// True once the amount to move is known.
    pub looked: bool,
    /// Number of objects under another policy, when they were counted.
    pub objects_to_move: u64,
    /// Bytes of these objects.
    pub bytes_to_move: u64,
    /// Objects processed since then.
    pub seen: u64,
    /// Objects moved.
    pub moved: u64,
    /// Bytes of the moved objects.
    pub moved_bytes: u64,
    /// Bytes read of objects that were moved or are being moved.
    pub copied_bytes: u64,
    /// Objects that could not be moved, and stay under their policy.
    pub failed: u64,
    /// Key and error of the last failure.
    pub failure: Option<String>,
    /// Time since it began to move objects.
    pub moving_for: Duration,
}

/// A rewrite of one bucket. Runs once; its progress may be read concurrently.
#[derive(Debug)]
pub struct Rewrite {
    bucket: String,
    pace: Arc<Pace>,
    progress: Mutex<RewriteProgress>,
    moving_since: Mutex<Option<Instant>>,
    failures_in_a_row: AtomicU32,
}

impl Rewrite {
    /// A rewrite of a bucket, not started yet.
    pub fn new(bucket: impl Into<String>, options: RewriteOptions) -> Self {
        Self {
            bucket: bucket.into(),
            pace: Arc::new(Pace::new(options)),
            progress: Mutex::default(),
            moving_since: Mutex::default(),
            failures_in_a_row: AtomicU32::new(0),
        }
    }

    /// Name of the bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Current progress.
    pub fn progress(&self) -> RewriteProgress {
        let moving_for = self.moving_since.lock().map(|since| since.elapsed()).unwrap_or_default();
        let copied_bytes = self.pace.copied_bytes();
        RewriteProgress { copied_bytes, moving_for, ..self.progress.lock().clone() }
    }

    /// Stops the rewrite soon. Objects in progress stay under their policy.
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
        tracing::debug!(bucket = self.bucket, key, why, "could not rewrite an object");
        self.failures_in_a_row.fetch_add(1, Ordering::Relaxed);
        let mut progress = self.progress.lock();
        progress.failed += 1;
        progress.failure = Some(format!("{key}: {why}"));
    }

    /// Fails if the rewrite was stopped or too many consecutive objects failed.
    fn check(&self) -> Result<()> {
        let stopped = |why: String| Err(martlet_protocol::Error::unavailable(why).into());
        if self.pace.is_stopped() {
            return stopped("the rewrite was stopped".to_owned());
        }
        if self.failures_in_a_row.load(Ordering::Relaxed) < FAILURES_IN_A_ROW_MAX {
            return Ok(());
        }
        let last = self.progress.lock().failure.clone().unwrap_or_default();
        stopped(format!("{FAILURES_IN_A_ROW_MAX} objects in a row could not be moved, as {last}"))
    }
}

/// Start of a page of versions.
type After = Option<(String, Option<VersionId>)>;

/// A page of a bucket's objects.
struct Page {
    count: u64,
    /// The objects under another policy.
    misplaced: Vec<MisplacedObject>,
    next: After,
}

/// A version whose extents lie under another policy than the current one.
struct MisplacedObject {
    key: String,
    version: VersionId,
    /// Size in bytes.
    size: u64,
}

impl ObjectStore {
    /// Rewrites a bucket. Ends once every object was processed; objects that could not be moved are
    /// counted and stay unchanged.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; a failed listing; too many consecutive failures; a stop. Objects
    /// moved by then stay moved.
    pub async fn rewrite(&self, rewrite: &Rewrite) -> Result<()> {
        look(self, rewrite).await?;
        *rewrite.moving_since.lock() = Some(Instant::now());
        let mut after = None;
        loop {
            let page = names(self, rewrite, after).await?;
            rewrite.progress.lock().seen += page.count - page.misplaced.len() as u64;
            stream::iter(page.misplaced)
                .for_each_concurrent(OBJECTS_AT_ONCE, |object| async move {
                    move_object(self, rewrite, &object).await;
                })
                .await;
            after = page.next;
            if after.is_none() {
                return rewrite.check();
            }
        }
    }
}

/// Reads a page of the bucket's objects, and selects those under another policy.
async fn names(store: &ObjectStore, rewrite: &Rewrite, after: After) -> Result<Page> {
    rewrite.check()?;
    let (after_key, after_version) = after.map_or((None, None), |(key, id)| (Some(key), id));
    let list = ListVersions { after_key, after_version, limit: PAGE, ..Default::default() };
    let session = store.session(ConsistencyOptions::STRICT);
    let VersionPage { versions, next, .. } = session.versions().list(&rewrite.bucket, list).await?;
    let bucket = session.bucket(&rewrite.bucket).await?;
    let context = session.context();
    let objects = versions.into_iter().filter_map(|it| Some((it.key, it.id, it.object?)));
    let objects: Vec<_> = objects.collect();
    let count = objects.len() as u64;
    let misplaced = objects
        .into_iter()
        .filter(|(.., object)| policies_of(&context, &bucket, object).is_some())
        .map(|(key, version, object)| MisplacedObject { key, version, size: object.size })
        .collect();
    Ok(Page { count, misplaced, next })
}

/// Counts the objects and bytes to move.
async fn look(store: &ObjectStore, rewrite: &Rewrite) -> Result<()> {
    let mut after = None;
    loop {
        let page = names(store, rewrite, after).await?;
        let mut progress = rewrite.progress.lock();
        progress.objects_to_move += page.misplaced.len() as u64;
        progress.bytes_to_move += page.misplaced.iter().map(|object| object.size).sum::<u64>();
        after = page.next;
        if after.is_none() {
            progress.looked = true;
            return Ok(());
        }
    }
}

/// Moves one object if necessary, and records the result.
async fn move_object(store: &ObjectStore, rewrite: &Rewrite, object: &MisplacedObject) {
    let MisplacedObject { key, version, size } = object;
    let (version, size) = (*version, *size);
    if rewrite.pace.span_of(size).is_some_and(|span| span > Duration::from_millis(COMMIT_WINDOW_MS))
    {
        rewrite.progress.lock().seen += 1;
        return rewrite.note_failure(key, "at this rate the object takes longer than a day");
    }
    let mut why = "clients keep writing the object".to_owned();
    for attempt in 0..TRIES {
        sleep(REST * attempt).await;
        if rewrite.check().is_err() {
            return;
        }
        // With the current rings, not those of the rewrite's start.
        let context = store.session(ConsistencyOptions::STRICT).context();
        let move_of = ObjectMove { services: &store.services, context: &context };
        let attempt = Attempt::new(&rewrite.pace);
        let outcome = move_of.rewrite_object(&rewrite.bucket, key, version, &attempt).await;
        match outcome {
            Ok(MoveOutcome::Moved) => {
                rewrite.progress.lock().seen += 1;
                return rewrite.note_moved(size);
            }
            Ok(MoveOutcome::InPlace) => {
                rewrite.progress.lock().seen += 1;
                return;
            }
            Ok(MoveOutcome::Overtaken) => attempt.take_back(),
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
