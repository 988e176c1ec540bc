//! Admin API of roles and of users' policies. Documents that can't be evaluated are refused when
//! they are stored.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use martlet_admin_api::accounts::{DeletedLine, ListPage};
use martlet_admin_api::roles::{ROLE, ROLES, RoleLine, RoleRequest, USER_POLICY, UserPolicy};
use martlet_proxy::{NewRole, RoleChange, SESSION_S_DEFAULT, SessionRole};
use martlet_s3compat::{bind_trust, check_own_policy, check_trust};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};

use super::state::{AccountsApi, AccountsQuery, AccountsState};
use crate::api::{ApiError, ApiResult, OF_TENANT, PAGE_MAX, deleted, list_page, named, read};

pub(super) fn routes() -> ApiRoutes<AccountsApi> {
    let list = ApiDoc::reply::<ListPage<RoleLine>>(
        RouteAccess::TenantRead(OF_TENANT),
        "List the roles of a tenant, in pages",
    );
    let create = ApiDoc::reply::<RoleLine>(RouteAccess::TenantChange(OF_TENANT), "Create a role");
    let show = ApiDoc::reply::<RoleLine>(RouteAccess::TenantRead(OF_TENANT), "Show a role");
    let change = ApiDoc::reply::<RoleLine>(RouteAccess::TenantChange(OF_TENANT), "Change a role");
    let delete =
        ApiDoc::reply::<DeletedLine>(RouteAccess::TenantChange(OF_TENANT), "Delete a role");
    let show_policy = ApiDoc::reply::<UserPolicy>(
        RouteAccess::TenantRead(OF_TENANT),
        "Show the policy of a user",
    );
    let set_policy = ApiDoc::reply::<UserPolicy>(
        RouteAccess::TenantChange(OF_TENANT),
        "Set the policy of a user",
    );
    let delete_policy = ApiDoc::reply::<DeletedLine>(
        RouteAccess::TenantChange(OF_TENANT),
        "Delete the policy of a user",
    );
    ApiRoutes::new()
        .get(ROLES, list.query::<AccountsQuery>(), roles)
        .post(ROLES, create.body::<RoleRequest>(), create_role)
        .get(ROLE, show.query::<AccountsQuery>(), role)
        .put(ROLE, change.body::<RoleRequest>(), change_role)
        .delete(ROLE, delete.query::<AccountsQuery>(), delete_role)
        .get(USER_POLICY, show_policy.query::<AccountsQuery>(), user_policy)
        .put(USER_POLICY, set_policy.body::<UserPolicy>(), put_user_policy)
        .delete(USER_POLICY, delete_policy.query::<AccountsQuery>(), delete_user_policy)
}

fn line(role: SessionRole) -> RoleLine {
    let SessionRole { tenant, name, created_ms, policy, trust, session_s_max, disabled, .. } = role;
    RoleLine {
        arn: format!("arn:aws:iam::{tenant}:role/{name}"),
        tenant,
        role: name,
        created_ms,
        enabled: !disabled,
        max_session_seconds: session_s_max,
        policy,
        trust,
    }
}

fn check(policy: Option<&str>, trust: Option<&str>) -> Result<(), ApiError> {
    let refuse = |what: &str, why: &str| ApiError::bad(format!("invalid {what}: {why}"));
    if let Some(policy) = policy {
        check_own_policy(policy).map_err(|why| refuse("policy", &why))?;
    }
    if let Some(trust) = trust {
        check_trust(trust).map_err(|why| refuse("trust document", &why))?;
    }
    Ok(())
}

/// Resolves the principals that a trust document names to their ids.
async fn bind(api: &AccountsApi, trust: Option<&str>) -> Result<Option<String>, ApiError> {
    let Some(trust) = trust else { return Ok(None) };
    let bound = bind_trust(&api.store, trust).await;
    bound.map(Some).map_err(|why| ApiError::bad(format!("invalid trust document: {why}")))
}

async fn roles(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let tenant = named(which.tenant.as_ref(), "tenant")?;
    api.accounts.tenants().get(tenant).await?;
    let roles = api.accounts.roles().list(tenant, which.after.as_deref(), PAGE_MAX).await?;
    Ok(Json(list_page(roles, |role| role.name.clone(), line)).into_response())
}

async fn create_role(State(api): AccountsState, body: Bytes) -> ApiResult {
    let RoleRequest { tenant, role, policy, trust, max_session_seconds, .. } = read(&body)?;
    check(policy.as_deref(), trust.as_deref())?;
    let policy = policy.ok_or_else(|| ApiError::bad("a role needs a policy"))?;
    let session_s_max = max_session_seconds.unwrap_or(SESSION_S_DEFAULT);
    let trust_ids = bind(&api, trust.as_deref()).await?;
    let new = NewRole { tenant, name: role, policy, trust, trust_ids, session_s_max };
    Ok(Json(line(api.accounts.roles().create(new).await?)).into_response())
}

fn which_role(which: &AccountsQuery) -> Result<(&str, &str), ApiError> {
    Ok((named(which.tenant.as_ref(), "tenant")?, named(which.role.as_ref(), "role")?))
}

async fn role(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let (tenant, name) = which_role(&which)?;
    Ok(Json(line(api.accounts.roles().get(tenant, name).await?)).into_response())
}

async fn change_role(State(api): AccountsState, body: Bytes) -> ApiResult {
    let RoleRequest { tenant, role, policy, trust, max_session_seconds, enabled } = read(&body)?;
    check(policy.as_deref(), trust.as_deref())?;
    let disabled = enabled.map(|enabled| !enabled);
    let trust_ids = bind(&api, trust.as_deref()).await?;
    let session_s_max = max_session_seconds;
    let change = RoleChange { disabled, policy, trust, trust_ids, session_s_max };
    let changed = api.accounts.roles().change(&tenant, &role, change).await?;
    Ok(Json(line(changed)).into_response())
}

async fn delete_role(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let (tenant, name) = which_role(&which)?;
    api.accounts.roles().delete(tenant, name).await?;
    Ok(deleted(&format!("{tenant}/{name}")))
}

fn which_user(which: &AccountsQuery) -> Result<(&str, &str), ApiError> {
    Ok((named(which.tenant.as_ref(), "tenant")?, named(which.user.as_ref(), "user")?))
}

async fn user_policy(State(api): AccountsState, Query(which): Query<AccountsQuery>) -> ApiResult {
    let (tenant, name) = which_user(&which)?;
    let user = api.accounts.users().get(tenant, name).await?;
    let (tenant, user, policy) = (user.tenant, user.name, user.policy);
    Ok(Json(UserPolicy { tenant, user, policy }).into_response())
}

async fn put_user_policy(State(api): AccountsState, body: Bytes) -> ApiResult {
    let UserPolicy { tenant, user, policy } = read(&body)?;
    check(policy.as_deref(), None)?;
    if policy.is_none() {
        return Err(ApiError::bad("missing parameter: policy"));
    }
    let user = api.accounts.users().set_policy(&tenant, &user, policy).await?;
    let (tenant, user, policy) = (user.tenant, user.name, user.policy);
    Ok(Json(UserPolicy { tenant, user, policy }).into_response())
}

async fn delete_user_policy(
    State(api): AccountsState,
    Query(which): Query<AccountsQuery>,
) -> ApiResult {
    let (tenant, name) = which_user(&which)?;
    api.accounts.users().set_policy(tenant, name, None).await?;
    Ok(deleted(&format!("{tenant}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_policies_of_roles_are_refused_with_the_reason() {
        let ApiError(_, reason) = check(Some("{}"), None).unwrap_err();
        assert!(reason.starts_with("invalid policy: ") && reason.len() > 30, "{reason}");
        let policy = r#"{"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}"#;
        assert!(check(Some(policy), None).is_ok());
        let ApiError(_, reason) = check(Some(policy), Some(policy)).unwrap_err();
        assert!(reason.starts_with("invalid trust document: "), "{reason}");
        assert!(reason.ends_with("(statement 1)"), "{reason}");
        let ApiError(_, reason) = check(Some("{\n  \"Statement\": [}"), None).unwrap_err();
        assert!(reason.ends_with("Json (line 2, column 17)"), "{reason}");
    }
}
