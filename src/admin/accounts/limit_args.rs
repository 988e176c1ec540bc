//! Arguments that limit the requests of a tenant or a key.

use clap::Args;
use martlet_admin_api::limits::{Bound, RateChange};
use martlet_protocol::Network;

use crate::admin::limits;

/// Networks that requests may come from, and rates. Omitted limits stay unchanged.
#[derive(Args, Debug)]
#[group(required = true, multiple = true, id = "limit", args = ["networks", "anywhere", "requests", "bytes"])]
pub(in crate::admin) struct LimitArgs {
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
    /// Returns the new networks, or `None` if they stay unchanged.
    pub(super) fn networks(&self) -> Option<Vec<Network>> {
        (self.anywhere || !self.networks.is_empty()).then(|| self.networks.clone())
    }

    /// Returns the change of the rates.
    pub(super) fn rate(&self) -> RateChange {
        RateChange { requests: self.requests, bytes: self.bytes }
    }
}
