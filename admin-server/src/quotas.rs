//! Admin API of quotas and usage of tenants and buckets.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use martlet_admin_api::limits::{self as wire, Bound, QuotaChange, QuotaLine};
use martlet_protocol::usage::{Quota, Usage, UsageCounter};
use martlet_proxy::{Accounts, Error, ObjectStore, Tenant};
use martlet_serving::access::{RouteAccess, TenantField};
use martlet_serving::api::{ApiDoc, ApiRoutes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::api::{ApiResult, OF_BUCKET, OF_TENANT, named, read};

/// Routes that show and set quotas.
pub(crate) fn routes(accounts: Accounts, store: ObjectStore) -> ApiRoutes {
    let [of_tenant, of_bucket] = [OF_TENANT, OF_BUCKET].map(RouteAccess::TenantRead);
    let show = |access| ApiDoc::reply::<QuotaLine>(access, "Show a quota, with the last count");
    let set = |access| ApiDoc::reply::<QuotaLine>(access, "Change a quota").body::<QuotaChange>();
    // A quota of a tenant binds its own admins.
    let [set_quota, set_of_bucket] =
        [RouteAccess::Operate, RouteAccess::TenantChange(TenantField::Bucket("name"))].map(set);
    let count = "Show the usage of a bucket, counting it if needed";
    let count = ApiDoc::reply::<QuotaLine>(of_bucket, count);
    ApiRoutes::new()
        .get(wire::TENANT_QUOTA, show(of_tenant).query::<QuotaQuery>(), tenant)
        .put(wire::TENANT_QUOTA, set_quota, set_tenant)
        .get(wire::BUCKET_QUOTA, show(of_bucket).query::<QuotaQuery>(), bucket)
        .put(wire::BUCKET_QUOTA, set_of_bucket, set_bucket)
        .get(wire::BUCKET_USAGE, count.query::<QuotaQuery>(), usage)
        .with_state(QuotasApi { accounts, store })
}

#[derive(Clone)]
struct QuotasApi {
    accounts: Accounts,
    store: ObjectStore,
}

type QuotasState = State<QuotasApi>;

#[derive(Default, Deserialize, JsonSchema)]
struct QuotaQuery {
    /// Name of the tenant, for routes of a tenant.
    tenant: Option<String>,
    /// Name of the bucket, for routes of a bucket.
    bucket: Option<String>,
    /// True counts the bucket even if a count exists.
    #[serde(default)]
    now: bool,
}

fn apply(change: &QuotaChange, quota: &mut Quota) {
    Bound::set(change.bytes, &mut quota.bytes);
    Bound::set(change.objects, &mut quota.objects);
    Bound::set(change.index, &mut quota.index);
}

/// Quota of a name, with its usage and the begin of its count.
pub(crate) fn line(name: &str, quota: Quota, held: Option<(Usage, u64)>) -> QuotaLine {
    QuotaLine {
        name: name.to_owned(),
        bytes_max: quota.bytes,
        objects_max: quota.objects,
        index_max: quota.index_max(),
        bytes: held.map(|(usage, _)| usage.bytes),
        objects: held.map(|(usage, _)| usage.objects),
        index: held.map(|(usage, _)| usage.index),
        counted_ms: held.map(|(_, began_ms)| began_ms),
    }
}

impl QuotasApi {
    async fn tenant(&self, tenant: &Tenant) -> ApiResult {
        let (usage, began_ms) = self.store.directory().tenant_usage(&tenant.canonical_id).await?;
        let held = began_ms.map(|began_ms| (usage, began_ms));
        Ok(Json(line(&tenant.name, tenant.quota, held)).into_response())
    }

    async fn bucket(&self, name: &str, now: bool) -> ApiResult {
        let bucket = self.store.bucket(name).await?;
        let quota = self.store.buckets().quota(name).await?;
        if !now {
            let counted = self.store.directory().bucket_usage(&bucket).await?;
            let held = counted.map(|it| (it.usage, it.began_ms));
            return Ok(Json(line(name, quota, held)).into_response());
        }
        let count = self.store.count_bucket(name, &mut |_| ()).await?;
        self.store.report(&count).await.map_err(Error::from)?;
        Ok(Json(line(name, quota, Some((count.usage, count.began_ms)))).into_response())
    }
}

async fn tenant(State(api): QuotasState, Query(which): Query<QuotaQuery>) -> ApiResult {
    let tenant = api.accounts.tenants().get(named(which.tenant.as_ref(), "tenant")?).await?;
    api.tenant(&tenant).await
}

async fn set_tenant(State(api): QuotasState, body: Bytes) -> ApiResult {
    let change: QuotaChange = read(&body)?;
    let changed =
        api.accounts.tenants().change_quota(&change.name, |quota| apply(&change, quota)).await;
    api.tenant(&changed?).await
}

async fn bucket(State(api): QuotasState, Query(which): Query<QuotaQuery>) -> ApiResult {
    api.bucket(named(which.bucket.as_ref(), "bucket")?, false).await
}

async fn set_bucket(State(api): QuotasState, body: Bytes) -> ApiResult {
    let change: QuotaChange = read(&body)?;
    let changed =
        api.store.buckets().change_quota(&change.name, |quota| apply(&change, quota)).await;
    changed?;
    api.bucket(&change.name, false).await
}

async fn usage(State(api): QuotasState, Query(which): Query<QuotaQuery>) -> ApiResult {
    let name = named(which.bucket.as_ref(), "bucket")?;
    let bucket = api.store.bucket(name).await?;
    let now = which.now || api.store.directory().bucket_usage(&bucket).await?.is_none();
    api.bucket(name, now).await
}
