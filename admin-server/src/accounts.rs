//! Admin API of tenants, users, roles and access keys.

mod roles;
mod state;

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use martlet_admin_api::accounts::{
    self as wire, DeletedLine, KeyChange, KeyLine, KeyRequest, ListPage, Rotation, TenantChange,
    TenantLine, TenantRequest, UserLine, UserRequest,
};
use martlet_admin_api::limits::{Bound, RateChange, RateLine};
use martlet_proxy::{
    Accounts, DefaultView, Key, NewKey, NewUser, ObjectStore, Page, Rate, Role, Tenant, User,
};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};

use self::state::{AccountsApi, AccountsQuery, AccountsState};
use super::api::{
    ApiError, ApiResult, OF_KEY, OF_TENANT, PAGE_MAX, deleted, list_page, named, read,
};
use super::quotas;

/// Routes of `martlet admin tenant`, `user` and `key`. `root_key` is the access key of the root
/// identity, which has no account.
pub fn routes(accounts: Accounts, store: ObjectStore, root_key: &str) -> ApiRoutes {
    let limits = quotas::routes(accounts.clone(), store.clone());
    let api = AccountsApi { accounts, store, root_key: root_key.to_owned() };
    let accounts = tenant_routes().merge(user_routes()).merge(key_routes()).merge(roles::routes());
    accounts.with_state(api).merge(limits)
}

fn tenant_routes() -> ApiRoutes<AccountsApi> {
    let list = ApiDoc::reply::<ListPage<TenantLine>>(RouteAccess::Read, "List tenants, in pages");
    let create = ApiDoc::reply::<TenantLine>(RouteAccess::Operate, "Create a tenant");
    let show = ApiDoc::reply::<TenantLine>(RouteAccess::TenantRead(OF_TENANT), "Show a tenant");
    let change = ApiDoc::reply::<TenantLine>(RouteAccess::Operate, "Change a tenant");
    let delete = ApiDoc::reply::<DeletedLine>(
        RouteAccess::Operate,
        "Delete a tenant without users, keys and buckets",
    );
    ApiRoutes::new()
        .get(wire::TENANTS, list.query::<AccountsQuery>(), tenants)
        .post(wire::TENANTS, create.body::<TenantRequest>(), create_tenant)
        .get(wire::TENANT, show.query::<AccountsQuery>(), tenant)
        .put(wire::TENANT, change.body::<TenantChange>(), change_tenant)
        .delete(wire::TENANT, delete.query::<AccountsQuery>(), delete_tenant)
}

fn user_routes() -> ApiRoutes<AccountsApi> {
    let list = ApiDoc::reply::<ListPage<UserLine>>(
        RouteAccess::TenantRead(OF_TENANT),
        "List the users of a tenant, in pages",
    );
    let create = ApiDoc::reply::<UserLine>(RouteAccess::TenantChange(OF_TENANT), "Create a user");
    let show = ApiDoc::reply::<UserLine>(RouteAccess::TenantRead(OF_TENANT), "Show a user");
    let change = ApiDoc::reply::<UserLine>(RouteAccess::TenantChange(OF_TENANT), "Change a user");
    let delete = ApiDoc::reply::<DeletedLine>(
        RouteAccess::TenantChange(OF_TENANT),
        "Delete a user without keys",
    );
    ApiRoutes::new()
        .get(wire::USERS, list.query::<AccountsQuery>(), users)
        .post(wire::USERS, create.body::<UserRequest>(), create_user)
        .get(wire::USER, show.query::<AccountsQuery>(), user)
        .put(wire::USER, change.body::<UserRequest>(), change_user)
        .delete(wire::USER, delete.query::<AccountsQuery>(), delete_user)
}

fn key_routes() -> ApiRoutes<AccountsApi> {
    let list = ApiDoc::reply::<ListPage<KeyLine>>(
        RouteAccess::TenantRead(OF_TENANT),
        "List access keys, in pages",
    );
    let create = ApiDoc::reply::<KeyLine>(
        RouteAccess::TenantChange(OF_TENANT),
        "Create an access key; the reply has its secret key",
    );
    let show = ApiDoc::reply::<KeyLine>(
        RouteAccess::TenantRead(OF_KEY),
        "Show an access key, without its secret key",
    );
    let change =
        ApiDoc::reply::<KeyLine>(RouteAccess::TenantChange(OF_KEY), "Change an access key");
    let delete =
        ApiDoc::reply::<DeletedLine>(RouteAccess::TenantChange(OF_KEY), "Delete an access key");
    let rotate = ApiDoc::reply::<KeyLine>(
        RouteAccess::TenantChange(OF_KEY),
        "Replace the secret key; the reply has the new one",
    );
    ApiRoutes::new()
        .get(wire::KEYS, list.query::<AccountsQuery>(), keys)
        .post(wire::KEYS, create.body::<KeyRequest>(), create_key)
        .get(wire::KEY, show.query::<AccountsQuery>(), key)
        .put(wire::KEY, change.body::<KeyChange>(), change_key)
        .delete(wire::KEY, delete.query::<AccountsQuery>(), delete_key)
        .post(wire::ROTATE, rotate.body::<Rotation>(), rotate_key)
}

/// Pause between two attempts to seal secrets.
const SEAL_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Seals secrets that were stored in clear without a master key. Retries until all are sealed.
pub async fn seal_secrets(accounts: Accounts) {
    loop {
        match accounts.keys().seal_secrets().await {
            Ok(0) => return,
            Ok(sealed) => {
                tracing::warn!(
                    sealed,
                    "encrypted plain-text secrets of access keys: rotate the keys if a disk may \
                     have been read"
                );
                return;
            }
            Err(error) => {
                tracing::info!(%error, "could not encrypt plain-text secrets of access keys");
            }
        }
        tokio::time::sleep(SEAL_AGAIN_AFTER).await;
    }
}

fn tenant_line(tenant: Tenant) -> TenantLine {
    let Tenant { name, canonical_id, display_name, created_ms, networks, .. } = tenant;
    let (enabled, rate) = (!tenant.disabled, rate_line(tenant.rate));
    TenantLine { tenant: name, canonical_id, display_name, created_ms, enabled, networks, rate }
}

fn rate_line(rate: Rate) -> RateLine {
    RateLine { requests: rate.requests, bytes: rate.bytes }
}

/// Returns the update of a stored rate, or `None` if the rate stays unchanged.
fn rate_update(change: RateChange) -> Option<impl Fn(&mut Rate) + Send + Sync> {
    (change != RateChange::default()).then_some(move |rate: &mut Rate| {
        Bound::set(change.requests, &mut rate.requests);
        Bound::set(change.bytes, &mut rate.bytes);
    })
}

fn user_line(user: User) -> UserLine {
    let User { tenant, name, created_ms, role, disabled, policy, .. } = user;
    let arn = format!("arn:aws:iam::{tenant}:user/{name}");
    let (role, has_policy, enabled) = (role.to_string(), policy.is_some(), !disabled);
    UserLine { tenant, user: name, arn, role, has_policy, created_ms, enabled }
}

impl AccountsApi {
    async fn key_line(&self, key: Key, secret_key: Option<String>) -> KeyLine {
        let display_name = self.store.directory().owner_name(&key.tenant_id).await.to_string();
        KeyLine {
            secret_key,
            sealed: key.secret.is_sealed(),
            access_key: key.access_key,
            tenant: key.tenant,
            user: key.user.map(|user| user.name),
            canonical_id: key.tenant_id,
            display_name,
            created_ms: key.created_ms,
            rotated_ms: key.rotated_ms,
            enabled: !key.disabled,
            networks: key.networks,
            rate: rate_line(key.rate),
            view: key.view.name().to_owned(),
        }
    }
}

async fn tenants(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let tenants = api.accounts.tenants().list(which.after.as_deref(), PAGE_MAX).await?;
    Ok(Json(list_page(tenants, |tenant| tenant.name.clone(), tenant_line)).into_response())
}

async fn create_tenant(State(api): AccountsState, body: Bytes) -> ApiResult {
    let TenantRequest { tenant, display_name, networks } = read(&body)?;
    let made = api.accounts.tenants().create(&tenant, display_name.as_deref(), networks).await;
    Ok(Json(tenant_line(made?)).into_response())
}

async fn tenant(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let tenant = api.accounts.tenants().get(named(which.tenant.as_ref(), "tenant")?).await?;
    Ok(Json(tenant_line(tenant)).into_response())
}

async fn change_tenant(State(api): AccountsState, body: Bytes) -> ApiResult {
    let TenantChange { tenant, enabled, networks, rate } = read(&body)?;
    let disabled = enabled.map(|enabled| !enabled);
    if let Some(change) = rate_update(rate) {
        api.accounts.tenants().change_rate(&tenant, change).await?;
    }
    let changed = api.accounts.tenants().change(&tenant, disabled, networks).await;
    Ok(Json(tenant_line(changed?)).into_response())
}

async fn delete_tenant(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let name = named(which.tenant.as_ref(), "tenant")?;
    api.accounts.tenants().delete(name).await?;
    Ok(deleted(name))
}

async fn users(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let tenant = named(which.tenant.as_ref(), "tenant")?;
    // Distinguishes a misspelt tenant from a tenant without users.
    api.accounts.tenants().get(tenant).await?;
    let listed = api.accounts.users().list(tenant, which.after.as_deref(), PAGE_MAX).await;
    Ok(Json(list_page(listed?, |user| user.name.clone(), user_line)).into_response())
}

fn role(text: Option<&str>) -> Result<Option<Role>, ApiError> {
    text.map(str::parse::<Role>).transpose().map_err(ApiError::bad)
}

async fn create_user(State(api): AccountsState, body: Bytes) -> ApiResult {
    let request: UserRequest = read(&body)?;
    let role = role(request.role.as_deref())?.unwrap_or_default();
    let new = NewUser { tenant: request.tenant, name: request.user, role };
    let made = api.accounts.users().create(new).await?;
    Ok(Json(user_line(made)).into_response())
}

async fn user(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let (tenant, user) =
        (named(which.tenant.as_ref(), "tenant")?, named(which.user.as_ref(), "user")?);
    let user = api.accounts.users().get(tenant, user).await?;
    Ok(Json(user_line(user)).into_response())
}

async fn change_user(State(api): AccountsState, body: Bytes) -> ApiResult {
    let UserRequest { tenant, user, role: name, enabled } = read(&body)?;
    let disabled = enabled.map(|enabled| !enabled);
    let role = role(name.as_deref())?;
    let changed = api.accounts.users().change(&tenant, &user, disabled, role).await;
    Ok(Json(user_line(changed?)).into_response())
}

async fn delete_user(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let (tenant, user) =
        (named(which.tenant.as_ref(), "tenant")?, named(which.user.as_ref(), "user")?);
    api.accounts.users().delete(tenant, user).await?;
    Ok(deleted(&format!("{tenant}/{user}")))
}

async fn keys(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let tenant = which.tenant.as_deref();
    if let Some(tenant) = tenant {
        api.accounts.tenants().get(tenant).await?;
    }
    let listed = api.accounts.keys().list(tenant, which.after.as_deref(), PAGE_MAX).await;
    let Page { items: keys, is_truncated } = listed?;
    let next = keys.last().filter(|_| is_truncated).map(|key| key.access_key.clone());
    let mut items = Vec::with_capacity(keys.len());
    for key in keys {
        items.push(api.key_line(key, None).await);
    }
    Ok(Json(ListPage { items, next }).into_response())
}

async fn create_key(State(api): AccountsState, body: Bytes) -> ApiResult {
    let KeyRequest { tenant, user, access_key, secret_key, networks } = read(&body)?;
    let given = match (access_key, secret_key) {
        (None, None) => None,
        (Some(access_key), Some(secret_key)) => Some((access_key, secret_key)),
        _ => {
            return Err(ApiError::bad("set both the access key and its secret key, or neither"));
        }
    };
    if given.as_ref().is_some_and(|(access_key, _)| *access_key == api.root_key) {
        let taken = "the access key is the root access key: choose another";
        return Err(ApiError(StatusCode::CONFLICT, taken.to_owned()));
    }
    let new = NewKey { tenant, user, given, networks };
    let (key, secret) = api.accounts.keys().create(new).await?;
    Ok(Json(api.key_line(key, Some(secret)).await).into_response())
}

async fn key(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let access_key = named(which.access_key.as_ref(), "access key")?;
    let key = api.accounts.keys().get(access_key).await?;
    Ok(Json(api.key_line(key, None).await).into_response())
}

async fn change_key(State(api): AccountsState, body: Bytes) -> ApiResult {
    let KeyChange { access_key, enabled, networks, rate, view } = read(&body)?;
    let disabled = enabled.map(|enabled| !enabled);
    let view = view.map(|view| view.parse::<DefaultView>().map_err(ApiError::bad));
    if let Some(view) = view.transpose()? {
        api.accounts.keys().change_view(&access_key, view).await?;
    }
    if let Some(change) = rate_update(rate) {
        api.accounts.keys().change_rate(&access_key, change).await?;
    }
    let changed = api.accounts.keys().change(&access_key, disabled, networks).await;
    Ok(Json(api.key_line(changed?, None).await).into_response())
}

async fn rotate_key(State(api): AccountsState, body: Bytes) -> ApiResult {
    let Rotation { access_key, secret_key } = read(&body)?;
    let rotated = api.accounts.keys().rotate(&access_key, secret_key).await;
    let (key, secret) = rotated?;
    Ok(Json(api.key_line(key, Some(secret)).await).into_response())
}

async fn delete_key(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let access_key = named(which.access_key.as_ref(), "access key")?;
    api.accounts.keys().delete(access_key).await?;
    Ok(deleted(access_key))
}
