//! Metrics of each request, and its span if it is sampled, measured around the S3 service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use futures::future::{BoxFuture, Either};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Method, Request, Response};
use martlet_protocol::trace::Span;
use martlet_replicator::Foreground;
use martlet_serving::DrainedBody;
use martlet_serving::traces::Tracer;

use super::metrics::{Labels, Requests};

/// Service that counts and times its requests, and traces a share of them.
#[derive(Clone)]
pub(crate) struct MeasuredService<S> {
    inner: S,
    requests: Arc<Requests>,
    foreground: Arc<Foreground>,
    tracer: Option<Arc<Tracer>>,
}

impl<S> MeasuredService<S> {
    pub(crate) fn new(
        inner: S,
        requests: Arc<Requests>,
        foreground: Arc<Foreground>,
        tracer: Option<Arc<Tracer>>,
    ) -> Self {
        Self { inner, requests, foreground, tracer }
    }

    /// Returns the service that is measured.
    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, B> Service<Request<Incoming>> for MeasuredService<S>
where
    S: Service<Request<CountedBody<DrainedBody>>, Response = Response<B>, Error = Infallible>
        + 'static,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<CountedBody<B>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(self.answer(request))
    }
}

impl<S> MeasuredService<S> {
    /// Answers a request, of a connection or of a router of this process.
    pub(crate) fn answer<In, B>(
        &self,
        request: Request<In>,
    ) -> impl Future<Output = Result<Response<CountedBody<B>>, Infallible>> + Send + use<In, B, S>
    where
        In: Body<Data = Bytes> + Send + Unpin + 'static,
        S: Service<
                Request<CountedBody<DrainedBody<In>>>,
                Response = Response<B>,
                Error = Infallible,
            >,
        S::Future: Send + 'static,
    {
        let began = Instant::now();
        let under_way = RunningRequest::new(self.requests.clone());
        let method = request.method().clone();
        let requests = self.requests.clone();
        let (head, body) = request.into_parts();
        let span = self.tracer.as_ref().and_then(|tracer| tracer.begin_request(&head.headers));
        let traced = span.map(TracedRequest::new);
        let received = traced.as_ref().map(|traced| traced.received.clone());
        let body = CountedBody::incoming(DrainedBody::new(body, &head.headers), requests, received);
        let request = Request::from_parts(head, body);
        let foreground = self.foreground.clone();
        let answer = match &traced {
            Some(traced) => {
                let scope = traced.span.scope();
                let answer = scope.enter(|| self.inner.call(request));
                Either::Right(scope.clone().run(answer))
            }
            None => Either::Left(self.inner.call(request)),
        };
        async move {
            let response = match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let latency = began.elapsed();
            foreground.observe(latency);
            let labels = Labels::of(&method, &response);
            let log = || {
                tracing::debug!(
                    operation = labels.operation,
                    status = response.status().as_u16(),
                    request_id = request_id(&response),
                    first_byte_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
                    "request"
                );
            };
            match &traced {
                Some(traced) => {
                    traced.describe(&method, labels, &response);
                    traced.span.scope().enter(log);
                }
                None => log(),
            }
            if let Some(limited) = response.extensions().get() {
                under_way.requests.limited(*limited);
            }
            under_way.requests.answered(labels, latency);
            let traced = traced.map(Box::new);
            Ok(response.map(|body| CountedBody::outgoing(body, under_way, traced)))
        }
    }
}

fn request_id<B>(response: &Response<B>) -> &str {
    let id = response.headers().get("x-amz-request-id");
    id.and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// Sampled request. Its span ends when the reply is sent or dropped.
struct TracedRequest {
    span: Span,
    /// Bytes of its body so far.
    received: Arc<AtomicU64>,
    /// Bytes of the reply's body so far.
    sent: u64,
}

impl TracedRequest {
    fn new(span: Span) -> Self {
        Self { span, received: Arc::default(), sent: 0 }
    }

    /// Notes the head of the reply.
    fn describe<B>(&self, method: &Method, labels: Labels, response: &Response<B>) {
        let (span, status) = (&self.span, response.status());
        span.rename(labels.operation);
        span.set("rpc.system", "aws-api");
        span.set("http.request.method", method.as_str().to_owned());
        span.set("http.response.status_code", status.as_u16());
        span.set("aws.request_id", request_id(response).to_owned());
        if status.is_server_error() {
            span.fail();
        }
    }
}

impl Drop for TracedRequest {
    fn drop(&mut self) {
        self.span.set("http.request.body.size", self.received.load(Ordering::Relaxed));
        self.span.set("http.response.body.size", self.sent);
    }
}

/// Request that is under way until its reply is sent or dropped.
struct RunningRequest {
    requests: Arc<Requests>,
}

impl RunningRequest {
    fn new(requests: Arc<Requests>) -> Self {
        requests.in_flight.inc();
        Self { requests }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.requests.in_flight.dec();
    }
}

/// Body that counts its bytes as they pass.
pub(crate) struct CountedBody<B> {
    body: B,
    way: TransferDirection,
}

enum TransferDirection {
    In(Arc<Requests>, Option<Arc<AtomicU64>>),
    Out(RunningRequest, Option<Box<TracedRequest>>),
}

impl<B> CountedBody<B> {
    fn incoming(body: B, requests: Arc<Requests>, received: Option<Arc<AtomicU64>>) -> Self {
        Self { body, way: TransferDirection::In(requests, received) }
    }

    fn outgoing(body: B, under_way: RunningRequest, traced: Option<Box<TracedRequest>>) -> Self {
        Self { body, way: TransferDirection::Out(under_way, traced) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, way } = &mut *self;
        let poll = || Pin::new(body).poll_frame(context);
        let polled = match way {
            TransferDirection::Out(_, Some(traced)) => traced.span.scope().enter(poll),
            _ => poll(),
        };
        let frame = std::task::ready!(polled);
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let bytes = data.remaining() as u64;
            match way {
                TransferDirection::In(requests, received) => {
                    requests.bytes_in.inc_by(bytes);
                    if let Some(received) = received {
                        received.fetch_add(bytes, Ordering::Relaxed);
                    }
                }
                TransferDirection::Out(under_way, traced) => {
                    under_way.requests.bytes_out.inc_by(bytes);
                    if let Some(traced) = traced {
                        traced.sent += bytes;
                    }
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
