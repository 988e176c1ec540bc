//! One request and its reply.
//!
//! ```text
//! breaker ─ pooled connection, else a new one ─ head of the reply ─ report ─ body within bounds
//!              └ connection had ended: nothing was sent, take the next
//! ```

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use super::breaker::CallPermit;
use super::connection::{Connection, SendOutcome, gather};
use super::remote_node::RemoteNode;
use super::upload::RequestBody;
use crate::error::{Error, Result};
use crate::http::announce::NodeReport;
use crate::http::{calls, fault, request, sign};

/// A request with a small body and a small reply.
#[derive(Clone, Debug)]
pub(super) struct SmallRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) body: Bytes,
    pub(super) reply_bytes_max: usize,
    /// True if the request may be repeated after a reused connection broke.
    pub(super) again: bool,
    /// Timeout of the exchange.
    pub(super) wait: Duration,
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
    pub(super) async fn call_once(&self, small: SmallRequest) -> Result<Bytes> {
        let pass = self.breaker.pass(&self.address)?;
        match timeout(small.wait, self.call_with_retries(&small)).await {
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
        *request.method_mut() = small.method.clone();
        *request.uri_mut() = small.uri.clone();
        let headers = request.headers_mut();
        if !small.body.is_empty() {
            headers.insert(sign::DIGEST, sign::digest(&small.body));
        }
        let limit_ms = u64::try_from(small.wait.as_millis()).unwrap_or(u64::MAX);
        headers.insert(calls::DEADLINE, HeaderValue::from(limit_ms));
        self.seal(&mut request);
        request
    }

    /// Adds the host, the client's request id, the background mark, the date and the signature.
    pub(super) fn seal(&self, request: &mut Request<RequestBody>) {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        if let Some(id) = request::current_request() {
            headers.insert(request::REQUEST, id);
        }
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
    async fn send(
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

    /// Records an unreachable node and clears the pool: idle connections may be dead without a
    /// sign.
    pub(super) fn unanswered(&self, pass: CallPermit<'_>) {
        if pass.unanswered() {
            self.pool.clear();
        }
    }

    pub(super) fn too_long(&self) -> Error {
        Error::unavailable(format!("the node at {} did not answer in time", self.address))
    }
}
