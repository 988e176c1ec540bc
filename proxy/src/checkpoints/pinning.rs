//! Pinning of a generation's versions, and its commit once all are pinned.
//!
//! Invariant: no pin is set longer than [`PinTask::until_ms`] after the generation was found to be in
//! the state `Pinning`, plus the age at which ballots are refused. A removal waits for longer.

use std::time::Duration;

use futures::future::try_join_all;
use martlet_protocol::entry::{Entry, Object};
use tokio::time::Instant;

use super::commit::{Committer, is_noted, reported};
use super::manifest::{Manifest, ManifestEntry};
use super::pins::{Pin, SetId, pin};
use super::records::{Generation, GenerationState, SetRecord, Withdrawal, WithdrawalCause};
use super::set_store::SetName;
use crate::api::ObjectName;
use crate::bucket::busy;
use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::{Error, Result};

/// Concurrent pins of one commit.
const PINS_AT_ONCE: usize = 32;

/// Pins of one generation, and the time in which they may be set.
struct PinTask<'a> {
    set: SetName<'a>,
    held: Pin,
    until: Instant,
    /// The same time by the cluster's clock, by which ballots are judged.
    until_ms: u64,
}

impl Committer {
    /// Pins all versions of a generation, and commits it. Repeating it is harmless, and goes on where
    /// an earlier attempt stopped.
    pub(super) async fn pin_all(
        &self,
        set: SetName<'_>,
        generation: &Generation,
        time: Duration,
    ) -> Result<CheckpointOutcome> {
        let number = generation.number;
        let token = generation.manifest.as_deref().ok_or_else(busy)?;
        let held = Pin { set: SetId::of(set.set), generation: number };
        let until_ms = self.sets.now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let task = PinTask { set, held, until: Instant::now() + time, until_ms };
        // A pin must not follow a removal: the state is that of this moment.
        let record = self.sets.record(set.bucket, set.set).await?;
        let pinned = match record.as_ref().and_then(|(record, _)| record.find(number)) {
            Some(now)
                if now.state == GenerationState::Pinning && now.manifest == generation.manifest =>
            {
                now.pinned
            }
            Some(now) => return Ok(reported(now)),
            None => return Ok(CheckpointOutcome::Refused { reason: "it was withdrawn".into() }),
        };
        let manifest = self.sets.manifest(set, token).await?;
        let first = usize::try_from(pinned).unwrap_or(usize::MAX).min(manifest.entries.len());
        for (done, entries) in manifest.entries[first..].chunks(PINS_AT_ONCE).enumerate() {
            let pins = entries.iter().map(|entry| self.pin_one(&task, &manifest, entry));
            let Err(error) = try_join_all(pins).await else { continue };
            let reason = match error {
                Error::NoSuchVersion => "an object that was noted is gone".to_owned(),
                Error::InvalidRequest(reason) => reason,
                error => {
                    let pinned = first + done * PINS_AT_ONCE;
                    if let Err(error) = self.note_pinned(set, generation, pinned).await {
                        tracing::debug!(set = set.set, %error, "the next attempt starts over");
                    }
                    return Err(error);
                }
            };
            let why = Withdrawal {
                cause: WithdrawalCause::Other,
                reason: &reason,
                deletes_objects: false,
                waits_for_holds: false,
            };
            self.withdraw(set, number, why).await?;
            return Ok(CheckpointOutcome::Refused { reason });
        }
        let now_ms = self.sets.now_ms();
        let commit = |record: &mut SetRecord| {
            record.commit(number, token, now_ms);
            Ok(record.find(number).cloned())
        };
        match self.sets.change(set.bucket, set.set, commit).await? {
            Some(generation) => Ok(reported(&generation)),
            None => Ok(CheckpointOutcome::Refused { reason: "it was withdrawn".into() }),
        }
    }

    /// Notes how many of a generation's first objects are pinned, for the next attempt.
    async fn note_pinned(
        &self,
        set: SetName<'_>,
        generation: &Generation,
        pinned: usize,
    ) -> Result<()> {
        let (number, token) = (generation.number, generation.manifest.as_deref());
        let note = |record: &mut SetRecord| {
            record.note_pinned(number, token, pinned as u64);
            Ok(())
        };
        self.sets.change(set.bucket, set.set, note).await
    }

    async fn pin_one(
        &self,
        task: &PinTask<'_>,
        manifest: &Manifest,
        entry: &ManifestEntry,
    ) -> Result<()> {
        let late = || {
            let message = "pinning takes longer than a request may";
            Error::from(martlet_protocol::Error::unavailable(message))
        };
        if Instant::now() > task.until {
            return Err(late());
        }
        let (context, key) = (self.sets.context(), manifest.key_of(entry));
        let mut change = |_: &Entry, object: &Object| {
            // The ballot began before: a process that stood still sets no pin after a removal.
            if self.sets.now_ms() > task.until_ms {
                return Err(late());
            }
            let mut object = object.clone();
            pin(&mut object.attributes.marks, task.held)?;
            Ok(Some(object))
        };
        let name = ObjectName { key: &key, version: Some(entry.version.name()) };
        let bucket = task.set.bucket_name;
        let pinning = self.reviser.revise_by_operator(&context, bucket, name, &mut change);
        match Box::pin(pinning).await {
            Ok(written) if is_noted(entry, &written.object) => Ok(()),
            // A null version was replaced: it is not the one that was noted.
            Ok(_) | Err(Error::NoSuchKey | Error::DeleteMarker { .. }) => Err(Error::NoSuchVersion),
            Err(error) => Err(error),
        }
    }
}
