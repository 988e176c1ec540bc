//! The HTTP pipeline as a hyper service that never returns an error.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use martlet_protocol::Clock;
use martlet_protocol::http::with_request;
use martlet_protocol::trace::{self, SpanScope};

use super::admission::{Admission, RequestName};
use super::anonymous_check::AnonymousCheck;
use super::config::HttpConfig;
use super::cors::{CorsRules, CrossOriginRequest};
use super::expect;
use super::pipeline_state::{Arrival, PipelineError, RequestPipeline};
use super::reply::{ReplyContext, Stamper};
use crate::access::Identity;
use crate::auth::{Authenticator, Keys};
use crate::body::ResponseBody;
use crate::change_log::ChangeLog;
use crate::errors::RETRY_AFTER_MS;
use crate::limits::concurrency::{ConcurrencyLimiter, RequestPermit};
use crate::limits::{LimitReason, QueueFigures, RequestKind, WaitingKey};
use crate::logging::ReplyRequester;
use crate::messages;
use crate::refusal::{DETAIL, QUOTA_DETAIL, Refusal};
use crate::reply::{Reply, ReplyInfo};
use crate::request::{Observation, PreparedRequest};
use crate::target::RequestTarget;

/// Runs the operations of requests that have passed the HTTP pipeline.
pub(crate) trait OperationHandler: Clone + Send + Sync + 'static {
    /// Runs the operation of a request. Dropping the future early abandons the request.
    ///
    /// The future is boxed, because it would be a large part of the future of each connection.
    fn handle(&self, request: PreparedRequest) -> BoxFuture<'_, Reply>;
}

/// HTTP pipeline in front of the operations: see the [module](super). Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HttpService<H> {
    shared: Arc<ServiceState>,
    handler: H,
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

impl<H: OperationHandler> HttpService<H> {
    /// Creates an HTTP service in front of `handler` for the access keys in `keys`, with the CORS
    /// rules of `cors`.
    pub(crate) fn new(
        config: HttpConfig,
        clock: Arc<dyn Clock>,
        keys: Keys,
        cors: Option<Arc<dyn CorsRules>>,
        handler: H,
    ) -> Self {
        let authenticator = Authenticator::new(config.auth.clone(), clock, keys);
        let shared = ServiceState {
            stamper: Stamper::new(),
            turns: ConcurrencyLimiter::new(config.concurrency()),
            retry_after: HeaderValue::from(config.retry_after_s),
            gate: RequestPipeline::new(authenticator, config),
            cors,
        };
        Self { shared: Arc::new(shared), handler }
    }

    /// Records changes of keys. Only the first call has an effect.
    pub(crate) fn set_change_log(&self, log: Arc<dyn ChangeLog>) {
        let _ = self.shared.gate.changes.set(log);
    }

    /// Authenticator of requests.
    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.shared.gate.authenticator
    }

    /// Returns this service with `anonymous_check` as early access check of anonymous documents.
    pub(crate) fn checked_by(self, anonymous_check: Arc<dyn AnonymousCheck>) -> Self {
        // An HTTP service has one such check: a second one is ignored.
        let _ = self.shared.gate.anonymous_check.set(anonymous_check);
        self
    }

    /// Bucket and key of a request. None if the request is malformed.
    pub(crate) fn target_of(&self, uri: &Uri, host: Option<&str>) -> Option<RequestTarget> {
        self.shared.gate.target_at(uri, host).ok()
    }

    /// Id of this host in replies.
    pub(crate) fn host_id(&self) -> &HeaderValue {
        self.shared.stamper.host_id()
    }

    /// Counters of the requests that wait for a turn, by kind.
    pub(crate) fn queue_figures(&self) -> [QueueFigures; 3] {
        self.shared.turns.figures()
    }

    /// The keys with the most waiting requests.
    pub(crate) fn waiting_keys(&self) -> Vec<WaitingKey> {
        self.shared.turns.waiting_keys()
    }

    /// Answers one request, of which nothing is observed.
    #[cfg(test)]
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        self.answer_observed(request, Observation::default()).await
    }

    /// Answers one request.
    pub(crate) async fn answer_observed<B>(
        &self,
        request: Request<B>,
        observation: Observation,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let shared = &*self.shared;
        let reply_context = ReplyContext {
            id: shared.stamper.next_id().header(),
            resource: request.uri().path().into(),
            is_head: request.method() == Method::HEAD,
        };
        let config = &shared.gate.config;
        let entered = Admission::enter(&shared.turns, config, request.extensions());
        let Some(mut admission) = entered else {
            let mut response = shared.slow_down(&reply_context, LimitReason::Overload, None);
            response.body_mut().hold(reply_context.id, None, None);
            return response;
        };
        let method = request.method();
        let mut response = match shared.preflight(method, request.uri(), request.headers()) {
            Some((cross_origin, rules)) => {
                let name = RequestName {
                    method: request.method(),
                    uri: request.uri(),
                    headers: request.headers(),
                };
                match admission.admit(&Identity::Anonymous, RequestKind::Other, name).await {
                    Ok(()) => {
                        Box::pin(shared.answer_preflight(&reply_context, cross_origin, rules)).await
                    }
                    Err(stopped) => shared.stop(&reply_context, stopped),
                }
            }
            None => self.answer_request(&reply_context, request, observation, &mut admission).await,
        };
        let (permit, turn) = admission.into_parts();
        response.body_mut().hold(reply_context.id, permit, turn);
        response
    }

    /// Answers a request that has entered.
    async fn answer_request<B>(
        &self,
        reply_context: &ReplyContext,
        request: Request<B>,
        observation: Observation,
        admission: &mut Admission,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let shared = &*self.shared;
        let cross_origin = shared.cross_origin(&request);
        let waiting = expect::watch(&request);
        let arrival =
            Arrival { id: reply_context.id.clone(), polled: waiting.clone(), observation };
        if shared.gate.is_for_tokens(&request) {
            let name = RequestName {
                method: request.method(),
                uri: request.uri(),
                headers: request.headers(),
            };
            let admitted = admission.admit(&Identity::Anonymous, RequestKind::Other, name).await;
            let mut response = match admitted {
                Ok(()) => {
                    let response = Box::pin(shared.gate.answer_for_tokens(request, arrival)).await;
                    shared.stamper.complete(reply_context, response)
                }
                Err(stopped) => shared.stop(reply_context, stopped),
            };
            expect::end(&waiting, response.headers_mut());
            return response;
        }
        let mut response = match shared.gate.prepare(request, arrival, admission).await {
            Ok(request) => self.carry_out(reply_context, request, admission.permit()).await,
            Err(stopped) => shared.stop(reply_context, stopped),
        };
        if let Some((cross_origin, rules)) = cross_origin {
            let headers = with_request(reply_context.id.clone(), cross_origin.headers(rules));
            let headers = Box::pin(headers).await;
            response.headers_mut().extend(headers);
        }
        expect::end(&waiting, response.headers_mut());
        response
    }

    /// Runs the operation of a request.
    async fn carry_out(
        &self,
        reply_context: &ReplyContext,
        mut request: PreparedRequest,
        turn: Option<&RequestPermit>,
    ) -> Response<ResponseBody> {
        if let Some(turn) = turn {
            turn.meters().charge(request.head.document().len() as u64);
            request.body.charge_to(turn.meters());
        }
        let form = request.form.take();
        // The key of a form is not in its URI.
        let target = form.is_none().then(|| request.head.target.clone());
        trace::annotate(|span| describe(span, &request.head.target));
        let context = &request.head.context;
        let operation = context.operation;
        let requester =
            ReplyRequester { identity: context.identity.clone(), mechanism: context.mechanism };
        let mut reply = with_request(reply_context.id.clone(), self.handler.handle(request)).await;
        if let Some(form) = form {
            form.apply(&mut reply);
        }
        let is_over_quota = reply.headers.get(DETAIL).is_some_and(is_quota);
        let (response, effects) = reply.into_parts();
        let mut response = self.shared.stamper.complete(reply_context, response);
        let extensions = response.extensions_mut();
        let info = extensions.get_or_insert_default::<ReplyInfo>();
        (info.operation, info.requester) = (Some(operation), Some(requester));
        (info.target, info.effects) = (target, effects);
        // For observers that count requests by operation.
        extensions.insert(operation.row());
        if is_over_quota {
            extensions.insert(LimitReason::Quota);
        }
        response
    }
}

/// Notes bucket and key of a request in its span.
fn describe(span: &SpanScope, target: &RequestTarget) {
    if let Some(bucket) = target.bucket() {
        span.set("aws.s3.bucket", bucket.to_owned());
    }
    if let Some(key) = target.key() {
        span.set("aws.s3.key", key.to_owned());
    }
}

/// Returns true if an additional element reports an exceeded quota.
fn is_quota(detail: &HeaderValue) -> bool {
    detail.as_bytes().starts_with(QUOTA_DETAIL.as_bytes())
}

impl ServiceState {
    /// Builds the reply to a request that does not reach its operation.
    fn stop(&self, reply_context: &ReplyContext, stopped: PipelineError) -> Response<ResponseBody> {
        match stopped {
            PipelineError::Limited(why, wait) => self.slow_down(reply_context, why, wait),
            PipelineError::Refused(refusal) => {
                let id = reply_context.id.to_str().unwrap_or_default();
                tracing::debug!(id, %refusal, "refused a request");
                self.stamper.refuse(reply_context, &refusal)
            }
        }
    }

    /// 503, with the time after which the client may retry.
    fn slow_down(
        &self,
        reply_context: &ReplyContext,
        why: LimitReason,
        wait: Option<Duration>,
    ) -> Response<ResponseBody> {
        let refusal = messages::SLOW_DOWN.refusal();
        let mut response = self.stamper.refuse(reply_context, &refusal);
        let retry_after = match wait {
            Some(wait) => HeaderValue::from(wait.as_secs().saturating_add(1)),
            None => self.retry_after.clone(),
        };
        let wait_ms = match wait {
            Some(wait) => u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1),
            None => u64::from(self.gate.config.retry_after_s) * 1000,
        };
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, retry_after);
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait_ms));
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
        let cross_origin =
            CrossOriginRequest::preflight(uri, headers, &self.gate.config.domains).transpose()?;
        Some((cross_origin, rules))
    }

    async fn answer_preflight(
        &self,
        reply_context: &ReplyContext,
        cross_origin: Result<CrossOriginRequest, Refusal>,
        rules: &dyn CorsRules,
    ) -> Response<ResponseBody> {
        let granted = match cross_origin {
            Ok(cross_origin) => {
                with_request(reply_context.id.clone(), cross_origin.answer(rules)).await
            }
            Err(refusal) => Err(refusal),
        };
        match granted {
            Ok(headers) => {
                let mut response = Response::new(ResponseBody::empty());
                *response.headers_mut() = headers;
                self.stamper.complete(reply_context, response)
            }
            Err(refusal) => self.stamper.refuse(reply_context, &refusal),
        }
    }

    /// Origin of a request, if it names one, and the CORS rules.
    fn cross_origin<B>(
        &self,
        request: &Request<B>,
    ) -> Option<(CrossOriginRequest, &dyn CorsRules)> {
        let rules = self.cors.as_deref()?;
        let domains = &self.gate.config.domains;
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        Some((CrossOriginRequest::actual(method, uri, headers, domains)?, rules))
    }
}

impl<H, B> hyper::service::Service<Request<B>> for HttpService<H>
where
    H: OperationHandler,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer_observed(request, Observation::default()).await) })
    }
}
