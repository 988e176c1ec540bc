//! Request body whose rest is drained when the service drops it early.
//!
//! Most clients send a whole body before they read the reply. If the server closed the connection
//! after an early refusal, the client would lose the reply. So the rest of the body is read and
//! dropped, within [`WHOLE`] and with pauses of at most [`PAUSE`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, header};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Timeout for the rest of a body.
const WHOLE: Duration = Duration::from_secs(30);
/// Timeout for the next frame of the rest.
const PAUSE: Duration = Duration::from_secs(1);

/// Body of a request, of a connection or of a router in front.
pub struct DrainedBody<B = Incoming>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// `None` once the body has ended or failed.
    body: Option<B>,
    /// True while the client waits for `100 Continue` and so sends no bytes.
    is_held_back: bool,
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> DrainedBody<B> {
    /// Wraps the body of a request with these headers.
    pub fn new(body: B, headers: &HeaderMap) -> Self {
        Self { body: Some(body), is_held_back: headers.contains_key(header::EXPECT) }
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Body for DrainedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        // The first poll makes hyper send `100 Continue`.
        self.is_held_back = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Drop for DrainedBody<B> {
    fn drop(&mut self) {
        if self.is_held_back || self.is_end_stream() {
            return;
        }
        if let (Some(body), Ok(runtime)) = (self.body.take(), Handle::try_current()) {
            runtime.spawn(timeout(WHOLE, read_to_end(body)));
        }
    }
}

async fn read_to_end<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    while let Ok(Some(Ok(_))) = timeout(PAUSE, body.frame()).await {}
}
