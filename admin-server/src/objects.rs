//! Admin API of objects' extents and their places on disk.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::{self as wire, ExtentLine, ObjectExtents};
use martlet_protocol::entry::{Body, Object};
use martlet_proxy::{Error, ExtentPlace, ObjectStore};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_serving::operator::refuse;
use schemars::JsonSchema;
use serde::Deserialize;

/// Route of `martlet admin extents`.
pub fn extents_of(store: ObjectStore) -> ApiRoutes {
    let doc = ApiDoc::reply::<ObjectExtents>(RouteAccess::Read, "Show the extents of an object");
    ApiRoutes::new().get(wire::EXTENTS, doc.query::<ObjectQuery>(), extents).with_state(store)
}

#[derive(Deserialize, JsonSchema)]
struct ObjectQuery {
    /// Name of the bucket.
    bucket: String,
    /// Key of the object.
    key: String,
}

async fn extents(State(store): State<ObjectStore>, Query(which): Query<ObjectQuery>) -> Response {
    match store.in_place().places(&which.bucket, &which.key).await {
        Ok((object, places)) => Json(object_extents(which, &object, places)).into_response(),
        Err(error @ (Error::NoSuchBucket | Error::NoSuchKey)) => {
            refuse(StatusCode::NOT_FOUND, &error.to_string())
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn object_extents(which: ObjectQuery, object: &Object, places: Vec<ExtentPlace>) -> ObjectExtents {
    let stored = match object.body {
        Body::Empty => "empty",
        Body::Inline { .. } => "inline",
        Body::Extents(_) | Body::Spilled { .. } => "extents",
    };
    let line = |place: ExtentPlace| ExtentLine {
        id: place.extent.id.to_string(),
        object_offset: place.object_offset,
        device: place.device.0,
        path: place.location.path,
        offset: place.location.offset,
        length: place.location.length,
        blake3: hex::encode(place.extent.blake3),
    };
    ObjectExtents {
        bucket: which.bucket,
        key: which.key,
        size: object.size,
        etag: object.etag.to_string(),
        stored: stored.to_owned(),
        extents: places.into_iter().map(line).collect(),
    }
}
