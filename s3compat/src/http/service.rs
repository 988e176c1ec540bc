//! The HTTP pipeline as a hyper service that never returns an error.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use martlet_protocol::Clock;
use martlet_protocol::http::{AuthenticatedFlag, in_request, with_request};
use s3s::Body;
use tokio::sync::OwnedSemaphorePermit;
use tower::ServiceExt;

use super::anonymous_check::AnonymousCheck;
use super::config::HttpConfig;
use super::cors::{CorsRules, CrossOriginRequest};
use super::expect;
use super::form::FormReply;
use super::pipeline::{PipelineError, RequestPipeline};
use super::reply::{DETAIL, QUOTA_DETAIL, ReplyContext, Stamper};
use super::table::Operation;
use crate::auth::{Authenticator, Identity, Keys, Mechanism, Refusal, RequestTarget};
use crate::limits::LimitReason;
use crate::limits::body::metered;
use crate::limits::concurrency::{ConcurrencyLimiter, RequestPermit};
use crate::logging::ReplyRequester;
use crate::messages;

/// HTTP pipeline in front of the operations: see the [module](super). Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpService<S> {
    shared: Arc<ServiceState>,
    inner: S,
}

#[derive(Debug)]
struct ServiceState {
    gate: RequestPipeline,
    stamper: Stamper,
    turns: ConcurrencyLimiter,
    retry_after: HeaderValue,
    /// CORS rules. If unset, replies have no CORS headers.
    cors: Option<Arc<dyn CorsRules>>,
}

impl<S> HttpService<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    /// Creates an HTTP service in front of `inner` for the access keys in `keys`, with the CORS
    /// rules of `cors`.
    pub fn new(
        config: HttpConfig,
        clock: Arc<dyn Clock>,
        keys: Keys,
        cors: Option<Arc<dyn CorsRules>>,
        inner: S,
    ) -> Self {
        let authenticator = Authenticator::new(config.auth.clone(), clock, keys);
        let shared = ServiceState {
            stamper: Stamper::new(),
            turns: ConcurrencyLimiter::new(config.requests_max, config.anonymous_max()),
            retry_after: HeaderValue::from(config.retry_after_s),
            gate: RequestPipeline::new(authenticator, config),
            cors,
        };
        Self { shared: Arc::new(shared), inner }
    }

    /// Returns this service with `anonymous_check` as early access check of anonymous documents.
    pub(crate) fn checked_by(self, judge: Arc<dyn AnonymousCheck>) -> Self {
        // An HTTP service has one judge: a second one is ignored.
        let _ = self.shared.gate.judge.set(judge);
        self
    }

    /// Bucket and key of a request. None if the request is malformed.
    pub(crate) fn target_of(&self, uri: &Uri, headers: &HeaderMap) -> Option<RequestTarget> {
        self.shared.gate.target(uri, headers).ok()
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<GuardedBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let shared = &*self.shared;
        let asked = ReplyContext {
            id: shared.stamper.next_id(),
            resource: request.uri().path().into(),
            is_head: request.method() == Method::HEAD,
        };
        let id = asked.id.header();
        let Some(permit) = shared.turns.take() else {
            let response = shared.slow_down(&asked, LimitReason::Overload, None);
            return response.map(|body| GuardedBody {
                body,
                id,
                turn: None,
                tally: None,
                _permit: None,
            });
        };
        let mut turn = None;
        let method = request.method();
        let response = match shared.preflight(method, request.uri(), request.headers()) {
            Some(crossing) => match shared.admit(&Identity::Anonymous) {
                Ok(admitted) => {
                    turn = Some(admitted);
                    shared.answer_preflight(&asked, crossing).await
                }
                Err(stopped) => shared.stop(&asked, stopped),
            },
            None => self.answer_request(&asked, request, &mut turn).await,
        };
        response.map(|body| GuardedBody { body, id, turn, tally: None, _permit: Some(permit) })
    }

    /// Answers an admitted request, and sets `turn` to the turn of its principal.
    async fn answer_request<B>(
        &self,
        asked: &ReplyContext,
        request: Request<B>,
        turn: &mut Option<RequestPermit>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let shared = &*self.shared;
        let crossing = shared.crossing(&request);
        let (request, waiting) = expect::watch(request);
        let proven = request.extensions().get::<AuthenticatedFlag>().cloned();
        if shared.gate.is_for_tokens(&request) {
            let mut response = match shared.admit(&Identity::Anonymous) {
                Ok(admitted) => {
                    *turn = Some(admitted);
                    let response = Box::pin(shared.gate.answer_for_tokens(request, asked.id)).await;
                    shared.stamper.complete(asked, response)
                }
                Err(stopped) => shared.stop(asked, stopped),
            };
            waiting.end(response.headers_mut());
            return response;
        }
        let mut admit = |who: &Identity| {
            // The turn for an unknown principal, if any, is returned first.
            *turn = None;
            *turn = Some(shared.admit(who)?);
            if let (Some(proven), Identity::Known(_)) = (&proven, who) {
                proven.set();
            }
            Ok(())
        };
        let mut response = match shared.gate.prepare(request, asked.id, &mut admit).await {
            Ok(request) => self.carry_out(asked, request, turn.as_ref()).await,
            Err(stopped) => shared.stop(asked, stopped),
        };
        if let Some((crossing, rules)) = crossing {
            let headers = with_request(asked.id.header(), crossing.headers(rules)).await;
            response.headers_mut().extend(headers);
        }
        waiting.end(response.headers_mut());
        response
    }

    /// Runs the operation of a request.
    async fn carry_out(
        &self,
        asked: &ReplyContext,
        request: Request<Body>,
        turn: Option<&RequestPermit>,
    ) -> Response<Body> {
        let mut request = match turn {
            Some(turn) => request.map(|body| metered(body, turn.meters())),
            None => request,
        };
        let form = request.extensions_mut().remove::<FormReply>();
        let operation = request.extensions().get::<&'static Operation>().copied();
        let asker = requester_of(request.extensions());
        let answer = self.inner.clone().oneshot(request);
        let Ok(mut response) = with_request(asked.id.header(), answer).await;
        if let Some(form) = form {
            form.apply(&mut response);
        }
        let is_over_quota = response.headers().get(DETAIL).is_some_and(is_quota);
        let mut response = self.shared.stamper.complete(asked, response);
        // For observers that count requests by operation.
        if let Some(operation) = operation {
            response.extensions_mut().insert(operation);
        }
        if let Some(asker) = asker {
            response.extensions_mut().insert(asker);
        }
        if is_over_quota {
            response.extensions_mut().insert(LimitReason::Quota);
        }
        response
    }
}

/// Returns true if an additional element reports an exceeded quota.
fn is_quota(detail: &HeaderValue) -> bool {
    detail.as_bytes().starts_with(QUOTA_DETAIL.as_bytes())
}

impl ServiceState {
    /// Returns a turn for a principal, or the reason of the refusal and the time to wait.
    fn admit(&self, who: &Identity) -> Result<RequestPermit, PipelineError> {
        let meters = who.who().map(|who| &who.meters);
        let turn =
            self.turns.count(meters).ok_or(PipelineError::Limited(LimitReason::Share, None))?;
        match turn.meters().admit() {
            Ok(()) => Ok(turn),
            Err(wait) => Err(PipelineError::Limited(LimitReason::Rate, Some(wait))),
        }
    }

    /// Builds the reply to a request that does not reach its operation.
    fn stop(&self, asked: &ReplyContext, stopped: PipelineError) -> Response<Body> {
        match stopped {
            PipelineError::Limited(why, wait) => self.slow_down(asked, why, wait),
            PipelineError::Refused(refusal) => {
                tracing::debug!(id = %asked.id, %refusal, "refused a request");
                self.stamper.refuse(asked, &refusal)
            }
        }
    }

    /// 503, with the time after which the client may retry.
    fn slow_down(
        &self,
        asked: &ReplyContext,
        why: LimitReason,
        wait: Option<Duration>,
    ) -> Response<Body> {
        let refusal = messages::SLOW_DOWN.refusal();
        let mut response = self.stamper.refuse(asked, &refusal);
        let retry_after = match wait {
            Some(wait) => HeaderValue::from(wait.as_secs().saturating_add(1)),
            None => self.retry_after.clone(),
        };
        response.headers_mut().insert(RETRY_AFTER, retry_after);
        response.extensions_mut().insert(why);
        response
    }

    /// Parses a preflight. None if the request is no preflight for a bucket.
    fn preflight(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<(Result<CrossOriginRequest, Refusal>, &dyn CorsRules)> {
        let rules = self.cors.as_deref().filter(|_| *method == Method::OPTIONS)?;
        let crossing =
            CrossOriginRequest::preflight(uri, headers, &self.gate.config.domains).transpose()?;
        Some((crossing, rules))
    }

    async fn answer_preflight(
        &self,
        asked: &ReplyContext,
        (crossing, rules): (Result<CrossOriginRequest, Refusal>, &dyn CorsRules),
    ) -> Response<Body> {
        let granted = match crossing {
            Ok(crossing) => with_request(asked.id.header(), crossing.answer(rules)).await,
            Err(refusal) => Err(refusal),
        };
        match granted {
            Ok(headers) => {
                let mut response = Response::new(Body::empty());
                *response.headers_mut() = headers;
                self.stamper.complete(asked, response)
            }
            Err(refusal) => self.stamper.refuse(asked, &refusal),
        }
    }

    /// Origin of a request, if it names one, and the CORS rules.
    fn crossing<B>(&self, request: &Request<B>) -> Option<(CrossOriginRequest, &dyn CorsRules)> {
        let rules = self.cors.as_deref()?;
        let domains = &self.gate.config.domains;
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        Some((CrossOriginRequest::actual(method, uri, headers, domains)?, rules))
    }
}

impl<S, B> hyper::service::Service<Request<B>> for HttpService<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<GuardedBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

/// Body of a reply. Its request counts as in flight until the body is sent or given up.
#[derive(Debug)]
pub struct GuardedBody {
    body: Body,
    /// Id of the request, for calls of nodes while the body is sent.
    id: HeaderValue,
    /// Turn of the request's principal.
    turn: Option<RequestPermit>,
    /// Counter of the bytes of the body.
    tally: Option<Box<dyn ByteCounter>>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Counter of the bytes of a body. Dropped when the body is sent or given up.
pub(crate) trait ByteCounter: std::fmt::Debug + Send + Sync {
    /// Adds bytes that were sent.
    fn add(&mut self, bytes: usize);
}

impl GuardedBody {
    /// Sets the counter of the bytes of the body.
    pub(crate) fn count_by(&mut self, tally: Box<dyn ByteCounter>) {
        self.tally = Some(tally);
    }
}

/// Principal of a request, for observers of its reply.
fn requester_of(extensions: &Extensions) -> Option<ReplyRequester> {
    let identity = extensions.get::<Identity>()?.clone();
    // Forms have another kind of signature.
    let mechanism = extensions.get::<Mechanism>().copied().unwrap_or(Mechanism::None);
    Some(ReplyRequester { identity, mechanism })
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = s3s::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, s3s::StdError>>> {
        let Self { body, id, turn, tally, .. } = &mut *self;
        let polled = in_request(id, || Pin::new(body).poll_frame(context));
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            if let Some(turn) = turn {
                turn.meters().charge(bytes.len() as u64);
            }
            if let Some(tally) = tally {
                tally.add(bytes.len());
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
