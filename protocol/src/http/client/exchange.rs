//! One request and its reply.
//!
//! ```text
//! breaker ─ pooled connection, else a new one ─ head of the reply ─ report ─ body within bounds
//!              └ connection had ended: nothing was sent, take the next
//! ```
//!
//! A short call goes by the node's channel, if one is open and takes calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use super::breaker::CallPermit;
use super::channel::Outcome;
use super::connection::{Connection, SendOutcome, gather};
use super::remote_node::RemoteNode;
use super::upload::RequestBody;
use crate::backend::CallKind;
use crate::error::{Error, Result};
use crate::http::announce::NodeReport;
use crate::http::channel::CALL_BYTES_MAX;
use crate::http::channel::message::CallHead;
use crate::http::{calls, fault, request, sign, trace_tag};
use crate::id::DeviceId;

/// A request with a small body and a small reply.
#[derive(Clone, Debug)]
pub(super) struct SmallRequest {
    pub(super) target: Target,
    pub(super) body: Bytes,
    pub(super) reply_bytes_max: usize,
    /// True if the request may be repeated after a reused connection broke.
    pub(super) again: bool,
    /// Timeout of the exchange.
    pub(super) wait: Duration,
}

/// Receiver of a request within the node.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A route.
    Path(Method, Uri),
    /// A call of a device. Short calls may go by the channel.
    Call { device: DeviceId, kind: CallKind, is_short: bool },
}

/// Error without a reply.
pub(super) enum AttemptError {
    /// Nothing was sent: the node is unreachable.
    Unreached(Error),
    /// The connection broke after a part was possibly sent. The flag is true for a pooled
    /// connection.
    Broken(Error, bool),
}

impl AttemptError {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Unreached(error) | Self::Broken(error, _) => error,
        }
    }
}

/// Head of a reply, with the connection that carries its body.
pub(super) struct ReplyHead {
    pub(super) response: Response<Incoming>,
    pub(super) connection: Connection,
}

impl RemoteNode {
    /// Sends a small request and collects its small reply, within the request's timeout.
    pub(super) async fn call_once(self: &Arc<Self>, small: SmallRequest) -> Result<Bytes> {
        let pass = self.breaker.pass(&self.address)?;
        match timeout(small.wait, self.call_by_any(&small)).await {
            Ok(Err(AttemptError::Unreached(error))) => {
                self.unanswered(pass);
                Err(error)
            }
            Ok(Err(AttemptError::Broken(error, _))) => Err(error),
            Ok(Ok(reply)) => {
                pass.answered();
                reply
            }
            Err(_) => {
                self.unanswered(pass);
                Err(self.too_long())
            }
        }
    }

    /// Sends a short call by the channel, if it takes calls, else by HTTP.
    async fn call_by_any(
        self: &Arc<Self>,
        small: &SmallRequest,
    ) -> Result<Result<Bytes>, AttemptError> {
        let by_channel = match small.target {
            Target::Call { device, kind, is_short: true } if small.body.len() <= CALL_BYTES_MAX => {
                self.call_by_channel(small, device, kind).await
            }
            _ => Outcome::Unsent,
        };
        match by_channel {
            Outcome::Replied(reply) => Ok(reply),
            Outcome::Lost if !small.again => {
                let message = format!("the channel to the node at {} broke", self.address);
                Err(AttemptError::Broken(Error::unavailable(message), true))
            }
            Outcome::Unsent | Outcome::Lost => self.call_with_retries(small).await,
        }
    }

    async fn call_by_channel(
        self: &Arc<Self>,
        small: &SmallRequest,
        device: DeviceId,
        kind: CallKind,
    ) -> Outcome {
        let Some(channel) = self.channel_for_call() else { return Outcome::Unsent };
        let request = request::current_request();
        let head = CallHead {
            device: device.0,
            kind: kind.name(),
            deadline_ms: milliseconds(small.wait),
            is_background: self.options.is_background,
            request: request.as_ref().map(HeaderValue::as_bytes),
        };
        channel.call(&head, &small.body).await
    }

    /// Outer errors come from the connection, inner errors from the node.
    async fn call_with_retries(&self, small: &SmallRequest) -> Result<Result<Bytes>, AttemptError> {
        let ReplyHead { response, mut connection } = if small.again {
            self.exchange_again(|| self.request(small)).await?
        } else {
            self.exchange(self.request(small)).await?
        };
        let (head, body) = response.into_parts();
        let is_good = head.status.is_success();
        let max = if is_good { small.reply_bytes_max } else { fault::SENTENCE_BYTES_MAX };
        let body = match connection.driving(gather(body, max)).await {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        self.pool.put(connection);
        if is_good {
            Ok(Ok(body))
        } else {
            Ok(Err(fault::of_reply(head.status, &head.headers, &body)))
        }
    }

    fn request(&self, small: &SmallRequest) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::Whole(small.body.clone()));
        let (method, uri) = match &small.target {
            Target::Path(method, uri) => (method.clone(), uri.clone()),
            Target::Call { device, kind, .. } => {
                (Method::POST, path(&format!("/v1/d/{}/{}", device.0, kind.name())))
            }
        };
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        if !small.body.is_empty() {
            headers.insert(sign::DIGEST, sign::digest(&small.body));
        }
        headers.insert(calls::DEADLINE, HeaderValue::from(milliseconds(small.wait)));
        self.seal(&mut request);
        request
    }

    /// Adds the host, the release, the client's request id and span, the background mark, the date
    /// and the signature.
    pub(super) fn seal(&self, request: &mut Request<RequestBody>) {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        self.options.release.put_on(headers);
        if let Some(id) = request::current_request() {
            headers.insert(request::REQUEST, id);
        }
        trace_tag::put_on(headers);
        if self.options.is_background {
            headers.insert(request::BACKGROUND, HeaderValue::from_static("1"));
        }
        sign::sign(&self.key, &method, &uri, headers, self.options.clock.now_ms());
    }

    /// Sends a repeatable request: sent again by a new connection if a pooled one breaks, because
    /// the pooled one may have been dead before.
    pub(super) async fn exchange_again(
        &self,
        request: impl Fn() -> Request<RequestBody>,
    ) -> Result<ReplyHead, AttemptError> {
        match self.exchange(request()).await {
            Err(AttemptError::Broken(_, true)) => self.exchange_anew(request()).await,
            other => other,
        }
    }

    /// Sends a request by a pooled connection, else by a new one.
    pub(super) async fn exchange(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<ReplyHead, AttemptError> {
        while let Some(connection) = self.pool.take() {
            match self.send(connection, request).await {
                Ok(reply) => return Ok(reply),
                Err((Some(back), _)) => request = *back,
                Err((None, error)) => return Err(AttemptError::Broken(error, true)),
            }
        }
        self.exchange_anew(request).await
    }

    async fn exchange_anew(
        &self,
        request: Request<RequestBody>,
    ) -> Result<ReplyHead, AttemptError> {
        let opened = Connection::open(&self.address, &self.options).await;
        let connection = opened.map_err(AttemptError::Unreached)?;
        self.send(connection, request).await.map_err(|(unsent, error)| match unsent {
            Some(_) => AttemptError::Unreached(error),
            None => AttemptError::Broken(error, false),
        })
    }

    /// Sends a request; returns the request with the error if nothing was sent.
    pub(super) async fn send(
        &self,
        mut connection: Connection,
        request: Request<RequestBody>,
    ) -> Result<ReplyHead, (Option<Box<Request<RequestBody>>>, Error)> {
        let began = Instant::now();
        match connection.send(request).await {
            SendOutcome::Replied(response) => {
                if let Some(report) = NodeReport::of(response.headers(), began.elapsed()) {
                    (self.report_observer)(report);
                }
                // The reply of a node without a common version may mean anything.
                self.check_release(&response).map_err(|error| (None, error))?;
                Ok(ReplyHead { response: *response, connection })
            }
            SendOutcome::Unsent(request, error) => {
                let message = format!("the connection to the node at {} was closed", self.address);
                Err((Some(request), Error::unreached(message, error)))
            }
            SendOutcome::Lost(error) => {
                let message = format!("the connection to the node at {} broke", self.address);
                Err((None, Error::unavailable(message).with_source(error)))
            }
        }
    }

    /// Returns an error if this process and the node have no version in common.
    fn check_release(&self, response: &Response<Incoming>) -> Result<()> {
        self.common_wire(response.headers()).map(|_| ()).map_err(|error| {
            // The node has refused the request too, unless it is of a release before versions.
            let is_refused = response.status() == StatusCode::UPGRADE_REQUIRED;
            if is_refused { error.without_effect("the node refused it") } else { error }
        })
    }

    /// Records an unreachable node, clears the pool and renews the channel: connections may be dead
    /// without a sign.
    pub(super) fn unanswered(&self, pass: CallPermit<'_>) {
        if pass.unanswered() {
            self.pool.clear();
            self.channel.renew();
        }
    }

    pub(super) fn too_long(&self) -> Error {
        Error::unavailable(format!("the node at {} did not answer in time", self.address))
    }
}

/// Returns the path of a request.
///
/// # Panics
/// Never: paths of numbers and names can be parsed.
pub(super) fn path(text: &str) -> Uri {
    text.parse().expect("paths of numbers and names can be parsed")
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
