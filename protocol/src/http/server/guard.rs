//! Authentication: only requests signed with the cluster key pass, from callers that speak a version
//! of the internal protocol that this node speaks.
//!
//! The head of a request is verified first. Its body is hashed while a handler reads it, and ends
//! in an error if it differs from the signed digest. So a handler that reads the whole body before
//! it acts only acts on signed requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};

use crate::clock::Clock;
use crate::error::{Error, Result as CallResult};
use crate::http::channel;
use crate::http::sign::{self, Digest, RefusalReason};
use crate::http::{Announcement, ClusterKey, fault};

/// Key, clock and announcement of a node.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) key: ClusterKey,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) announce: Arc<dyn Fn() -> Announcement + Send + Sync>,
}

/// Restricts `router` to members of the cluster: requests that aren't signed with `key` are
/// refused, and every reply carries the time of `clock` and the headers of `announce`. So are
/// requests of releases that share no version with the announced release.
///
/// The request for a channel receives the key, and its channel the same clock and announcement.
///
/// Routes added later are not guarded: call this last. A handler behind the guard must read its
/// body to the end before it acts, as `axum`'s extractors do.
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
        Ok(request) => match guard.common_wire(request.headers()) {
            Ok(_) => next.run(request).await,
            Err(error) => fault::refusal(StatusCode::UPGRADE_REQUIRED, &error.to_string()),
        },
        Err(refusal) => refuse(refusal),
    };
    (guard.announce)().put_on(response.headers_mut(), guard.clock.now_ms());
    response
}

impl Guard {
    /// Returns the version of the internal protocol that this node and a caller speak.
    pub(super) fn common_wire(&self, headers: &HeaderMap) -> CallResult<u16> {
        let announcement = (self.announce)();
        let common = announcement.release().common_wire(&"this node", &"the caller", headers);
        common.map_err(|sentence| Error::unavailable(sentence).without_effect("no common version"))
    }

    /// Verifies the head, and wraps the body so that its digest is checked.
    fn admit(&self, mut request: Request) -> Result<Request, RefusalReason> {
        let (method, uri) = (request.method(), request.uri());
        let digest = sign::verify(&self.key, method, uri, request.headers(), self.clock.now_ms())?;
        if request.uri().path() == channel::PATH {
            request.extensions_mut().insert(self.clone());
        }
        match digest {
            Digest::Streamed => Ok(request),
            Digest::Empty if http_body::Body::is_end_stream(request.body()) => Ok(request),
            Digest::Empty => Err(RefusalReason::Unsigned),
            Digest::Blake3(expected) => Ok(request.map(|body| {
                let hasher = Box::new(blake3::Hasher::new());
                Body::new(VerifiedBody { body, hasher, expected, is_done: false })
            })),
        }
    }
}

fn refuse(refusal: RefusalReason) -> Response {
    let (status, sentence) = match refusal {
        RefusalReason::Unsigned => (StatusCode::UNAUTHORIZED, "the request is not signed"),
        RefusalReason::Date => (
            StatusCode::FORBIDDEN,
            "the request's date is more than 15 minutes from this node's clock",
        ),
        RefusalReason::Signature => (
            StatusCode::FORBIDDEN,
            "the request's signature is wrong: use the same cluster key on all members",
        ),
    };
    fault::refusal(status, sentence)
}

/// The body differs from the signed digest.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request's body differs from the signed one")]
pub(super) struct Mismatch;

/// A body that is hashed while read, and compared with its digest at the end.
struct VerifiedBody {
    body: Body,
    hasher: Box<blake3::Hasher>,
    expected: [u8; 32],
    is_done: bool,
}

impl http_body::Body for VerifiedBody {
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
        // False until the digest was compared, else the reader would stop before the comparison.
        self.is_done
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
