//! Walk over the objects of buckets that have rules: bucket by bucket, shard by shard, a range of
//! keys in each step.
//!
//! The object layer ([`ObjectExpiry`]) decides which versions expire and removes them; this file
//! only keeps the position. One worker handles each shard: the worker whose scope has its first
//! primary. If two do, the second finds nothing left. A cursor that is lost or outdated costs a new
//! walk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::lifecycle::{Day, ExpiryCursor, ObjectExpiry, Stretch};
use martlet_protocol::{BucketId, Shard};

use crate::cursors::Cursors;
use crate::worker::StepProgress;

/// Name under which the cursor is stored.
const NAME: &str = "expire";

/// A shard of a bucket whose objects are to be visited, from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    id: BucketId,
    shard: Shard,
    bucket: String,
    after: Option<ExpiryCursor>,
}

/// State of the walk.
pub(super) struct Objects {
    expiry: Arc<dyn ObjectExpiry>,
    cursors: Arc<dyn Cursors>,
    /// Tasks of the next walk, which begins after the uploads.
    awaited: Option<VecDeque<Task>>,
    /// Tasks left in this walk.
    left: VecDeque<Task>,
    /// Start of the last walk.
    began_ms: Option<u64>,
}

impl Task {
    pub(super) fn new(name: &Bytes, id: BucketId, shard: Shard) -> Self {
        Self { id, shard, bucket: String::from_utf8_lossy(name).into_owned(), after: None }
    }

    /// Encodes the position as a line of text.
    fn cursor(&self) -> String {
        let key = self.after.as_ref().map_or("-".to_owned(), |place| hex_of(&place.key));
        format!("{} {} {key}", self.id, self.shard.0)
    }
}

impl Objects {
    pub(super) fn new(expiry: Arc<dyn ObjectExpiry>, cursors: Arc<dyn Cursors>) -> Self {
        Self { expiry, cursors, awaited: None, left: VecDeque::new(), began_ms: None }
    }

    /// Returns the object layer.
    pub(super) fn expiry(&self) -> &dyn ObjectExpiry {
        &*self.expiry
    }

    /// Returns true during a walk.
    pub(super) fn is_under_way(&self) -> bool {
        !self.left.is_empty()
    }

    /// Schedules a walk, unless the last one began less than a period ago. The first walk continues
    /// at the saved cursor.
    pub(super) fn await_turn(&mut self, mut tasks: Vec<Task>, now_ms: u64, period_ms: u64) {
        let is_due = |began_ms: u64| began_ms.saturating_add(period_ms) <= now_ms;
        if !self.began_ms.is_none_or(is_due) {
            return;
        }
        tasks.sort_by_key(|task| (task.id, task.shard));
        let is_first = self.began_ms.replace(now_ms).is_none();
        let saved = self.cursors.load(NAME).filter(|_| is_first);
        let tasks = match saved.as_deref().and_then(parse) {
            Some(saved) => from(tasks, saved),
            None => tasks,
        };
        self.awaited = Some(tasks.into());
    }

    /// Begins the scheduled walk; returns true if a walk is in progress.
    pub(super) fn begin(&mut self) -> bool {
        if let Some(tasks) = self.awaited.take() {
            self.left = tasks;
        }
        self.is_under_way()
    }

    /// Visits the next range of keys.
    pub(super) async fn step(&mut self, day: Day) -> StepProgress {
        let Some(mut task) = self.left.pop_front() else { return StepProgress::default() };
        let (bucket, shard, after) = (task.bucket.clone(), task.shard, task.after.take());
        let progress = match self.expiry.carry_out(&Stretch { bucket, shard, after, day }).await {
            Ok(carried) => {
                if carried.next.is_some() {
                    self.left.push_front(Task { after: carried.next, ..task });
                }
                let (items, done, kept) = (carried.seen, carried.done, carried.kept);
                StepProgress { items, done, kept, ..StepProgress::default() }
            }
            Err(error) => {
                let Task { bucket, shard, .. } = task;
                tracing::debug!(bucket, ?shard, %error, "leaving objects for a later pass");
                StepProgress { kept: 1, ..StepProgress::default() }
            }
        };
        let cursor = self.left.front().map_or("-".to_owned(), Task::cursor);
        self.cursors.save(NAME, &cursor);
        StepProgress { ahead: self.left.len() as u64, ..progress }
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

fn hex_of(key: &str) -> String {
    use std::fmt::Write;
    key.bytes().fold(String::with_capacity(key.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String can't fail");
        text
    })
}

/// Decodes the result of [`hex_of`].
fn text_of(hex: &str) -> Option<String> {
    let digits = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digits).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests;
