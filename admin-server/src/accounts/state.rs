//! State and query parameters of the routes of accounts.

use axum::extract::State;
use martlet_proxy::{Accounts, ObjectStore};
use schemars::JsonSchema;
use serde::Deserialize;

/// State of all routes of accounts.
#[derive(Clone)]
pub(super) struct AccountsApi {
    pub(super) accounts: Accounts,
    pub(super) store: ObjectStore,
    /// Access key of the root identity, which has no account.
    pub(super) root_key: String,
}

/// State of a route, as axum passes the state.
pub(super) type AccountsState = State<AccountsApi>;

/// Query parameters of all routes. A route refuses a request without the parameters that it needs.
#[derive(Default, Deserialize, JsonSchema)]
pub(super) struct AccountsQuery {
    /// Name of the tenant.
    pub(super) tenant: Option<String>,
    /// Name of the user.
    pub(super) user: Option<String>,
    /// Name of the role.
    pub(super) role: Option<String>,
    /// Access key.
    pub(super) access_key: Option<String>,
    /// `next` of the page before.
    pub(super) after: Option<String>,
}
