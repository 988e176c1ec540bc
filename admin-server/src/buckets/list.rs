//! List of buckets with owner, settings and the last count of their contents, in pages.
//!
//! A page examines a bounded number of buckets, whichever it returns. So a page for one tenant may
//! be short or empty while more follow.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use futures::stream::{self, StreamExt, TryStreamExt};
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::buckets::{BucketSummary, PAGE_DEFAULT, PAGE_MAX};
use martlet_protocol::Versioning;
use martlet_proxy::{AccountOf, BucketUsage, NamedBucket, ObjectStore, ROOT, is_companion};
use schemars::JsonSchema;
use serde::Deserialize;

use super::BucketsState;
use crate::api::{ApiError, ApiResult};

/// Concurrent reads of counts and owners for one page.
const READS_AT_ONCE: usize = 16;

#[derive(Deserialize, JsonSchema)]
pub(super) struct BucketsQuery {
    /// Name of the tenant that owns the buckets, or `root`.
    tenant: Option<String>,
    /// Begin of the buckets' names.
    #[serde(default)]
    prefix: String,
    /// `next` of the page before.
    after: Option<String>,
    /// Maximum number of buckets that the page examines, 1 to 1000. Default: 500.
    limit: Option<usize>,
}

pub(super) async fn list(
    State(api): BucketsState,
    Query(request): Query<BucketsQuery>,
) -> ApiResult {
    let limit = request.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ApiError::bad(format!("limit must be 1 to {PAGE_MAX}")));
    }
    let store = &api.store;
    let owner = match &request.tenant {
        None => None,
        Some(tenant) => Some(owner_called(store, tenant).await?),
    };
    let page = store.buckets().list(&request.prefix, request.after.as_deref(), limit).await;
    let (buckets, more) = page?;
    let next = buckets.last().filter(|_| more).map(|last| last.name.clone());
    let is_wanted = |named: &NamedBucket| {
        !is_companion(&named.name) && owner.as_ref().is_none_or(|id| named.bucket.owner == *id)
    };
    let wanted: Vec<NamedBucket> = buckets.into_iter().filter(is_wanted).collect();
    let tenants = tenants_of(store, &wanted).await?;
    let reads: Vec<_> =
        wanted.iter().map(|named| store.directory().bucket_usage(&named.bucket)).collect();
    let counted: Vec<Option<BucketUsage>> =
        stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
    let items: Vec<BucketSummary> = wanted
        .into_iter()
        .zip(counted)
        .map(|(named, usage)| summary(store, &tenants, named, usage))
        .collect();
    Ok(Json(ListPage { items, next }).into_response())
}

/// Returns the canonical id of a tenant by its name.
async fn owner_called(store: &ObjectStore, tenant: &str) -> Result<String, ApiError> {
    let account = store.directory().account_called(tenant).await?;
    let account = account.filter(|account| account.name == tenant);
    let unknown = || ApiError::missing(format!("there is no tenant {tenant}"));
    account.map(|account| account.canonical_id).ok_or_else(unknown)
}

/// Names of the tenants that own these buckets, by their canonical ids.
async fn tenants_of(
    store: &ObjectStore,
    buckets: &[NamedBucket],
) -> Result<HashMap<String, String>, ApiError> {
    let mut owners: Vec<&str> = buckets.iter().map(|named| named.bucket.owner.as_str()).collect();
    owners.sort_unstable();
    owners.dedup();
    let reads: Vec<_> =
        owners.into_iter().map(|owner| store.directory().account_called(owner)).collect();
    let found: Vec<Option<AccountOf>> =
        stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
    let named = found.into_iter().flatten().map(|account| (account.canonical_id, account.name));
    let root = (ROOT.to_owned(), ROOT.to_owned());
    Ok(named.chain([root]).collect())
}

fn summary(
    store: &ObjectStore,
    tenants: &HashMap<String, String>,
    named: NamedBucket,
    usage: Option<BucketUsage>,
) -> BucketSummary {
    let NamedBucket { name, bucket } = named;
    let cluster = store.topology().cluster();
    let policy = cluster.policy_name(bucket.policy).map(str::to_owned);
    BucketSummary {
        bucket: name,
        id: bucket.id.to_string(),
        tenant: tenants.get(&bucket.owner).cloned(),
        created_ms: bucket.created_ms,
        storage_policy: policy.unwrap_or_else(|| bucket.policy.0.to_string()),
        index_shards: bucket.index_shards,
        consistency: bucket.consistency.to_string(),
        versioning: versioning_name(bucket.versioning().state).to_owned(),
        canonical_id: bucket.owner,
        bytes: usage.as_ref().map(|it| it.usage.bytes),
        objects: usage.as_ref().map(|it| it.usage.objects),
        index: usage.as_ref().map(|it| it.usage.index),
        counted_ms: usage.map(|it| it.began_ms),
    }
}

fn versioning_name(state: Versioning) -> &'static str {
    match state {
        Versioning::Off => "off",
        Versioning::Preparing => "preparing",
        Versioning::Enabled => "enabled",
        Versioning::Suspended => "suspended",
    }
}
