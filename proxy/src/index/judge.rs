//! Decisions about the view that a ballot found.

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_protocol::Stamp;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::Entry;

use super::intent::{Intent, Step};
use super::replica_set::ReplicaSet;
use crate::error::Result;

/// A ballot after its promise: no device that promised accepts anything below it.
#[derive(Clone, Copy)]
pub(crate) struct Round<'a> {
    pub(crate) intent: Intent<'a>,
    pub(crate) replica_set: &'a ReplicaSet,
    pub(crate) ballot: Stamp,
    /// View of the register.
    pub(crate) view: &'a RegisterView,
}

/// Decides what to do about the view of a ballot; called again in each round.
pub(crate) trait Judge: Send {
    /// The decision. An error ends the ballot before any write to the register.
    fn judge<'a>(&'a mut self, round: Round<'a>) -> BoxFuture<'a, Result<Step>>;

    /// Returns true if it needs a view that a quorum agrees on. A judge that copies the view
    /// elsewhere does, since a minority's view may vanish.
    fn needs_agreement(&self) -> bool;

    /// Called if an earlier round's proposal was found.
    fn found(&mut self, own: &Entry);
}

/// A judge that needs only the view.
pub(super) struct ByView<'f>(pub(super) &'f mut (dyn FnMut(&RegisterView) -> Result<Step> + Send));

impl Judge for ByView<'_> {
    fn judge<'a>(&'a mut self, round: Round<'a>) -> BoxFuture<'a, Result<Step>> {
        std::future::ready((self.0)(round.view)).boxed()
    }

    fn needs_agreement(&self) -> bool {
        false
    }

    fn found(&mut self, _own: &Entry) {}
}
