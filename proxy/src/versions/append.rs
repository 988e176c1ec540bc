//! New versions, created by PUT, copy, upload or delete.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, Entry, Value};
use martlet_protocol::lock::{Bypass, check_removal_of};
use martlet_protocol::{RegisterKey, Stamp, Version, VersionId, Versioning, WriteId};

use super::beside::version_of;
use super::store::VersionStore;
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::{Intent, Judge, Proposal, Round, Step, WriteError, WriteOutcome};

/// The new current version.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    pub(crate) value: &'a Value,
    pub(crate) inline: Option<&'a Bytes>,
}

/// Returns true if the write goes ahead over the current view; an error refuses it.
pub(crate) type Check<'a> = dyn FnMut(&RegisterView) -> Result<bool> + Send + 'a;

/// Adds a new version above the existing ones.
struct Append<'a> {
    versions: &'a VersionStore,
    context: &'a RequestContext,
    new: New<'a>,
    /// True if the version has an id.
    numbered: bool,
    check: &'a mut Check<'a>,
    /// The version of the last round.
    version: Option<Version>,
}

impl Append<'_> {
    async fn append(&mut self, round: Round<'_>) -> Result<Step> {
        if !(self.check)(round.view)? {
            return Ok(Step::Keep);
        }
        let held = version_of(round.view.entry.as_ref()).map(|(version, _)| version);
        let above = held.map_or(0, |held| held.position.saturating_add(1));
        let version = Version {
            position: round.ballot.time.max(above),
            id: self.numbered.then_some(round.intent.write_id),
        };
        let replaces = held.is_none_or(|held| held.id.is_none() && version.id.is_none());
        if !replaces {
            if version.id.is_none() {
                self.versions.check_null(self.context, round).await?;
            }
            if let Some(step) = self.versions.set_aside(round).await? {
                return Ok(step);
            }
        }
        if replaces && let Some(entry) = &round.view.entry {
            // A bucket with Object Lock never replaces versions; this is a safeguard.
            check_removal_of(
                &entry.value,
                self.versions.registers.stamps.now_ms(),
                Bypass::Nothing,
            )?;
        }
        self.version = Some(version);
        let value = with_version(self.new.value.clone(), version);
        Ok(Step::Write(Proposal { value, inline: self.new.inline.cloned(), keep_body: !replaces }))
    }
}

impl Judge for Append<'_> {
    fn judge<'a>(&'a mut self, round: Round<'a>) -> BoxFuture<'a, Result<Step>> {
        self.append(round).boxed()
    }

    fn needs_agreement(&self) -> bool {
        true
    }

    fn found(&mut self, own: &Entry) {
        self.version = own.value.version();
    }
}

fn with_version(mut value: Value, version: Version) -> Value {
    match &mut value {
        Value::Object(object) => object.version = Some(version),
        Value::DeleteMarker(marker) => marker.version = Some(version),
        Value::Tombstone
        | Value::Bucket(_)
        | Value::Upload(_)
        | Value::Part(_)
        | Value::Account(_) => {}
    }
    value
}

impl VersionStore {
    /// Adds a new version in a versioned bucket, and returns it.
    pub(crate) async fn append(
        &self,
        context: &RequestContext,
        bucket: &Bucket,
        intent: Intent<'_>,
        new: New<'_>,
        check: &mut Check<'_>,
    ) -> Result<(WriteOutcome, Option<Version>), WriteError> {
        let setting = bucket.versioning();
        let numbered = setting.state == Versioning::Enabled;
        let mut append = Append { versions: self, context, new, numbered, check, version: None };
        let landed = self
            .registers
            .ballots
            .decide_by(intent, Stamp::at_ms(setting.above_ms), &mut append)
            .await?;
        if let (WriteOutcome::At(stamp), false) = (&landed, numbered) {
            self.clear_null(context, intent, *stamp).await;
        }
        Ok((landed, append.version))
    }

    /// Removes the null version beside a head after a newer null version replaced it. It is
    /// invisible; after a failure it is removed together with the head.
    async fn clear_null(&self, context: &RequestContext, intent: Intent<'_>, order: Stamp) {
        let key = RegisterKey::version(intent.key, VersionId::Null);
        let cleared = match self.beside(context, intent.key, VersionId::Null).await {
            Ok(None) => return,
            // The ballot of the head refuses such a write; this is a safeguard.
            Ok(Some((_, entry))) if self.is_kept(&entry.value) => return,
            Ok(Some(_)) => {
                let write_id = WriteId::random();
                let intent = Intent { key: &key, write_id, claim: None, ..intent };
                self.registers
                    .ballots
                    .write_once(intent, order, Proposal::of(Value::Tombstone))
                    .await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = cleared {
            tracing::debug!(?key, %error, "could not delete a replaced null version");
        }
    }

    /// Returns an error if a lock or a pin keeps the null version beside the head, which a null head replaces.
    async fn check_null(&self, context: &RequestContext, round: Round<'_>) -> Result<()> {
        let null = self.beside(context, round.intent.key, VersionId::Null).await?;
        if let Some((_, entry)) = null {
            check_removal_of(&entry.value, self.registers.stamps.now_ms(), Bypass::Nothing)?;
        }
        Ok(())
    }

    fn is_kept(&self, value: &Value) -> bool {
        check_removal_of(value, self.registers.stamps.now_ms(), Bypass::Nothing).is_err()
    }
}
