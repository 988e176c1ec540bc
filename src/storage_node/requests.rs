//! Log lines of proxies' requests: each line carries the id of the client's request that caused it.
//!
//! Every such request is logged at the level debug. Requests that failed for an unexpected reason
//! are logged as warnings.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use martlet_protocol::http::{REQUEST, ServedCall, in_request, with_request};

/// Handles a request with its id on every log line.
pub(super) async fn with_request_id(request: Request, next: Next) -> Response {
    let Some(id) = request.headers().get(REQUEST).cloned() else { return next.run(request).await };
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let answer = async {
        let began = Instant::now();
        let response = next.run(request).await;
        log_request(&method, uri.path(), response.status(), began.elapsed());
        response
    };
    let response = with_request(id.clone(), answer).await;
    response.map(|body| Body::new(RequestIdBody { body, id }))
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

/// Response body that is sent under its request's id.
struct RequestIdBody {
    body: Body,
    id: HeaderValue,
}

impl http_body::Body for RequestIdBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, id } = &mut *self;
        in_request(id, || Pin::new(body).poll_frame(context))
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
    use axum::middleware::from_fn;
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
            .layer(from_fn(with_request_id));
        let request = id.map_or(Request::get(path), |id| Request::get(path).header(REQUEST, id));
        let reply = app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        reply.into_body().collect().await.unwrap();
        lines.text()
    }

    #[tokio::test]
    async fn lines_about_a_request_say_what_it_was_made_for() {
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
    async fn what_is_made_for_nobody_is_not_told() {
        assert_eq!(logged("/bad", None).await, "");
    }
}
