//! Admin API of lost index partitions: state, hold on collection, and adopted buckets. Acceptance and
//! rebuild are [`jobs`](crate::jobs).

mod state;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use martlet_admin_api::BucketLine;
use martlet_admin_api::index::{self as wire, IndexLine};
use martlet_protocol::{BucketId, Clock};
use martlet_proxy::{
    Error, LostVersioning, NewBucket, ObjectStore, ROOT, adopt_bucket, settings_of_adopted,
};
use martlet_replicator::{AcceptedLoss, IndexLoss, preview_loss};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use schemars::JsonSchema;
use serde::Deserialize;

pub use self::state::HoldObstacles;
pub(crate) use self::state::RebuildState;
use crate::api::{ApiError, ApiResult};

/// Routes of `martlet admin index`.
pub(crate) fn routes(
    store: ObjectStore,
    rebuilds: Arc<RebuildState>,
    clock: Arc<dyn Clock>,
) -> ApiRoutes {
    let show = ApiDoc::reply::<IndexLine>(
        RouteAccess::Read,
        "Show the hold on collection and the devices that lost index registers",
    );
    let hold = ApiDoc::reply::<IndexLine>(
        RouteAccess::Operate,
        "Hold the collection of extents and tombstones",
    );
    let release = ApiDoc::reply::<IndexLine>(
        RouteAccess::Operate,
        "End the hold: extents without an entry are collected from then on",
    );
    let adopt = ApiDoc::reply::<BucketLine>(
        RouteAccess::Operate,
        "Create a bucket under the id of one whose register is lost",
    );
    ApiRoutes::new()
        .get(wire::INDEX, show, self::show)
        .put(wire::HOLD, hold, self::hold)
        .delete(wire::HOLD, release, self::release)
        .put(wire::ADOPT, adopt.query::<AdoptQuery>(), self::adopt)
        .with_state(IndexApi { store, rebuilds, clock })
}

#[derive(Clone)]
struct IndexApi {
    store: ObjectStore,
    rebuilds: Arc<RebuildState>,
    clock: Arc<dyn Clock>,
}

#[derive(Deserialize, JsonSchema)]
struct AdoptQuery {
    /// Id of the lost bucket: 32 hexadecimal digits.
    id: String,
    /// Name of the new bucket.
    bucket: String,
    /// Tenant that owns the bucket. Default: `root`.
    tenant: Option<String>,
    /// Number of index shards of the lost bucket: new buckets have 16, unless one was named.
    index_shards: u16,
    /// Storage policy of new objects. Default: that of new buckets.
    storage_policy: Option<String>,
    /// Versioning that the lost bucket had.
    versioning: AdoptedVersioning,
}

/// Versioning of a lost bucket.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AdoptedVersioning {
    /// Never enabled.
    Off,
    /// Suspended.
    Suspended,
    /// Enabled.
    Enabled,
    /// Enabled, with Object Lock.
    Locked,
}

impl From<AdoptedVersioning> for LostVersioning {
    fn from(versioning: AdoptedVersioning) -> Self {
        match versioning {
            AdoptedVersioning::Off => Self::Off,
            AdoptedVersioning::Suspended => Self::Suspended,
            AdoptedVersioning::Enabled => Self::Enabled,
            AdoptedVersioning::Locked => Self::Locked,
        }
    }
}

async fn show(State(api): State<IndexApi>) -> ApiResult {
    let loss = IndexLoss::read(api.store.topology()).await.map_err(unavailable)?;
    api.reply(&loss).await
}

async fn hold(State(api): State<IndexApi>) -> ApiResult {
    api.rebuilds.check_obstacles().await?;
    let held = IndexLoss::hold(api.store.topology(), &api.clock).await.map_err(unavailable)?;
    api.reply(&held).await
}

async fn release(State(api): State<IndexApi>) -> ApiResult {
    if api.rebuilds.is_running() {
        let sentence = "a rebuild runs in this process: wait for its end, or stop it";
        return Err(ApiError(StatusCode::CONFLICT, sentence.to_owned()));
    }
    let free = IndexLoss::release(api.store.topology(), &api.clock).await.map_err(unavailable)?;
    api.reply(&free).await
}

async fn adopt(State(api): State<IndexApi>, Query(query): Query<AdoptQuery>) -> ApiResult {
    let malformed = || ApiError::bad("the id of a bucket has 32 hexadecimal digits");
    let id = hex::decode(&query.id).map_err(|_| malformed())?;
    let id = BucketId(<[u8; 16]>::try_from(id).map_err(|_| malformed())?);
    let tenant = query.tenant.as_deref().unwrap_or(ROOT);
    let owner = api.store.directory().account_called(tenant).await?;
    let unknown = || ApiError::missing(format!("there is no tenant {tenant}"));
    let new = NewBucket {
        owner: owner.ok_or_else(unknown)?.canonical_id,
        index_shards: query.index_shards,
        policy: query.storage_policy,
        settings: settings_of_adopted(query.versioning.into(), api.clock.now_ms())?,
    };
    let bucket = adopt_bucket(api.store.buckets(), &query.bucket, new, id).await;
    let bucket = bucket.map_err(|error| match error {
        Error::BucketExists { .. } => {
            Error::InvalidBucketState(format!("the name {} is taken", query.bucket))
        }
        Error::InvalidRequest(why) => Error::InvalidArgument(why),
        other => other,
    })?;
    let cluster = api.store.topology().cluster();
    let policy = cluster.policy_name(bucket.policy).map(str::to_owned);
    let line = BucketLine {
        bucket: query.bucket,
        id: bucket.id.to_string(),
        index_shards: bucket.index_shards,
        consistency: bucket.consistency.to_string(),
        etags: bucket.etags().to_string(),
        storage_policy: policy.unwrap_or_else(|| bucket.policy.0.to_string()),
    };
    Ok(Json(line).into_response())
}

impl IndexApi {
    async fn reply(&self, loss: &IndexLoss) -> ApiResult {
        let topology = self.store.topology();
        let preview = preview_loss(topology).await;
        let (acceptable, nothing_to_accept) = match preview {
            Ok(acceptable) => (acceptable, None),
            Err(error) => (AcceptedLoss::default(), Some(error.to_string())),
        };
        let line = IndexLine {
            held_since_ms: loss.held_since_ms,
            lost_devices: loss.lost.iter().map(|device| device.0).collect(),
            lost_partitions: loss.partitions.count(),
            acceptable_devices: acceptable.devices.iter().map(|device| device.0).collect(),
            acceptable_partitions: acceptable.partitions.count(),
            nothing_to_accept,
            last_rebuild: self.rebuilds.last(),
        };
        Ok(Json(line).into_response())
    }
}

fn unavailable(error: martlet_protocol::Error) -> ApiError {
    Error::from(error).into()
}
