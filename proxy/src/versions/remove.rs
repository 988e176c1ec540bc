//! A version goes for good, unless it is locked. Where it was the current one, the latest of the others
//! is from then on.
//!
//! Its lock is judged by the ballot that removes it: whoever changes the lock meanwhile does so by a
//! ballot on the same head, and one of the two is refused.

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::lock::{Bypass, check_removal_of};
use martlet_protocol::{Stamp, Version, VersionId};

use super::beside::version_of;
use crate::api::DeleteConditions;
use crate::error::Result;
use crate::index::{Failed, Intent, Judge, Landed, Proposal, Round, Step};
use crate::put::Site;
use crate::store::Inner;

/// Whether an entry is what it was taken for.
pub(super) type Fits<'a> = dyn Fn(&Entry) -> bool + Send + Sync + 'a;

/// What must hold of a version, as the ballot finds it, for it to go.
#[derive(Clone, Copy)]
pub(crate) enum Provided<'a> {
    /// What the request says that asks for its removal.
    Asked(&'a DeleteConditions),
    /// Another one has taken its place.
    Noncurrent(&'a Fits<'a>),
    /// There is no other one of its key.
    Alone(&'a Fits<'a>),
}

/// Removes one version of a key.
struct Removal<'a> {
    inner: &'a Inner,
    version: VersionId,
    /// Which locks it passes over.
    bypass: Bypass,
    provided: Provided<'a>,
    /// Whether it was a delete marker, by the last round.
    was_marker: bool,
}

impl Removal<'_> {
    async fn remove(&mut self, round: Round<'_>) -> Result<Step> {
        let Some((held, head)) = version_of(round.view.entry.as_ref()) else {
            return Ok(Step::Keep);
        };
        let is_head = held.name() == self.version;
        let gone = if is_head {
            head.clone()
        } else {
            match self.inner.beside(round.intent.key, self.version).await? {
                // Beside a head that has no id is none that anyone sees, and that is the head.
                Some((_, entry)) => entry,
                None => return Ok(Step::Keep),
            }
        };
        if !self.may_go(round, held, &gone).await? {
            return Ok(Step::Keep);
        }
        if let Provided::Asked(conditions) = self.provided {
            conditions.check(Some(&gone.value))?;
        }
        check_removal_of(&gone.value, self.inner.stamps.now_ms(), self.bypass)?;
        self.was_marker = matches!(gone.value, Value::DeleteMarker(_));
        // Before the head lets go of it: a copy of it may be there, or be on its way.
        if let Some(step) = self.inner.bury(round, self.version).await? {
            return Ok(step);
        }
        if !is_head {
            let inline = round.view.inline.clone();
            return Ok(Step::Write(Proposal::again(head.value.clone(), inline)));
        }
        let next = self.inner.latest_beside(round.intent.key, held).await?;
        let (value, inline) = next.unwrap_or((Value::Tombstone, None));
        Ok(Step::Write(Proposal { value, inline, keep_body: false }))
    }

    async fn may_go(&self, round: Round<'_>, held: Version, entry: &Entry) -> Result<bool> {
        let is_head = held.name() == self.version;
        Ok(match self.provided {
            Provided::Asked(_) => true,
            Provided::Noncurrent(fits) => !is_head && fits(entry),
            Provided::Alone(fits) => {
                is_head
                    && fits(entry)
                    && self.inner.latest_beside(round.intent.key, held).await?.is_none()
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

impl Inner {
    /// Removes a version, if it is there and no lock that counts keeps it; whether it was a delete
    /// marker.
    pub(crate) async fn remove_version(
        &self,
        site: &Site<'_>,
        intent: Intent<'_>,
        (version, bypass): (VersionId, Bypass),
        conditions: &DeleteConditions,
    ) -> Result<(Landed, bool), Failed> {
        // A key without a head has no versions.
        if let Some(view) = self.absence(intent.key).await {
            return Ok((Landed::Kept(view), false));
        }
        let provided = Provided::Asked(conditions);
        let removed = self.remove_version_if(site, intent, (version, bypass), provided).await;
        removed.map_err(|it| if conditions.is_empty() { it } else { it.of_conditions() })
    }

    /// The same, if the ballot finds it to be what it must be. If not, it is kept.
    pub(crate) async fn remove_version_if(
        &self,
        site: &Site<'_>,
        intent: Intent<'_>,
        (version, bypass): (VersionId, Bypass),
        provided: Provided<'_>,
    ) -> Result<(Landed, bool), Failed> {
        let floor = Stamp::at_ms(site.bucket.versioning().above_ms);
        let mut removal = Removal { inner: self, version, bypass, provided, was_marker: false };
        let landed = self.decide_by(intent, floor, &mut removal).await?;
        Ok((landed, removal.was_marker))
    }
}
