//! What can be set about a bucket besides what S3 has words for.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use martlet_protocol::Level;
use martlet_protocol::entry::Bucket;
use martlet_proxy::{Error, ObjectStore};
use serde::Deserialize;

use super::operator::refuse;
use crate::admin::wire::{self, BucketLine};

/// Where `martlet admin bucket` finds its answers.
pub(crate) fn routes(store: ObjectStore) -> Router {
    Router::new().route(wire::BUCKET, get(show).put(set)).with_state(store)
}

#[derive(Deserialize)]
struct Which {
    bucket: String,
}

#[derive(Deserialize)]
struct Change {
    bucket: String,
    consistency: Level,
}

async fn show(State(store): State<ObjectStore>, Query(which): Query<Which>) -> Response {
    match store.bucket(&which.bucket).await {
        Ok(bucket) => line(which.bucket, &bucket),
        Err(error) => refused(&error),
    }
}

async fn set(State(store): State<ObjectStore>, Query(change): Query<Change>) -> Response {
    match store.set_bucket_consistency(&change.bucket, change.consistency).await {
        Ok(bucket) => line(change.bucket, &bucket),
        Err(error) => refused(&error),
    }
}

fn line(name: String, bucket: &Bucket) -> Response {
    let line = BucketLine {
        bucket: name,
        id: bucket.id.to_string(),
        index_shards: bucket.index_shards,
        consistency: bucket.consistency.to_string(),
    };
    Json(line).into_response()
}

fn refused(error: &Error) -> Response {
    let status = match error {
        Error::NoSuchBucket => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    refuse(status, &error.to_string())
}
