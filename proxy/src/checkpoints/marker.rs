//! Writes of markers: intents before them, and what follows when a request ends early.
//!
//! ```text
//! begin ──▶ write ──▶ finish: note the generation, end the intent
//!    └────────┴──────────┴── the client leaves, or the outcome is unknown ──▶ give up
//! ```
//!
//! A client that gives up ends its request between any two steps. The process then writes into the
//! intent that nothing more is sent: it delays no generation from then on. The intent stays, since
//! what was sent may still come. What was current when the marker came is unknown by then.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::entry::Bucket;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::commit::{Committer, version_text};
use super::records::{MarkerIntent, SetRecord};
use super::rules::{CheckpointRule, CheckpointRules, Place};
use super::set_store::{SetName, random_token};
use crate::api::{ReadConditions, Selection, WrittenObject};
use crate::bucket::busy;
use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::{Error, Result};

/// Pauses before each attempt to give up an intent, in seconds.
const PAUSES_S: [u64; 6] = [0, 1, 3, 6, 12, 24];

/// A marker's write that was begun. Dropping it gives up the intent, in the background.
pub(crate) struct MarkerWrite {
    committer: Arc<Committer>,
    /// None once its outcome is known.
    marker: Option<BegunMarker>,
}

/// Facts about a marker before it is written.
pub(super) struct BegunMarker {
    pub(super) bucket: Arc<Bucket>,
    bucket_name: String,
    rules: Arc<CheckpointRules>,
    key: String,
    /// Token of its intent.
    pub(super) token: String,
}

impl BegunMarker {
    /// Set of the marker, its rule, and the marker's name in the set.
    pub(super) fn place(&self) -> Option<(SetName<'_>, &CheckpointRule, &str)> {
        let Place::Set { rule, folder, rest } = self.rules.place(&self.key) else { return None };
        Some((SetName::of(&self.bucket, &self.bucket_name, folder), rule, rest))
    }
}

impl Committer {
    /// Notes the intent to write a key, if the key is a marker; none otherwise. Must precede the
    /// write, so that a marker whose writer dies is not forgotten.
    ///
    /// # Errors
    /// The intent can't be recorded: the marker must not be written.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        bucket: &Arc<Bucket>,
        bucket_name: &str,
        key: &str,
    ) -> Result<Option<MarkerWrite>> {
        if !CheckpointRules::exist(bucket) {
            return Ok(None);
        }
        Box::pin(self.begin_marker(bucket, bucket_name, key)).await
    }

    async fn begin_marker(
        self: &Arc<Self>,
        bucket: &Arc<Bucket>,
        bucket_name: &str,
        key: &str,
    ) -> Result<Option<MarkerWrite>> {
        // Rules that this version can't read are left to processes that can.
        let Some(rules) = CheckpointRules::of(bucket).ok().flatten() else { return Ok(None) };
        let Place::Set { rule, folder, rest } = rules.place(key) else { return Ok(None) };
        if !rule.is_marker(rest) || rule.is_temporary(folder) {
            return Ok(None);
        }
        let before = self.current_version(bucket_name, key).await?;
        let (token, at_ms) = (random_token(), self.sets.now_ms());
        let intent = MarkerIntent {
            token: token.clone(),
            key: key.to_owned(),
            before,
            at_ms,
            after: 0,
            is_given_up: false,
        };
        let (bucket_id, folder) = (bucket.id, folder.to_owned());
        let (bucket, key) = (bucket.clone(), key.to_owned());
        let (bucket_name, rules) = (bucket_name.to_owned(), rules.clone());
        let marker = BegunMarker { bucket, bucket_name, rules, key, token };
        // The request may end while the intent is recorded.
        let mut begun = MarkerWrite { committer: self.clone(), marker: Some(marker) };
        let begin = |record: &mut SetRecord| {
            if record.begin(intent.clone()) { Ok(()) } else { Err(busy()) }
        };
        if let Err(error) = self.sets.change(bucket_id, &folder, begin).await {
            // After an unknown outcome the intent may be there.
            if !matches!(error, Error::Backend(_)) {
                begun.marker = None;
            }
            return Err(error);
        }
        Ok(Some(begun))
    }

    /// Current version of a key, as clients see it; none if no object is there.
    pub(super) async fn current_version(&self, bucket: &str, key: &str) -> Result<Option<String>> {
        let (context, any) = (self.sets.context(), ReadConditions::default());
        let head = self.sets.reader.head(&context, bucket, key, Selection::Whole, &any);
        match Box::pin(head).await {
            Ok(read) => Ok(Some(version_text(&read.object))),
            Err(Error::NoSuchKey | Error::DeleteMarker { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Goes on after the write of a key that was begun: makes the generation of a marker that was
    /// written, or ends the intent of one that wasn't.
    pub(crate) async fn finish(
        &self,
        begun: Option<MarkerWrite>,
        written: Result<WrittenObject>,
    ) -> Result<WrittenObject> {
        let Some(mut begun) = begun else { return written };
        let Some(marker) = &begun.marker else { return written };
        match written {
            Ok(written) => {
                let noted = self.note_once(marker, &written.object);
                let outcome = match Box::pin(noted).await {
                    Ok(outcome) => {
                        begun.marker = None;
                        outcome
                    }
                    Err(error) => {
                        let key = &marker.key;
                        tracing::debug!(key, %error, "could not commit a checkpoint yet");
                        CheckpointOutcome::Pending { generation: None, reason: error.to_string() }
                    }
                };
                Ok(WrittenObject { checkpoint: Some(outcome), ..written })
            }
            // It may have been written.
            Err(error @ Error::Backend(_)) => Err(error),
            Err(error) => {
                let ended = match marker.place() {
                    Some((set, ..)) => self.end_intent(set, marker).await,
                    None => Ok(()),
                };
                match ended {
                    Ok(()) => begun.marker = None,
                    // The intent is given up in the background.
                    Err(error) => {
                        let key = &marker.key;
                        tracing::debug!(key, %error, "could not end the intent of a marker");
                    }
                }
                Err(error)
            }
        }
    }

    /// Ends the intent of a marker whose outcome is known.
    pub(super) async fn end_intent(&self, set: SetName<'_>, marker: &BegunMarker) -> Result<()> {
        let end = |record: &mut SetRecord| {
            record.end(&marker.token);
            Ok(())
        };
        self.sets.change(set.bucket, set.set, end).await
    }

    /// Notes in the background that nothing more is sent of a marker. Beyond so many at once, and
    /// after some attempts, the intent counts as that of a process that died.
    fn give_up_soon(self: Arc<Self>, marker: BegunMarker) {
        let Ok(runtime) = Handle::try_current() else { return };
        let Ok(turn) = self.giving_up.clone().try_acquire_owned() else { return };
        runtime.spawn(async move {
            for pause_s in PAUSES_S {
                sleep(Duration::from_secs(pause_s)).await;
                match Box::pin(self.give_up(&marker)).await {
                    Ok(()) => break,
                    Err(error) => {
                        let key = &marker.key;
                        tracing::debug!(key, %error, "giving up an intent later");
                    }
                }
            }
            drop(turn);
        });
    }

    async fn give_up(&self, marker: &BegunMarker) -> Result<()> {
        let Some((set, ..)) = marker.place() else { return Ok(()) };
        let give_up = |record: &mut SetRecord| {
            record.give_up(&marker.token);
            Ok(())
        };
        self.sets.change(set.bucket, set.set, give_up).await
    }
}

impl Drop for MarkerWrite {
    fn drop(&mut self) {
        if let Some(marker) = self.marker.take() {
            self.committer.clone().give_up_soon(marker);
        }
    }
}
