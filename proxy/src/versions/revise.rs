//! Changes of a version's metadata or body location. The version's identity stays.

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Entry, Object, Value};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::usage::Usage;
use martlet_protocol::{Level, RegisterKey, Stamp, VersionId, WriteId};

use super::beside::version_of;
use super::find::no_object;
use crate::api::{ObjectName, Written};
use crate::bucket::busy;
use crate::error::{Error, Result};
use crate::index::{Judge, Landed, Proposal, Round, Step};
use crate::put::object_of;
use crate::quota::{Asked, Charge};
use crate::store::Inner;

/// Returns the changed object, or none to keep it; receives its entry too.
pub(crate) type Change<'a> = dyn FnMut(&Entry, &Object) -> Result<Option<Object>> + Send + 'a;

/// Author of a change.
#[derive(Clone, Copy)]
enum By {
    Client,
    Operator,
}

/// Changes one version of a key, or the current one.
pub(crate) struct Revision<'a> {
    inner: &'a Inner,
    version: Option<VersionId>,
    change: &'a mut Change<'a>,
    /// True if the object keeps its extents.
    keep_body: bool,
    /// The changed object of the last round.
    pub(crate) revised: Option<Object>,
    /// True if the change may be written beside the head, whatever the ballot's result.
    pub(crate) is_beside: bool,
    /// Charge for the growth of the entry; none for operators' changes.
    charge: Option<&'a mut Charge>,
}

impl<'a> Revision<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        version: Option<VersionId>,
        change: &'a mut Change<'a>,
        keep_body: bool,
    ) -> Self {
        let (revised, is_beside, charge) = (None, false, None);
        Self { inner, version, change, keep_body, revised, is_beside, charge }
    }
}

impl Revision<'_> {
    async fn revise(&mut self, round: Round<'_>) -> Result<Step> {
        let head = round.view;
        let held = version_of(head.entry.as_ref()).map(|(version, _)| version.name());
        match self.version {
            Some(version) if held != Some(version) => {
                let key = RegisterKey::version(round.intent.key, version);
                let view = self.inner.read(&key, Want::EntryAndInline, Level::Strict).await?;
                let Some(proposal) = self.proposal(&view)? else { return Ok(Step::Keep) };
                let write_id = round.intent.write_id;
                self.is_beside = true;
                if let Some(step) = self.inner.write_beside(round, &key, write_id, proposal).await?
                {
                    return Ok(step);
                }
                // The version was never the head during the ballot.
                let value = head.entry.as_ref().map_or(Value::Tombstone, |it| it.value.clone());
                Ok(Step::Write(Proposal::again(value, head.inline.clone())))
            }
            _ => Ok(self.proposal(head)?.map_or(Step::Keep, Step::Write)),
        }
    }

    fn proposal(&mut self, view: &RegisterView) -> Result<Option<Proposal>> {
        let (Some(entry), Some(object)) = (&view.entry, object_of(view)) else {
            return Err(no_object(view.entry.as_ref(), self.version));
        };
        self.revised = (self.change)(entry, object)?;
        let Some(revised) = self.revised.clone() else { return Ok(None) };
        if let Some(charge) = &mut self.charge {
            charge.came_to(Usage::of_object("", &revised).less(Usage::of_object("", object)))?;
        }
        let value = Value::Object(Box::new(revised));
        Ok(Some(Proposal { value, inline: view.inline.clone(), keep_body: self.keep_body }))
    }
}

impl Inner {
    /// The view of a key, if neither its head nor the given version exists.
    async fn absent_version(
        &self,
        key: &RegisterKey,
        version: Option<VersionId>,
    ) -> Option<RegisterView> {
        let head = self.absence(key).await?;
        let Some(version) = version else { return Some(head) };
        self.absence(&RegisterKey::version(key, version)).await
    }

    /// Changes an object's metadata by a separate write. Its extents keep their owner, and its
    /// version stays. The growth of its entry is charged against the quotas.
    pub(crate) async fn revise_object(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
        change: &mut Change<'_>,
    ) -> Result<Written> {
        self.revise_by(bucket, name, change, By::Client).await
    }

    /// Changes an object's metadata as [`Inner::revise_object`] does, without a charge against the
    /// quotas.
    pub(crate) async fn revise_by_operator(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
        change: &mut Change<'_>,
    ) -> Result<Written> {
        self.revise_by(bucket, name, change, By::Operator).await
    }

    async fn revise_by(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
        change: &mut Change<'_>,
        by: By,
    ) -> Result<Written> {
        match self.revise_once(bucket, name, change, by).await {
            Err(Error::BucketReplaced) => self.revise_once(bucket, name, change, by).await,
            revised => revised,
        }
    }

    async fn revise_once(
        &self,
        bucket: &str,
        ObjectName { key, version }: ObjectName<'_>,
        change: &mut Change<'_>,
        by: By,
    ) -> Result<Written> {
        let mut site = self.site(bucket, key).await?;
        if let Some(view) = self.absent_version(&site.key, version).await {
            let (absent, at) = (no_object(view.entry.as_ref(), version), (bucket, &*site.bucket));
            return Err(self.check_absence(absent, at, site.began).await);
        }
        let mut charge = match by {
            By::Client => Some(Box::pin(self.charge(&site.bucket, Asked::change())).await?),
            By::Operator => None,
        };
        let write_id = WriteId::random();
        for _ in 0..2 {
            let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
            let keep_body = true;
            let mut revision = Revision::new(self, version, change, keep_body);
            revision.charge = charge.as_mut();
            let floor = Stamp::at_ms(site.bucket.versioning().above_ms);
            let intent = site.intent(write_id, commit_by_ms);
            let landed = match self.decide_by(intent, floor, &mut revision).await {
                Ok(landed) => landed,
                Err(failed) => {
                    let at = (bucket, &*site.bucket);
                    return Err(self.check_absence(failed.error, at, site.began).await);
                }
            };
            match (landed, revision.revised) {
                (Landed::At(stamp), Some(object)) => {
                    if let Some(charge) = charge {
                        charge.written(self.stamps.now_ms());
                    }
                    return Ok(Written { object, stamp, source_version: None });
                }
                _ => site.bucket = self.refreshed(bucket, &site.bucket).await?,
            }
        }
        Err(busy())
    }
}

impl Judge for Revision<'_> {
    fn judge<'a>(&'a mut self, round: Round<'a>) -> BoxFuture<'a, Result<Step>> {
        self.revise(round).boxed()
    }

    fn needs_agreement(&self) -> bool {
        true
    }

    fn found(&mut self, _own: &Entry) {}
}
