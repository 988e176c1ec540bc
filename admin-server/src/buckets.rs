//! Admin API of buckets: their list, settings beyond S3's, and checkpoint sets.

mod checkpoints;
mod list;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::buckets::{self, BucketSummary};
use martlet_admin_api::checkpoints::{
    self as sets, RetentionPage, RulesLine, SetPage, WithdrawnLine,
};
use martlet_admin_api::{self as wire, BucketLine};
use martlet_protocol::entry::{Bucket, ETagKind};
use martlet_protocol::{Level, Settings};
use martlet_proxy::{Error, ObjectStore, set_etag_kind};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_serving::operator::refuse;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::{OF_BUCKET, OF_TENANT};

/// Routes of `martlet admin bucket`.
pub fn routes(store: ObjectStore) -> ApiRoutes {
    let api = Arc::new(BucketsApi { store });
    settings_routes().merge(checkpoint_routes()).with_state(api)
}

fn settings_routes() -> ApiRoutes<Arc<BucketsApi>> {
    let list = ApiDoc::reply::<ListPage<BucketSummary>>(
        RouteAccess::TenantRead(OF_TENANT),
        "List buckets, in pages",
    );
    let show = ApiDoc::reply::<BucketLine>(
        RouteAccess::TenantRead(OF_BUCKET),
        "Show the settings of a bucket",
    );
    let set = ApiDoc::reply::<BucketLine>(
        RouteAccess::TenantChange(OF_BUCKET),
        "Change settings of a bucket",
    );
    ApiRoutes::new()
        .get(buckets::BUCKETS, list.query::<list::BucketsQuery>(), list::list)
        .get(wire::BUCKET, show.query::<BucketQuery>(), self::show)
        .put(wire::BUCKET, set.query::<BucketChange>(), self::set)
}

fn checkpoint_routes() -> ApiRoutes<Arc<BucketsApi>> {
    let rules = ApiDoc::reply::<RulesLine>(
        RouteAccess::TenantRead(OF_BUCKET),
        "Show the checkpoint rules of a bucket",
    );
    let set_rules = ApiDoc::reply::<RulesLine>(
        RouteAccess::TenantChange(OF_BUCKET),
        "Replace or remove the checkpoint rules of a bucket",
    );
    let list = ApiDoc::reply::<SetPage>(
        RouteAccess::TenantRead(OF_BUCKET),
        "List the checkpoint sets of a bucket, in pages",
    );
    let withdraw = ApiDoc::reply::<WithdrawnLine>(
        RouteAccess::TenantChange(OF_BUCKET),
        "Withdraw generations of a checkpoint set",
    );
    let retention = ApiDoc::reply::<RetentionPage>(
        RouteAccess::TenantRead(OF_BUCKET),
        "List what rules will withdraw, in pages",
    );
    ApiRoutes::new()
        .get(sets::RULES, rules.query::<BucketQuery>(), checkpoints::rules)
        .put(sets::RULES, set_rules.body::<RulesLine>(), checkpoints::set_rules)
        .get(sets::SETS, list.query::<checkpoints::SetsQuery>(), checkpoints::sets)
        .delete(sets::SETS, withdraw.query::<checkpoints::Withdrawal>(), checkpoints::withdraw)
        .get(
            sets::RETENTION,
            retention.query::<checkpoints::RetentionQuery>(),
            checkpoints::retention,
        )
}

struct BucketsApi {
    store: ObjectStore,
}

type BucketsState = State<Arc<BucketsApi>>;

#[derive(Deserialize, JsonSchema)]
struct BucketQuery {
    /// Name of the bucket.
    bucket: String,
}

#[derive(Deserialize, JsonSchema)]
struct BucketChange {
    /// Name of the bucket.
    bucket: String,
    /// `available`, `strict` or `any`: consistency of requests that name none.
    #[schemars(with = "Option<String>")]
    consistency: Option<Level>,
    /// Name of the storage policy of new objects.
    storage_policy: Option<String>,
    /// `md5` or `opaque`: kind of the ETags of new objects.
    etags: Option<String>,
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
