//! Admin API of buckets: their list, settings beyond S3's, rewrites to another storage policy, rewraps of data
//! keys, and checkpoint sets.

mod checkpoints;
mod list;
mod rewrap;
mod rewrites;

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use martlet_admin_api::{
    self as wire, BucketLine, buckets, checkpoints as sets, rewrap as rewrapping, rewrite,
};
use martlet_protocol::entry::{Bucket, ETagKind};
use martlet_protocol::{Level, Settings};
use martlet_proxy::{Error, ObjectStore, RewriteOptions, set_etag_kind};
use martlet_replicator::{Foreground, WorkerPace};
use martlet_serving::Size;
use martlet_serving::operator::refuse;
use serde::Deserialize;

use self::rewrites::Rewrites;

/// Minimum rate of a rewrite. A slower rewrite would exceed the nodes' timeout for idle bodies.
const RATE_BYTES_PER_S_MIN: u64 = 1024 * 1024;

/// Routes of `martlet admin bucket`. `foreground` measures the latency of clients' requests.
pub fn routes(store: ObjectStore, foreground: Arc<Foreground>) -> Router {
    let api = Arc::new(BucketsApi { store, foreground, rewrites: Rewrites::default() });
    Router::new()
        .route(buckets::BUCKETS, get(list::list))
        .route(wire::BUCKET, get(show).put(set))
        .route(rewrite::REWRITE, get(rewritten).put(rewrite))
        .route(rewrapping::REWRAP, put(rewrap::rewrap))
        .route(sets::RULES, get(checkpoints::rules).put(checkpoints::set_rules))
        .route(sets::SETS, get(checkpoints::sets).delete(checkpoints::withdraw))
        .route(sets::RETENTION, get(checkpoints::retention))
        .with_state(api)
}

struct BucketsApi {
    store: ObjectStore,
    foreground: Arc<Foreground>,
    rewrites: Rewrites,
}

type BucketsState = State<Arc<BucketsApi>>;

#[derive(Deserialize)]
struct BucketQuery {
    bucket: String,
}

#[derive(Deserialize)]
struct BucketChange {
    bucket: String,
    consistency: Option<Level>,
    storage_policy: Option<String>,
    etags: Option<String>,
}

#[derive(Deserialize)]
struct RewriteRequest {
    bucket: String,
    /// Maximum bytes per second.
    rate: Option<Size>,
    #[serde(default)]
    stop: bool,
}

async fn show(State(api): BucketsState, Query(which): Query<BucketQuery>) -> Response {
    match api.store.bucket(&which.bucket).await {
        Ok(bucket) => api.line(which.bucket, &bucket),
        Err(error) => refused(&error),
    }
}

async fn set(State(api): BucketsState, Query(change): Query<BucketChange>) -> Response {
    let BucketChange { bucket: name, consistency, storage_policy, etags } = change;
    let etags = match etags.map(|kind| kind.parse::<ETagKind>()).transpose() {
        Ok(etags) => etags,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let mut set = None;
    // The storage policy may be refused, so it is set first.
    if let Some(policy) = storage_policy {
        set = Some(api.store.buckets().set_policy(&name, &policy).await);
    }
    if let (Some(level), None | Some(Ok(_))) = (consistency, &set) {
        set = Some(api.store.buckets().set_consistency(&name, level).await);
    }
    if let (Some(kind), None | Some(Ok(_))) = (etags, &set) {
        set = Some(api.set_etags(&name, kind).await);
    }
    match set {
        Some(Ok(bucket)) => api.line(name, &bucket),
        Some(Err(error)) => refused(&error),
        None => {
            let sentence = "nothing to set: give consistency, storage_policy or etags";
            refuse(StatusCode::BAD_REQUEST, sentence)
        }
    }
}

async fn rewritten(State(api): BucketsState, Query(which): Query<BucketQuery>) -> Response {
    match api.rewrites.of(&which.bucket) {
        Some(line) => Json(line).into_response(),
        None => not_rewritten(&which.bucket),
    }
}

async fn rewrite(State(api): BucketsState, Query(request): Query<RewriteRequest>) -> Response {
    let RewriteRequest { bucket, rate, stop } = request;
    if stop {
        return match api.rewrites.stop(&bucket) {
            Some(line) => Json(line).into_response(),
            None => not_rewritten(&bucket),
        };
    }
    if rate.is_some_and(|Size(bytes)| bytes < RATE_BYTES_PER_S_MIN) {
        let sentence = "--rate must be at least 1MiB per second";
        return refuse(StatusCode::BAD_REQUEST, sentence);
    }
    // A misspelt name is refused at once.
    if let Err(error) = api.store.bucket(&bucket).await {
        return refused(&error);
    }
    let foreground = api.foreground.clone();
    let budget = WorkerPace::default().latency_budget;
    let options = RewriteOptions {
        bytes_per_s: rate.map(|Size(bytes)| bytes),
        clients_wait: Some(Arc::new(move || foreground.latency() > budget)),
    };
    match api.rewrites.begin(api.store.clone(), &bucket, options) {
        Ok(line) => Json(line).into_response(),
        Err(sentence) => refuse(StatusCode::CONFLICT, &sentence),
    }
}

fn not_rewritten(bucket: &str) -> Response {
    let sentence = format!("no rewrite of {bucket} was started here since this process started");
    refuse(StatusCode::NOT_FOUND, &sentence)
}

impl BucketsApi {
    /// Sets the kind of the ETags of a bucket's new objects, and returns the bucket.
    async fn set_etags(&self, name: &str, kind: ETagKind) -> Result<Bucket, Error> {
        let set = |settings: &mut Settings| set_etag_kind(settings, kind);
        self.store.buckets().change_settings(name, set).await?;
        Ok(Bucket::clone(&*self.store.bucket(name).await?))
    }

    fn line(&self, name: String, bucket: &Bucket) -> Response {
        let policy = self.store.topology().cluster().policy_name(bucket.policy).map(str::to_owned);
        let line = BucketLine {
            bucket: name,
            id: bucket.id.to_string(),
            index_shards: bucket.index_shards,
            consistency: bucket.consistency.to_string(),
            etags: bucket.etags().to_string(),
            storage_policy: policy.unwrap_or_else(|| bucket.policy.0.to_string()),
        };
        Json(line).into_response()
    }
}

fn refused(error: &Error) -> Response {
    let status = match error {
        Error::NoSuchBucket => StatusCode::NOT_FOUND,
        Error::InvalidArgument(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    refuse(status, &error.to_string())
}
