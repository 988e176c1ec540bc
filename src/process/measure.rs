//! Metrics of each request, measured around the S3 service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use martlet_replicator::Foreground;
use martlet_serving::DrainedBody;

use super::metrics::{Labels, Requests};

/// Service that counts and times its requests.
#[derive(Clone)]
pub(crate) struct MeasuredService<S> {
    inner: S,
    requests: Arc<Requests>,
    foreground: Arc<Foreground>,
}

impl<S> MeasuredService<S> {
    pub(crate) fn new(inner: S, requests: Arc<Requests>, foreground: Arc<Foreground>) -> Self {
        Self { inner, requests, foreground }
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
        let body = CountedBody::incoming(DrainedBody::new(body, &head.headers), requests);
        let request = Request::from_parts(head, body);
        let foreground = self.foreground.clone();
        let answer = self.inner.call(request);
        async move {
            let response = match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let latency = began.elapsed();
            foreground.observe(latency);
            let labels = Labels::of(&method, &response);
            tracing::debug!(
                operation = labels.operation,
                status = response.status().as_u16(),
                request_id = request_id(&response),
                first_byte_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
                "request"
            );
            if let Some(limited) = response.extensions().get() {
                under_way.requests.limited(*limited);
            }
            under_way.requests.answered(labels, latency);
            Ok(response.map(|body| CountedBody::outgoing(body, under_way)))
        }
    }
}

fn request_id<B>(response: &Response<B>) -> &str {
    let id = response.headers().get("x-amz-request-id");
    id.and_then(|id| id.to_str().ok()).unwrap_or_default()
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
    In(Arc<Requests>),
    Out(RunningRequest),
}

impl<B> CountedBody<B> {
    fn incoming(body: B, requests: Arc<Requests>) -> Self {
        Self { body, way: TransferDirection::In(requests) }
    }

    fn outgoing(body: B, under_way: RunningRequest) -> Self {
        Self { body, way: TransferDirection::Out(under_way) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let bytes = data.remaining() as u64;
            match &self.way {
                TransferDirection::In(requests) => requests.bytes_in.inc_by(bytes),
                TransferDirection::Out(under_way) => under_way.requests.bytes_out.inc_by(bytes),
            };
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
