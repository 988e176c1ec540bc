//! Requests of proxies as the log of a node tells of them: each line about one says which request of a
//! client it was made for.
//!
//! At the level of debugging every such request is told; those that failed for a reason that nobody
//! expects are told always.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use martlet_protocol::http::REQUEST;
use tracing::{Instrument, Span};

/// Serves a request with its id on every line that is logged meanwhile.
pub(super) async fn follow(request: Request, next: Next) -> Response {
    let id = request.headers().get(REQUEST).and_then(|id| id.to_str().ok());
    let Some(id) = id else { return next.run(request).await };
    // At the level of errors, so that no filter drops the id from lines that are logged.
    let span = tracing::error_span!("node", request = id);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let began = Instant::now();
    let answer = async {
        let response = next.run(request).await;
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let status = response.status();
        if is_odd(status) {
            tracing::warn!(%method, path, status = status.as_u16(), took_us, "a request failed");
        } else {
            tracing::debug!(%method, path, status = status.as_u16(), took_us, "request");
        }
        response
    };
    let response = answer.instrument(span.clone()).await;
    response.map(|body| Body::new(Followed { body, span }))
}

/// Whether a status tells of corrupt bytes or of a mistake of ours.
fn is_odd(status: StatusCode) -> bool {
    matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::UNPROCESSABLE_ENTITY)
}

/// A body that is sent for a request.
struct Followed {
    body: Body,
    span: Span,
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, span } = &mut *self;
        span.in_scope(|| Pin::new(body).poll_frame(context))
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
    use std::io::Write;
    use std::sync::Arc;

    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use parking_lot::Mutex;
    use tower::ServiceExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    async fn logged(path: &str, id: Option<&str>) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        let _on = tracing::subscriber::set_default(subscriber);
        let app = Router::new()
            .route("/good", get(|| async { "good" }))
            .route("/bad", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
            .layer(from_fn(follow));
        let request = id.map_or(Request::get(path), |id| Request::get(path).header(REQUEST, id));
        let reply = app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        reply.into_body().collect().await.unwrap();
        String::from_utf8(lines.0.lock().clone()).unwrap()
    }

    #[tokio::test]
    async fn lines_about_a_request_say_what_it_was_made_for() {
        let line: serde_json::Value =
            serde_json::from_str(&logged("/good", Some("00AB")).await).unwrap();
        assert_eq!((&line["span"]["request"], &line["level"]), (&"00AB".into(), &"DEBUG".into()));
        assert_eq!((&line["path"], &line["status"]), (&"/good".into(), &200.into()));
        let line: serde_json::Value =
            serde_json::from_str(&logged("/bad", Some("00AB")).await).unwrap();
        assert_eq!((&line["span"]["request"], &line["level"]), (&"00AB".into(), &"WARN".into()));
    }

    #[tokio::test]
    async fn what_is_made_for_nobody_is_not_told() {
        assert_eq!(logged("/bad", None).await, "");
    }
}
