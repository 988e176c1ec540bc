//! Permanent removal of versions that are not locked. If the current version is removed, the latest
//! of the others becomes current.
//!
//! The ballot that removes a version checks its lock. A concurrent change of the lock is a ballot
//! on the same head, so one of the two is refused.

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::lock::{Bypass, check_removal_of};
use martlet_protocol::{Level, Stamp, Version, VersionId};

use super::behind::Behind;
use super::beside::{Below, version_of};
use super::store::VersionStore;
use crate::api::DeleteConditions;
use crate::bucket::ObjectTarget;
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::{Intent, Judge, Proposal, Round, Step, WriteError, WriteOutcome};

/// Returns true if an entry is the expected one.
pub(super) type Fits<'a> = dyn Fn(&Entry) -> bool + Send + Sync + 'a;

/// Condition on the version for its removal, evaluated in the ballot.
#[derive(Clone, Copy)]
pub(crate) enum Provided<'a> {
    /// Conditions of the request.
    Request(&'a DeleteConditions),
    /// The version must be noncurrent.
    Noncurrent(&'a Fits<'a>),
    /// The version must be noncurrent, and must not have been current since a page listed it.
    Behind(&'a Behind<'a>),
    /// The version must be the only one of its key.
    Alone(&'a Fits<'a>),
}

/// A version to remove for good.
#[derive(Clone, Copy)]
pub(crate) struct VersionRemoval {
    pub(crate) version: VersionId,
    /// Locks that may be bypassed.
    pub(crate) bypass: Bypass,
}

/// Removes one version of a key.
struct Removal<'a> {
    versions: &'a VersionStore,
    context: &'a RequestContext,
    version: VersionId,
    /// Locks that may be bypassed.
    bypass: Bypass,
    provided: Provided<'a>,
    /// Result of the search below the head.
    below: Option<Below>,
    /// True if the version was a delete marker, in the last round.
    was_marker: bool,
}

impl Removal<'_> {
    async fn remove(&mut self, round: Round<'_>) -> Result<Step> {
        let Some((held, head)) = version_of(round.view.entry.as_ref()) else {
            return self.remove_below_nothing(round).await;
        };
        let is_head = held.name() == self.version;
        let gone = if is_head {
            head.clone()
        } else {
            match self.versions.beside(self.context, round.intent.key, self.version).await? {
                // With a null head, a null version beside it is invisible; the head is the null
                // version.
                Some((_, entry)) => entry,
                None => return self.keep_absent(),
            }
        };
        if !self.may_go(round, held, &gone).await? {
            return Ok(Step::Keep);
        }
        if let Provided::Request(conditions) = self.provided {
            conditions.check(Some(&gone.value))?;
        }
        check_removal_of(&gone.value, self.versions.registers.stamps.now_ms(), self.bypass)?;
        self.was_marker = matches!(gone.value, Value::DeleteMarker(_));
        // Before the head changes: a copy of the version may exist beside it, or be under way.
        if let Some(step) = self.versions.bury(round, self.version).await? {
            return Ok(step);
        }
        if !is_head {
            let inline = round.view.inline.clone();
            return Ok(Step::Write(Proposal::again(head.value.clone(), inline)));
        }
        let next = self.versions.latest_beside(self.context, round, self.below).await?;
        let (value, inline) = next.unwrap_or((Value::Tombstone, None));
        Ok(Step::Write(Proposal { value, inline, keep_body: false }))
    }

    /// Removes a version that lies beside a head without one. Removals of releases up to 0.1 could
    /// leave such versions, and no listing shows them.
    async fn remove_below_nothing(&mut self, round: Round<'_>) -> Result<Step> {
        let key = round.intent.key;
        let Some((_, gone)) = self.versions.beside(self.context, key, self.version).await? else {
            return self.keep_absent();
        };
        match self.provided {
            Provided::Request(conditions) => conditions.check(Some(&gone.value))?,
            Provided::Noncurrent(fits) if fits(&gone) => {}
            Provided::Noncurrent(_) | Provided::Behind(_) | Provided::Alone(_) => {
                return Ok(Step::Keep);
            }
        }
        check_removal_of(&gone.value, self.versions.registers.stamps.now_ms(), self.bypass)?;
        self.was_marker = matches!(gone.value, Value::DeleteMarker(_));
        if let Some(step) = self.versions.bury(round, self.version).await? {
            return Ok(step);
        }
        Ok(Step::Write(Proposal::again(Value::Tombstone, None)))
    }

    /// Keeps everything if no version has the id. A condition that needs an object fails.
    fn keep_absent(&self) -> Result<Step> {
        if let Provided::Request(conditions) = self.provided {
            conditions.check(None)?;
        }
        Ok(Step::Keep)
    }

    async fn may_go(&self, round: Round<'_>, held: Version, entry: &Entry) -> Result<bool> {
        let is_head = held.name() == self.version;
        Ok(match self.provided {
            Provided::Request(_) => true,
            Provided::Noncurrent(fits) => !is_head && fits(entry),
            Provided::Behind(behind) => {
                !is_head && self.versions.is_behind(self.context, round, entry, behind).await?
            }
            Provided::Alone(fits) => {
                is_head
                    && fits(entry)
                    && self.versions.latest_beside(self.context, round, self.below).await?.is_none()
            }
        })
    }
}

impl Judge for Removal<'_> {
    fn judge<'a>(&'a mut self, round: Round<'a>) -> BoxFuture<'a, Result<Step>> {
        self.remove(round).boxed()
    }

    fn needs_agreement(&self) -> bool {
        true
    }

    fn found(&mut self, _own: &Entry) {}
}

impl VersionStore {
    /// Removes a version if it exists and no effective lock protects it. Returns true if it was a
    /// delete marker.
    pub(crate) async fn remove_version(
        &self,
        target: &ObjectTarget<'_>,
        intent: Intent<'_>,
        removal: VersionRemoval,
        conditions: &DeleteConditions,
    ) -> Result<(WriteOutcome, bool), WriteError> {
        let head = self.head(target, intent).await;
        if let Some(view) = head.as_ref().filter(|view| version_of(view.entry.as_ref()).is_none())
            && self.is_absent_beside(target, intent, removal.version).await
        {
            conditions.check(None).map_err(WriteError::clean)?;
            return Ok((WriteOutcome::Kept(view.clone()), false));
        }
        let provided = Provided::Request(conditions);
        let removed = self.remove_below(target, intent, removal, provided, head).await;
        removed.map_err(|it| if conditions.is_empty() { it } else { it.of_conditions() })
    }

    /// Returns true if a quorum shows that no such version lies beside a head.
    async fn is_absent_beside(
        &self,
        target: &ObjectTarget<'_>,
        intent: Intent<'_>,
        version: VersionId,
    ) -> bool {
        matches!(self.beside(target.context, intent.key, version).await, Ok(None))
    }

    /// The head before the ballot; none if a quorum can't be read.
    async fn head(&self, target: &ObjectTarget<'_>, intent: Intent<'_>) -> Option<RegisterView> {
        let read = self.registers.read(target.context, intent.key, Want::Entry, Level::Strict);
        read.await.ok()
    }

    /// Removes a version if the condition `provided` holds in the ballot; keeps it otherwise.
    pub(crate) async fn remove_version_if(
        &self,
        target: &ObjectTarget<'_>,
        intent: Intent<'_>,
        removal: VersionRemoval,
        provided: Provided<'_>,
    ) -> Result<(WriteOutcome, bool), WriteError> {
        let head = match provided {
            // A noncurrent version has nothing to put in its place.
            Provided::Noncurrent(_) | Provided::Behind(_) => None,
            Provided::Request(_) | Provided::Alone(_) => self.head(target, intent).await,
        };
        self.remove_below(target, intent, removal, provided, head).await
    }

    /// Removes a version after a search below the head that was read.
    async fn remove_below(
        &self,
        target: &ObjectTarget<'_>,
        intent: Intent<'_>,
        VersionRemoval { version, bypass }: VersionRemoval,
        provided: Provided<'_>,
        head: Option<RegisterView>,
    ) -> Result<(WriteOutcome, bool), WriteError> {
        let head = head.as_ref().and_then(|view| view.entry.as_ref());
        let below = self.look_below(target.context, intent.key, head, version).await;
        let floor = Stamp::at_ms(target.bucket.versioning().above_ms);
        let (versions, context, was_marker) = (self, target.context, false);
        let mut removal =
            Removal { versions, context, version, bypass, provided, below, was_marker };
        let landed = self.registers.ballots.decide_by(intent, floor, &mut removal).await?;
        Ok((landed, removal.was_marker))
    }
}
