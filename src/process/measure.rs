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

use super::linger::Lingering;
use super::metrics::{Labels, Requests};

/// Service that counts and times its requests.
#[derive(Clone)]
pub(crate) struct Measured<S> {
    inner: S,
    requests: Arc<Requests>,
    foreground: Arc<Foreground>,
}

impl<S> Measured<S> {
    pub(crate) fn new(inner: S, requests: Arc<Requests>, foreground: Arc<Foreground>) -> Self {
        Self { inner, requests, foreground }
    }
}

impl<S, B> Service<Request<Incoming>> for Measured<S>
where
    S: Service<Request<Counted<Lingering>>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Counted<B>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let began = Instant::now();
        let under_way = UnderWay::new(self.requests.clone());
        let method = request.method().clone();
        let requests = self.requests.clone();
        let (head, body) = request.into_parts();
        let body = Counted::incoming(Lingering::new(body, &head.headers), requests);
        let request = Request::from_parts(head, body);
        let foreground = self.foreground.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
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
            Ok(response.map(|body| Counted::outgoing(body, under_way)))
        })
    }
}

fn request_id<B>(response: &Response<B>) -> &str {
    let id = response.headers().get("x-amz-request-id");
    id.and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// Request that is under way until its reply is sent or dropped.
struct UnderWay {
    requests: Arc<Requests>,
}

impl UnderWay {
    fn new(requests: Arc<Requests>) -> Self {
        requests.in_flight.inc();
        Self { requests }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.requests.in_flight.dec();
    }
}

/// Body that counts its bytes as they pass.
pub(crate) struct Counted<B> {
    body: B,
    way: Way,
}

enum Way {
    In(Arc<Requests>),
    Out(UnderWay),
}

impl<B> Counted<B> {
    fn incoming(body: B, requests: Arc<Requests>) -> Self {
        Self { body, way: Way::In(requests) }
    }

    fn outgoing(body: B, under_way: UnderWay) -> Self {
        Self { body, way: Way::Out(under_way) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
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
                Way::In(requests) => requests.bytes_in.inc_by(bytes),
                Way::Out(under_way) => under_way.requests.bytes_out.inc_by(bytes),
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
