//! Who may ask: only who knows the cluster key.
//!
//! The head of a request is judged before anything else is done with it. Its body is hashed while a
//! handler reads it, and ends in an error when it is not what was signed, so a handler that reads a
//! body to its end before it acts never acts on another's words.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};

use crate::clock::Clock;
use crate::http::sign::{self, Digest, Refusal};
use crate::http::{Announcement, ClusterKey, fault};

#[derive(Clone)]
struct Guard {
    key: ClusterKey,
    clock: Arc<dyn Clock>,
    announce: Arc<dyn Fn() -> Announcement + Send + Sync>,
}

/// `router` for members of the cluster only: requests that aren't signed by `key` are refused, and
/// every reply carries the time by `clock` and what `announce` says.
///
/// Routes that are added later are not under the guard: call this last. A handler of such a route
/// reads its body to the end before it acts, as `axum`'s extractors do.
pub fn guarded(
    router: Router,
    key: ClusterKey,
    clock: Arc<dyn Clock>,
    announce: Arc<dyn Fn() -> Announcement + Send + Sync>,
) -> Router {
    let guard = Guard { key, clock, announce };
    router.layer(middleware::from_fn_with_state(guard, watch))
}

async fn watch(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let mut response = match guard.admit(request) {
        Ok(request) => next.run(request).await,
        Err(refusal) => refuse(refusal),
    };
    (guard.announce)().put_on(response.headers_mut(), guard.clock.now_ms());
    response
}

impl Guard {
    /// The request with a body that is held to its digest.
    fn admit(&self, request: Request) -> Result<Request, Refusal> {
        let (method, uri) = (request.method(), request.uri());
        let digest = sign::verify(&self.key, method, uri, request.headers(), self.clock.now_ms())?;
        match digest {
            Digest::Streamed => Ok(request),
            Digest::Empty if http_body::Body::is_end_stream(request.body()) => Ok(request),
            Digest::Empty => Err(Refusal::Unsigned),
            Digest::Blake3(expected) => Ok(request.map(|body| {
                let hasher = Box::new(blake3::Hasher::new());
                Body::new(Judged { body, hasher, expected, is_done: false })
            })),
        }
    }
}

fn refuse(refusal: Refusal) -> Response {
    let (status, sentence) = match refusal {
        Refusal::Unsigned => (StatusCode::UNAUTHORIZED, "the request is not signed"),
        Refusal::Date => (
            StatusCode::FORBIDDEN,
            "the request's date is more than 15 minutes from this node's clock",
        ),
        Refusal::Signature => (
            StatusCode::FORBIDDEN,
            "the request's signature is wrong: is the cluster key the same everywhere?",
        ),
    };
    fault::refusal(status, sentence)
}

/// The body is not what was signed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request's body is not what was signed")]
pub(super) struct Mismatch;

/// A body that is hashed on its way, and judged at its end.
struct Judged {
    body: Body,
    hasher: Box<blake3::Hasher>,
    expected: [u8; 32],
    is_done: bool,
}

impl http_body::Body for Judged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let next = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &next {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.hasher.update(data);
                }
            }
            Some(Err(_)) => {}
            // `blake3::Hash` compares in constant time.
            None if !self.is_done && self.hasher.finalize() != self.expected => {
                self.is_done = true;
                return Poll::Ready(Some(Err(axum::Error::new(Mismatch))));
            }
            None => self.is_done = true,
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        // Not before it was judged, else its reader would stop short of that.
        self.is_done
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
