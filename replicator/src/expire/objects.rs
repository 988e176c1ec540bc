//! Walk over the objects of buckets that have rules: bucket by bucket, shard by shard, a range of
//! keys in each step.
//!
//! The object layer ([`ObjectExpiry`]) decides which versions expire and removes them; this file
//! only keeps the position. One worker handles each shard: the worker whose scope has its first
//! primary. If two do, the second finds nothing left. A cursor that is lost or outdated costs a new
//! walk.
//!
//! A shard that fails, as a device is silent, keeps its place and is visited again at the end of the walk, twice at most. A
//! restart forgets that.
//!
//! The start of a walk is stored too, so a restart begins none before its time. Steps are spread
//! over half of a period, as far as the number of steps in the shards visited so far tells.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::lifecycle::{Day, ExpiryCursor, ObjectExpiry, Stretch};
use martlet_protocol::{BucketId, Shard};

use crate::cursors::{Cursors, bytes_of, hex_of};
use crate::worker::StepProgress;

/// Names under which the cursor and the start of the walk are stored.
const NAME: &str = "expire";
const BEGAN: &str = "expire-began";
/// Maximum pause between two steps.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Number of further visits of a shard that failed, at the end of the walk.
const RETRIES_MAX: u8 = 2;

/// A shard of a bucket whose objects are to be visited, from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    id: BucketId,
    shard: Shard,
    bucket: String,
    after: Option<ExpiryCursor>,
    /// Number of visits that failed in this walk.
    retries: u8,
}

/// State of the walk.
pub(super) struct Objects {
    expiry: Arc<dyn ObjectExpiry>,
    cursors: Arc<dyn Cursors>,
    /// Tasks of the next walk, which begins after the uploads.
    awaited: Option<VecDeque<Task>>,
    /// Tasks left in this walk.
    left: VecDeque<Task>,
    /// Tasks that failed, and are visited again at the end of this walk: a node may have been away for a short time.
    failed: VecDeque<Task>,
    /// Start of the last walk.
    began_ms: Option<u64>,
    /// True once a walk was scheduled by this process.
    has_begun: bool,
    /// Steps and completed tasks of this walk.
    steps: u64,
    completed: u64,
}

impl Task {
    pub(super) fn new(name: &Bytes, id: BucketId, shard: Shard) -> Self {
        let bucket = String::from_utf8_lossy(name).into_owned();
        Self { id, shard, bucket, after: None, retries: 0 }
    }

    /// Encodes the position as a line of text.
    fn cursor(&self) -> String {
        let key = self.after.as_ref().map_or("-".to_owned(), |place| hex_of(place.key.as_bytes()));
        format!("{} {} {key}", self.id, self.shard.0)
    }
}

impl Objects {
    pub(super) fn new(expiry: Arc<dyn ObjectExpiry>, cursors: Arc<dyn Cursors>) -> Self {
        let began_ms = cursors.load(BEGAN).and_then(|text| text.parse().ok());
        let (awaited, left, failed) = (None, VecDeque::new(), VecDeque::new());
        let (has_begun, steps, completed) = (false, 0, 0);
        Self { expiry, cursors, awaited, left, failed, began_ms, has_begun, steps, completed }
    }

    /// Pause until the next step, if half of `period_ms` is enough for the rest of the walk at it.
    pub(super) fn pause(&self, now_ms: u64, period_ms: u64) -> Duration {
        let Some(began_ms) = self.began_ms.filter(|_| self.is_under_way()) else {
            return Duration::ZERO;
        };
        let ends_ms = began_ms.saturating_add(period_ms / 2);
        let a_task = self.steps.div_ceil(self.completed.max(1)).max(1);
        let steps = a_task.saturating_mul(self.left.len() as u64).max(1);
        Duration::from_millis(ends_ms.saturating_sub(now_ms) / steps).min(PAUSE_MAX)
    }

    /// Returns the object layer.
    pub(super) fn expiry(&self) -> &dyn ObjectExpiry {
        &*self.expiry
    }

    /// Returns true during a walk.
    pub(super) fn is_under_way(&self) -> bool {
        !(self.left.is_empty() && self.failed.is_empty())
    }

    /// Schedules a walk, unless the last one began less than a period ago. A new process first
    /// continues at the saved cursor, whenever that walk began.
    pub(super) fn await_turn(&mut self, mut tasks: Vec<Task>, now_ms: u64, period_ms: u64) {
        tasks.sort_by_key(|task| (task.id, task.shard));
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let saved = self.cursors.load(NAME).filter(|_| is_first);
        if let Some(saved) = saved.as_deref().and_then(parse) {
            self.awaited = Some(from(tasks, saved).into());
            self.began_ms.get_or_insert(now_ms);
            return;
        }
        // A time ahead of the clock counts as none.
        let is_due =
            |began_ms: u64| began_ms.saturating_add(period_ms) <= now_ms || began_ms > now_ms;
        if self.began_ms.is_none_or(is_due) {
            self.began_ms = Some(now_ms);
            self.cursors.save(BEGAN, &now_ms.to_string());
            self.awaited = Some(tasks.into());
        }
    }

    /// Begins the scheduled walk; returns true if a walk is in progress.
    pub(super) fn begin(&mut self) -> bool {
        if let Some(tasks) = self.awaited.take() {
            self.left = tasks;
            self.failed.clear();
            (self.steps, self.completed) = (0, 0);
        }
        self.is_under_way()
    }

    /// Visits the next range of keys.
    pub(super) async fn step(&mut self, day: Day) -> StepProgress {
        if self.left.is_empty() {
            self.left = std::mem::take(&mut self.failed);
        }
        let left_before = self.left.len();
        let Some(task) = self.left.pop_front() else { return StepProgress::default() };
        let (bucket, shard, after) = (task.bucket.clone(), task.shard, task.after.clone());
        let progress = match self.expiry.carry_out(&Stretch { bucket, shard, after, day }).await {
            Ok(carried) => {
                if carried.next.is_some() {
                    self.left.push_front(Task { after: carried.next, ..task });
                }
                let (items, done, kept) = (carried.seen, carried.done, carried.kept);
                StepProgress { items, done, kept, ..StepProgress::default() }
            }
            Err(error) => {
                let Task { bucket, shard, .. } = &task;
                tracing::debug!(bucket, ?shard, %error, "leaving objects for later");
                if task.retries < RETRIES_MAX {
                    self.failed.push_back(Task { retries: task.retries + 1, ..task });
                }
                StepProgress { kept: 1, ..StepProgress::default() }
            }
        };
        self.steps += 1;
        self.completed += left_before.saturating_sub(self.left.len()) as u64;
        let next = self.left.front().filter(|task| task.retries == 0);
        let cursor = next.map_or("-".to_owned(), Task::cursor);
        self.cursors.save(NAME, &cursor);
        StepProgress { ahead: (self.left.len() + self.failed.len()) as u64, ..progress }
    }
}

/// A saved position: a bucket, a shard, and the last key of the shard.
#[derive(Debug, PartialEq, Eq)]
struct SavedPosition {
    id: BucketId,
    shard: Shard,
    key: Option<String>,
}

/// Returns the tasks from a saved position on. A position within a key's versions is not saved: the
/// rest of the key waits for the next walk.
fn from(tasks: Vec<Task>, saved: SavedPosition) -> Vec<Task> {
    let SavedPosition { id, shard, key } = saved;
    let mut rest: Vec<Task> =
        tasks.into_iter().filter(|task| (task.id, task.shard) >= (id, shard)).collect();
    if let (Some(first), Some(key)) = (rest.first_mut(), key)
        && (first.id, first.shard) == (id, shard)
    {
        first.after = Some(ExpiryCursor { key, within: None });
    }
    rest
}

fn parse(cursor: &str) -> Option<SavedPosition> {
    let mut words = cursor.split(' ');
    let (id, shard) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let key = match words.next()? {
        "-" => None,
        key => Some(text_of(key)?),
    };
    Some(SavedPosition { id, shard: Shard(shard), key })
}

fn text_of(hex: &str) -> Option<String> {
    String::from_utf8(bytes_of(hex)?).ok()
}

#[cfg(test)]
mod tests;
