//! Admin API of the items in quarantine of a device.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::quarantine::{
    EXTENT, INDEX, OTHER, PAGE_DEFAULT, PAGE_MAX, QUARANTINE, QuarantineLine, RECORD,
};
use martlet_protocol::backend::{QuarantineKind, QuarantinedItem};
use martlet_protocol::{BackendExt, DeviceId, ErrorKind};
use martlet_proxy::ObjectStore;
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::{ApiError, ApiResult};

/// Route of `martlet admin device quarantine`.
pub fn routes(store: ObjectStore) -> ApiRoutes {
    let summary = "List the items in quarantine of a device, in the order of their names";
    let doc = ApiDoc::reply::<ListPage<QuarantineLine>>(RouteAccess::Read, summary);
    ApiRoutes::new().get(QUARANTINE, doc.query::<QuarantineQuery>(), list).with_state(store)
}

#[derive(Deserialize, JsonSchema)]
struct QuarantineQuery {
    /// Id of the device.
    device: u32,
    /// Name of the last item of the page before.
    after: Option<String>,
    /// Maximum number of items, 500 at most. Default: 100.
    limit: Option<usize>,
}

async fn list(State(store): State<ObjectStore>, Query(query): Query<QuarantineQuery>) -> ApiResult {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let device = DeviceId(query.device);
    let cluster = store.topology().cluster();
    let node = cluster.node(device).map_err(|_| missing(device))?;
    let page = node.quarantine(device, query.after.as_deref(), limit).await;
    let page = page.map_err(|error| match error.kind() {
        ErrorKind::NotFound => missing(device),
        // Also a node of an earlier release, which doesn't know the call.
        _ => ApiError(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the node of device {device} doesn't list its quarantine: {error}"),
        ),
    })?;
    let items = page.items.into_iter().map(line).collect();
    Ok(Json(ListPage { items, next: page.next }).into_response())
}

fn missing(device: DeviceId) -> ApiError {
    ApiError::missing(format!("no ring in use has a device {device}"))
}

fn line(item: QuarantinedItem) -> QuarantineLine {
    let QuarantinedItem { name, kind, bytes, since_ms } = item;
    let line = QuarantineLine { name, bytes, since_ms, ..QuarantineLine::default() };
    let named = |kind: &str, line| QuarantineLine { kind: kind.to_owned(), ..line };
    match kind {
        QuarantineKind::Extent(id) => {
            named(EXTENT, QuarantineLine { extent: Some(id.to_string()), ..line })
        }
        QuarantineKind::Record { volume, offset } => {
            named(RECORD, QuarantineLine { volume: Some(volume), offset: Some(offset), ..line })
        }
        QuarantineKind::Index { generation } => {
            named(INDEX, QuarantineLine { generation: Some(generation), ..line })
        }
        QuarantineKind::Other => named(OTHER, line),
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::ExtentId;

    use super::*;

    #[test]
    fn a_line_has_what_the_name_of_an_item_shows() {
        let line = |kind| {
            line(QuarantinedItem { name: "n".to_owned(), kind, bytes: Some(3), since_ms: None })
        };
        let extent = line(QuarantineKind::Extent(ExtentId([1; 16])));
        assert_eq!((extent.kind.as_str(), extent.bytes), (EXTENT, Some(3)));
        assert_eq!(extent.extent, Some(ExtentId([1; 16]).to_string()));
        let record = line(QuarantineKind::Record { volume: 2, offset: 4096 });
        assert_eq!(
            (record.kind.as_str(), record.volume, record.offset),
            (RECORD, Some(2), Some(4096))
        );
        assert_eq!(line(QuarantineKind::Index { generation: 9 }).generation, Some(9));
        assert_eq!(line(QuarantineKind::Other).kind, OTHER);
    }
}
