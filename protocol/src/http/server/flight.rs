//! Limits on concurrent requests. A request holds its permit until the last byte of the reply was
//! sent; without a free permit it is refused with 503.
//!
//! Streams of extents last as long as their clients need, while calls end within their timeouts. So
//! each kind has its own permits: slow streams take none from calls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};
use crate::http::fault;

const TOO_MANY: &str = "too many concurrent requests";

/// Permits for requests of one kind. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Flight(Arc<Semaphore>);

impl Flight {
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes a permit for a call of a channel.
    pub(super) fn permit(&self) -> Result<OwnedSemaphorePermit> {
        let refused = |_| Error::unavailable(TOO_MANY).without_effect("no free permit");
        self.0.clone().try_acquire_owned().map_err(refused)
    }
}

/// Passes a request if a permit is free, else refuses it with 503.
pub(super) async fn limit(State(flight): State<Flight>, request: Request, next: Next) -> Response {
    match flight.0.try_acquire_owned() {
        Ok(place) => {
            next.run(request).await.map(|body| Body::new(PermitBody { body, _place: place }))
        }
        Err(_) => fault::refusal(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY),
    }
}

/// A body that holds its permit until it is dropped.
struct PermitBody {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for PermitBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
