//! Log lines of proxies' requests: each line carries the id of the client's request that caused it.
//!
//! Every such request is logged at the level debug. Requests that failed for an unexpected reason
//! are logged as warnings.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt;
use http_body::{Frame, SizeHint};
use martlet_protocol::http::{REQUEST, ServedCall, in_request, scope_of_headers, with_request};
use martlet_protocol::trace::{SpanScope, SpanSink};

/// Receiver of the spans of sampled requests, if the node records spans.
pub(super) type NodeSpans = Option<Arc<dyn SpanSink>>;

/// Handles a request with its id on every log line, and under its span if it is sampled.
pub(super) async fn with_request_id(
    State(spans): State<NodeSpans>,
    request: Request,
    next: Next,
) -> Response {
    let id = request.headers().get(REQUEST).cloned();
    let scope = spans.and_then(|sink| scope_of_headers(request.headers(), &sink));
    let response = match (&id, &scope) {
        (None, None) => return next.run(request).await,
        (Some(id), None) => with_request(id.clone(), logged(request, next)).await,
        (id, Some(scope)) => {
            let answer = match id {
                Some(id) => with_request(id.clone(), logged(request, next)).boxed(),
                None => next.run(request).boxed(),
            };
            scope.clone().run(answer).await
        }
    };
    response.map(|body| Body::new(RequestIdBody { body, id, scope }))
}

/// Handles a request and logs it.
async fn logged(request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let began = Instant::now();
    let response = next.run(request).await;
    log_request(&method, uri.path(), response.status(), began.elapsed());
    response
}

/// Logs a call of a channel as the request over HTTP that would carry the call.
pub(super) fn log_call(call: ServedCall) {
    if is_odd(call.status) || tracing::enabled!(tracing::Level::DEBUG) {
        let path = format!("/v1/d/{}/{}", call.device.0, call.kind.name());
        log_request(&Method::POST, &path, call.status, call.took);
    }
}

fn log_request(method: &Method, path: &str, status: StatusCode, took: Duration) {
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let (is_odd, status) = (is_odd(status), status.as_u16());
    if is_odd {
        tracing::warn!(%method, path, status, took_us, "a request failed");
    } else {
        tracing::debug!(%method, path, status, took_us, "request");
    }
}

/// Returns true for statuses that mean corrupt bytes or an internal error.
fn is_odd(status: StatusCode) -> bool {
    matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::UNPROCESSABLE_ENTITY)
}

/// Response body that is sent under its request's id and span.
struct RequestIdBody {
    body: Body,
    id: Option<HeaderValue>,
    scope: Option<SpanScope>,
}

impl http_body::Body for RequestIdBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, id, scope } = &mut *self;
        let poll = || match id {
            Some(id) => in_request(id, || Pin::new(body).poll_frame(context)),
            None => Pin::new(body).poll_frame(context),
        };
        match scope {
            Some(scope) => scope.enter(poll),
            None => poll(),
        }
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
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use martlet_protocol::DeviceId;
    use martlet_protocol::backend::CallKind;
    use martlet_serving::testing::json_lines;
    use tower::ServiceExt;

    use super::*;

    async fn logged(path: &str, id: Option<&str>) -> String {
        let (lines, _on) = json_lines();
        let app = Router::new()
            .route("/good", get(|| async { "good" }))
            .route("/bad", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
            .layer(from_fn_with_state(None, with_request_id));
        let request = id.map_or(Request::get(path), |id| Request::get(path).header(REQUEST, id));
        let reply = app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        reply.into_body().collect().await.unwrap();
        lines.text()
    }

    #[tokio::test]
    async fn log_lines_of_calls_have_the_request_id() {
        let line: serde_json::Value =
            serde_json::from_str(&logged("/good", Some("00AB")).await).unwrap();
        assert_eq!((&line["request_id"], &line["level"]), (&"00AB".into(), &"DEBUG".into()));
        assert_eq!((&line["path"], &line["status"]), (&"/good".into(), &200.into()));
        let line: serde_json::Value =
            serde_json::from_str(&logged("/bad", Some("00AB")).await).unwrap();
        assert_eq!((&line["request_id"], &line["level"]), (&"00AB".into(), &"WARN".into()));
    }

    #[test]
    fn calls_of_channels_are_logged_like_requests() {
        let (lines, _on) = json_lines();
        let served = |status| ServedCall {
            device: DeviceId(3),
            kind: CallKind::Read,
            status,
            took: Duration::from_micros(7),
        };
        in_request(&HeaderValue::from_static("00AB"), || {
            log_call(served(StatusCode::OK));
            log_call(served(StatusCode::UNPROCESSABLE_ENTITY));
        });
        let text = lines.text();
        let parse = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let logged: Vec<_> = text.lines().map(parse).collect();
        for (line, level, status) in [(&logged[0], "DEBUG", 200), (&logged[1], "WARN", 422)] {
            assert_eq!((&line["request_id"], &line["level"]), (&"00AB".into(), &level.into()));
            assert_eq!((&line["path"], &line["status"]), (&"/v1/d/3/read".into(), &status.into()));
            assert_eq!(line["took_us"], 7);
        }
    }

    #[tokio::test]
    async fn failures_of_calls_without_a_request_id_are_not_logged() {
        assert_eq!(logged("/bad", None).await, "");
    }
}
