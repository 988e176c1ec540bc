//! Requests that wait with their body for `100 Continue` (`Expect: 100-continue`).
//!
//! A client that is answered before its body was requested may send the body or another request
//! next. The server cannot predict which, so the connection ends with the reply.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::header::{CONNECTION, EXPECT};
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body::{Body, Frame, SizeHint};

/// Records that the body of a waiting client was requested. None if the client does not wait.
#[derive(Clone, Debug)]
pub(super) struct ContinueFlag(Option<Arc<AtomicBool>>);

/// A body that records its first poll.
pub(super) struct PolledBody<B> {
    body: B,
    waiting: ContinueFlag,
}

/// Watches the body of a request.
pub(super) fn watch<B>(request: Request<B>) -> (Request<PolledBody<B>>, ContinueFlag) {
    let waits = request.version() == Version::HTTP_11 && request.headers().contains_key(EXPECT);
    let waiting = ContinueFlag(waits.then(Arc::default));
    let watched = waiting.clone();
    (request.map(|body| PolledBody { body, waiting: watched }), waiting)
}

impl ContinueFlag {
    /// Ends the connection with the reply if the client may or may not send its body.
    pub(super) fn end(&self, headers: &mut HeaderMap) {
        if self.0.as_ref().is_some_and(|asked| !asked.load(Ordering::Relaxed)) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl<B: Body + Unpin> Body for PolledBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if let Some(asked) = &self.waiting.0 {
            asked.store(true, Ordering::Relaxed);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn request(
        expects: bool,
        version: Version,
    ) -> (Request<PolledBody<Full<Bytes>>>, ContinueFlag) {
        let request = Request::put("/b/k").version(version);
        let request = if expects { request.header(EXPECT, "100-continue") } else { request };
        watch(request.body(Full::new(Bytes::from_static(b"x"))).unwrap())
    }

    fn ends(waiting: &ContinueFlag) -> bool {
        let mut headers = HeaderMap::new();
        waiting.end(&mut headers);
        headers.contains_key(CONNECTION)
    }

    #[tokio::test]
    async fn a_connection_ends_with_a_reply_that_came_before_the_body() {
        let (request, waiting) = request(true, Version::HTTP_11);
        assert!(ends(&waiting));
        assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "x");
        assert!(!ends(&waiting), "it was told to go on, and did");
    }

    #[test]
    fn others_go_on() {
        assert!(!ends(&request(false, Version::HTTP_11).1));
        assert!(!ends(&request(true, Version::HTTP_2).1));
    }
}
