//! Admission of one request: its turn, which may have to be waited for.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use http::{Extensions, HeaderMap, HeaderValue, Method, Uri, header};
use martlet_protocol::http::{AuthenticatedFlag, Peer};
use tokio::time::Instant;

use super::config::HttpConfig;
use super::pipeline_state::PipelineError;
use crate::access::Identity;
use crate::limits::concurrency::{ConcurrencyLimiter, Place, RequestPermit, Turn, WaitRequest};
use crate::limits::{LimitReason, RequestKind};

/// Random keys, so that no client chooses requests that look alike.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Name of a request among those of its signer.
#[derive(Clone, Copy)]
pub(super) struct RequestName<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
}

impl RequestName<'_> {
    /// Client and object. The host may name the bucket; HTTP/2 has it in the URI.
    fn object(self, peer: Option<IpAddr>) -> impl Hash {
        let host = self.headers.get(header::HOST).map(HeaderValue::as_bytes);
        (peer, self.uri.host(), host, self.uri.path())
    }

    /// Number of the flow of all requests of a client for one object.
    fn flow(self, peer: Option<IpAddr>) -> u64 {
        NAMES.hash_one(self.object(peer))
    }

    /// Number of the request, which its repetitions share.
    fn id(self, peer: Option<IpAddr>) -> u64 {
        let range = self.headers.get(header::RANGE).map(HeaderValue::as_bytes);
        NAMES.hash_one((self.object(peer), self.method, self.uri.query(), range))
    }
}

/// Place of a request among all that are in progress or wait.
pub(super) struct Admission {
    turns: ConcurrencyLimiter,
    /// None while the request waits, and after a refusal.
    place: Option<Place>,
    permit: Option<RequestPermit>,
    proven: Option<AuthenticatedFlag>,
    /// Address of the client.
    peer: Option<IpAddr>,
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
        let peer = extensions.get().map(|Peer(address)| *address);
        let deadline = Instant::now() + config.wait_max;
        Some(Self { turns: turns.clone(), place, permit: None, proven, peer, deadline })
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
        name: RequestName<'_>,
    ) -> Result<(), PipelineError> {
        // The turn for an unknown principal, if any, is counted anew.
        self.permit = None;
        let meters = who.who().map(|who| &who.meters);
        if let Some(Place::Turn(_)) = &self.place {
            self.permit = self.turns.count(meters);
        }
        if self.permit.is_none() {
            let (place, permit) = self.wait(who, kind, name).await?;
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
        name: RequestName<'_>,
    ) -> Result<(Turn, RequestPermit), PipelineError> {
        let (seat, reason) = match self.place.take() {
            Some(Place::Seat(seat)) => (Some(seat), LimitReason::Overload),
            Some(Place::Turn(_)) | None => (self.turns.seat(), LimitReason::Share),
        };
        let refusal = PipelineError::Limited(reason, None);
        let Some(seat) = seat else { return Err(refusal) };
        let whose = who.who().map(|who| &who.meters);
        let (flow, id) = (name.flow(self.peer), name.id(self.peer));
        let request = WaitRequest { whose, kind, flow, id, deadline: self.deadline };
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
