//! Who says, in the middle of a ballot, what to do about what was found.

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_protocol::Stamp;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::Entry;

use super::place::Place;
use super::{Intent, Step};
use crate::error::Result;

/// A ballot after its promise: from now on nobody who promised takes anything below it.
#[derive(Clone, Copy)]
pub(crate) struct Round<'a> {
    pub(crate) intent: Intent<'a>,
    pub(crate) place: &'a Place,
    pub(crate) ballot: Stamp,
    /// What the register holds.
    pub(crate) view: &'a RegisterView,
}

/// Says what to do about what a ballot found. Asked again in each round.
pub(crate) trait Judge: Send {
    /// What to do. An error ends the ballot; nothing was written to the register.
    fn judge<'a>(&'a mut self, round: Round<'a>) -> BoxFuture<'a, Result<Step>>;

    /// Whether it judges only what a quorum agrees on: what it finds is to be kept elsewhere, and may
    /// not turn out never to have been there.
    fn needs_agreement(&self) -> bool;

    /// What it proposed in a round before is there.
    fn found(&mut self, own: &Entry);
}

/// One who needs no more than the view.
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
