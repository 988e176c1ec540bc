//! `martlet admin tenant`, `user`, `role` and `key`: accounts and their credentials.

mod key;
mod print;
mod role;
mod tenant;
mod user;

use clap::Args;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::limits::{Bound, RateChange};
use martlet_protocol::Network;
use martlet_serving::Failure;
use serde::de::DeserializeOwned;

pub(super) use self::key::KeyCommand;
pub(super) use self::role::RoleCommand;
pub(super) use self::tenant::TenantCommand;
pub(super) use self::user::UserCommand;
use super::client::AdminEndpoint;
use super::limits;

/// Networks that requests may come from, and rates. Omitted limits stay unchanged.
#[derive(Args, Debug)]
#[group(required = true, multiple = true, id = "limit", args = ["networks", "anywhere", "requests", "bytes"])]
pub(super) struct LimitArgs {
    /// Allow requests only from this network, such as 10.0.0.0/8, or one address; repeatable
    #[arg(long = "network", value_name = "CIDR")]
    networks: Vec<Network>,
    /// Allow requests from any network
    #[arg(long, conflicts_with = "networks")]
    anywhere: bool,
    /// Requests per second at each proxy; none: unlimited
    #[arg(long, value_name = "N|none", value_parser = limits::count)]
    requests: Option<Bound>,
    /// Body bytes per second, both ways, at each proxy, such as 50MiB; none: unlimited
    #[arg(long, value_name = "BYTES|none", value_parser = limits::bytes)]
    bytes: Option<Bound>,
}

impl LimitArgs {
    fn networks(&self) -> Option<Vec<Network>> {
        (self.anywhere || !self.networks.is_empty()).then(|| self.networks.clone())
    }

    fn rate(&self) -> RateChange {
        RateChange { requests: self.requests, bytes: self.bytes }
    }
}

/// Fetches all pages of a list.
fn all<T: DeserializeOwned>(
    server: &AdminEndpoint,
    path: &str,
    query: &[(&str, &str)],
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut query = query.to_vec();
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: ListPage<T> = server.request_json(path, &query)?;
        items.extend(page.items);
        match page.next {
            None => return Ok(items),
            next => after = next,
        }
    }
}
