//! `martlet admin tenant`, `user`, `role` and `key`: who may come in.

mod key;
mod print;
mod role;
mod tenant;
mod user;

use clap::Args;
use martlet_protocol::Network;
use serde::de::DeserializeOwned;

pub(super) use self::key::KeyCommand;
pub(super) use self::role::RoleCommand;
pub(super) use self::tenant::TenantCommand;
pub(super) use self::user::UserCommand;
use super::ask::Server;
use super::wire::accounts::Page;
use crate::failure::Failure;

/// Where requests may come from.
#[derive(Args, Debug)]
#[group(required = true, multiple = false, id = "limit", args = ["networks", "anywhere"])]
pub(super) struct LimitArgs {
    /// Take requests from this network alone, such as 10.0.0.0/8 or one address; repeat it for several
    #[arg(long = "network", value_name = "CIDR")]
    networks: Vec<Network>,
    /// Take requests from anywhere
    #[arg(long)]
    anywhere: bool,
}

/// All of a list, page after page.
fn all<T: DeserializeOwned>(
    server: &Server,
    path: &str,
    query: &[(&str, &str)],
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut query = query.to_vec();
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: Page<T> = server.ask(path, &query)?;
        items.extend(page.items);
        match page.next {
            None => return Ok(items),
            next => after = next,
        }
    }
}
