//! Filter for devices of this node that are not open: not configured, or new in a later ring.
//!
//! Requests for them are answered 503 and never "not found": a caller that queries all devices for
//! a register or extent would conclude that none exists.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use martlet_protocol::DeviceId;

/// Header with the kind of an error, as all members of a cluster read it.
const ERROR: HeaderName = HeaderName::from_static("x-martlet-error");
/// Header on errors of requests that had no effect.
const UNTOUCHED: HeaderName = HeaderName::from_static("x-martlet-untouched");

/// Open devices.
pub(super) type ConfiguredDevices = State<Arc<BTreeMap<DeviceId, PathBuf>>>;

/// Passes requests for open devices. Requests for any other device are answered 503.
pub(super) async fn only(
    State(given): ConfiguredDevices,
    request: Request,
    next: Next,
) -> Response {
    match device_of(request.uri().path()) {
        Some(device) if !given.contains_key(&device) => {
            let sentence = format!("device {device} is not configured at this node");
            let headers = [(ERROR, "unavailable"), (UNTOUCHED, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, headers, sentence).into_response()
        }
        _ => next.run(request).await,
    }
}

/// Returns the device in a path of the internal port.
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
