//! Admission of one request: its turn, which may have to be waited for.

use http::Extensions;
use martlet_protocol::http::AuthenticatedFlag;
use tokio::time::Instant;

use super::config::HttpConfig;
use super::pipeline_state::PipelineError;
use crate::access::Identity;
use crate::limits::concurrency::{ConcurrencyLimiter, Place, RequestPermit, Turn, WaitRequest};
use crate::limits::{LimitReason, RequestKind};

/// Place of a request among all that are in progress or wait.
pub(super) struct Admission {
    turns: ConcurrencyLimiter,
    /// None while the request waits, and after a refusal.
    place: Option<Place>,
    permit: Option<RequestPermit>,
    proven: Option<AuthenticatedFlag>,
    /// End of the time for which the request may wait.
    deadline: Instant,
}

impl Admission {
    /// Takes a turn, or a seat, for a request that arrived with these extensions. None if too many
    /// requests wait.
    pub(super) fn enter(
        turns: &ConcurrencyLimiter,
        config: &HttpConfig,
        extensions: &Extensions,
    ) -> Option<Self> {
        let place = Some(turns.enter()?);
        let proven = extensions.get().cloned();
        let deadline = Instant::now() + config.wait_max;
        Some(Self { turns: turns.clone(), place, permit: None, proven, deadline })
    }

    /// Counts the request for its principal, in place of the principal before. Waits for a turn if
    /// there is none, or if other accounts need theirs.
    ///
    /// # Errors
    /// [`PipelineError::Limited`] after the deadline, without a seat, or beyond the rate.
    pub(super) async fn admit(
        &mut self,
        who: &Identity,
        kind: RequestKind,
    ) -> Result<(), PipelineError> {
        // The turn for an unknown principal, if any, is counted anew.
        self.permit = None;
        let meters = who.who().map(|who| &who.meters);
        if let Some(Place::Turn(_)) = &self.place {
            self.permit = self.turns.count(meters);
        }
        if self.permit.is_none() {
            let (place, permit) = self.wait(who, kind).await?;
            (self.place, self.permit) = (Some(Place::Turn(place)), Some(permit));
        }
        if let Some(permit) = &self.permit
            && let Err(wait) = permit.meters().admit()
        {
            self.permit = None;
            return Err(PipelineError::Limited(LimitReason::Rate, Some(wait)));
        }
        if let (Some(proven), Identity::Known(_)) = (&self.proven, who) {
            proven.set();
        }
        Ok(())
    }

    /// Waits in the queue. A turn that the account may not have is given back first.
    async fn wait(
        &mut self,
        who: &Identity,
        kind: RequestKind,
    ) -> Result<(Turn, RequestPermit), PipelineError> {
        let (seat, reason) = match self.place.take() {
            Some(Place::Seat(seat)) => (Some(seat), LimitReason::Overload),
            Some(Place::Turn(_)) | None => (self.turns.seat(), LimitReason::Share),
        };
        let refusal = PipelineError::Limited(reason, None);
        let Some(seat) = seat else { return Err(refusal) };
        let whose = who.who().map(|who| &who.meters);
        let connection = self.proven.as_ref().map_or(0, AuthenticatedFlag::connection);
        let request = WaitRequest { whose, kind, connection, deadline: self.deadline };
        self.turns.wait(seat, request).await.ok_or(refusal)
    }

    /// Permit of the principal, if the request was admitted.
    pub(super) fn permit(&self) -> Option<&RequestPermit> {
        self.permit.as_ref()
    }

    /// Permit and turn, which the reply holds until it is sent.
    pub(super) fn into_parts(self) -> (Option<RequestPermit>, Option<Turn>) {
        match self.place {
            Some(Place::Turn(turn)) => (self.permit, Some(turn)),
            Some(Place::Seat(_)) | None => (self.permit, None),
        }
    }
}
