//! Changes of a version's metadata or body location. The version's identity stays.

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Entry, Object, Value};
use martlet_protocol::usage::Usage;
use martlet_protocol::{Level, RegisterKey, VersionId};

use super::beside::version_of;
use super::find::no_object;
use super::store::VersionStore;
use crate::bucket::object_of;
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::{Judge, Proposal, Round, Step};
use crate::quota::Charge;

/// Returns the changed object, or none to keep it; receives its entry too.
pub(crate) type Change<'a> = dyn FnMut(&Entry, &Object) -> Result<Option<Object>> + Send + 'a;

/// Changes one version of a key, or the current one.
pub(crate) struct Revision<'a> {
    versions: &'a VersionStore,
    context: &'a RequestContext,
    version: Option<VersionId>,
    change: &'a mut Change<'a>,
    /// True if the object keeps its extents.
    keep_body: bool,
    /// The changed object of the last round.
    pub(crate) revised: Option<Object>,
    /// True if the change may be written beside the head, whatever the ballot's result.
    pub(crate) is_beside: bool,
    /// Charge for the growth of the entry; none for operators' changes.
    pub(super) charge: Option<&'a mut Charge>,
}

impl<'a> Revision<'a> {
    pub(crate) fn new(
        versions: &'a VersionStore,
        context: &'a RequestContext,
        version: Option<VersionId>,
        change: &'a mut Change<'a>,
        keep_body: bool,
    ) -> Self {
        let (revised, is_beside, charge) = (None, false, None);
        Self { versions, context, version, change, keep_body, revised, is_beside, charge }
    }
}

impl Revision<'_> {
    async fn revise(&mut self, round: Round<'_>) -> Result<Step> {
        let head = round.view;
        let held = version_of(head.entry.as_ref()).map(|(version, _)| version.name());
        match self.version {
            Some(version) if held != Some(version) => {
                let key = RegisterKey::version(round.intent.key, version);
                let view = self
                    .versions
                    .registers
                    .read(self.context, &key, Want::EntryAndInline, Level::Strict)
                    .await?;
                let Some(proposal) = self.proposal(&view)? else { return Ok(Step::Keep) };
                let write_id = round.intent.write_id;
                self.is_beside = true;
                // The version names the new extents from here on, whatever becomes of the ballot.
                round.intent.claim();
                if let Some(step) = self
                    .versions
                    .registers
                    .ballots
                    .write_beside(round, &key, write_id, proposal)
                    .await?
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

impl VersionStore {
    /// The view of a key, if neither its head nor the given version exists.
    pub(super) async fn absent_version(
        &self,
        context: &RequestContext,
        key: &RegisterKey,
        version: Option<VersionId>,
    ) -> Option<RegisterView> {
        let head = self.registers.absence(context, key).await?;
        let Some(version) = version else { return Some(head) };
        self.registers.absence(context, &RegisterKey::version(key, version)).await
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
