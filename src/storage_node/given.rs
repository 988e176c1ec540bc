//! Stands in front of the backend for devices of this node that it has not opened: not given, or new
//! in a ring that came later.
//!
//! The answer is "not now". It must never be "not found": who asks every device where something is
//! would take that for the truth.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use martlet_protocol::DeviceId;

/// The kind of the error that a reply tells of, as all members of a cluster read it.
const ERROR: HeaderName = HeaderName::from_static("x-martlet-error");
/// On errors that came before anything was done.
const UNTOUCHED: HeaderName = HeaderName::from_static("x-martlet-untouched");

/// The devices that are open.
pub(super) type Given = State<Arc<BTreeMap<DeviceId, PathBuf>>>;

/// Lets requests for the devices pass that this node was given.
pub(super) async fn only(State(given): Given, request: Request, next: Next) -> Response {
    match device_of(request.uri().path()) {
        Some(device) if !given.contains_key(&device) => {
            let sentence = format!("device {device} was not given to this node");
            let headers = [(ERROR, "unavailable"), (UNTOUCHED, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, headers, sentence).into_response()
        }
        _ => next.run(request).await,
    }
}

/// The device that a path of the internal port speaks of.
fn device_of(path: &str) -> Option<DeviceId> {
    let device = path.strip_prefix("/v1/d/")?.split('/').next()?;
    device.parse().ok().map(DeviceId)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn devices_that_are_not_open_are_unavailable_and_not_unknown() {
        let given = Arc::new(BTreeMap::from([(DeviceId(3), PathBuf::from("/x"))]));
        let app = Router::new()
            .fallback(get(|| async { "let in" }))
            .layer(from_fn_with_state(given, only));
        for (path, status) in [
            ("/v1/d/3/read", StatusCode::OK),
            ("/v1/devices", StatusCode::OK),
            ("/v1/d/4/read", StatusCode::SERVICE_UNAVAILABLE),
            ("/v1/d/4/extents/00", StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let reply = app.clone().oneshot(request).await.unwrap();
            assert_eq!(reply.status(), status, "{path}");
            let named = reply.headers().get(ERROR).is_some_and(|kind| kind == "unavailable");
            assert_eq!(named, status != StatusCode::OK);
        }
    }
}
