//! `martlet admin tenant`: tenants.

use clap::Subcommand;
use martlet_admin_api::accounts::{
    DeletedLine, TENANT, TENANTS, TenantChange, TenantLine, TenantRequest,
};
use martlet_admin_api::limits::TENANT_QUOTA;
use martlet_protocol::Network;
use martlet_serving::Failure;

use super::limit_args::LimitArgs;
use super::pages::fetch_all;
use super::print;
use crate::admin::client::AdminEndpoint;
use crate::admin::limits::QuotaArgs;
use crate::admin::print::show;

/// Subcommands of `martlet admin tenant`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A tenant is an account: it owns the buckets that its keys create. Other buckets are closed to it \
unless their policies allow it. Changes apply at all proxies within a second.

Examples:
  martlet admin tenant create research --display-name 'The research group'
  martlet admin key create --tenant research
  martlet admin tenant limit research --network 10.0.0.0/8
  martlet admin tenant limit research --requests 500 --bytes 200MiB
  martlet admin tenant quota research --bytes 500GiB --objects 1000000
  martlet admin tenant disable research")]
pub(in crate::admin) enum TenantCommand {
    /// Create a tenant
    Create {
        /// Name of the tenant: letters, digits and _+=,.@-
        name: String,
        /// Display name in S3 replies [default: the tenant's name]
        #[arg(long, value_name = "TEXT")]
        display_name: Option<String>,
        /// Allow its requests only from this network; repeatable
        #[arg(long = "network", value_name = "CIDR")]
        networks: Vec<Network>,
    },
    /// List tenants
    List,
    /// Show a tenant
    Show {
        /// Name of the tenant
        name: String,
    },
    /// Disable all keys of the tenant until it is enabled again
    Disable {
        /// Name of the tenant
        name: String,
    },
    /// Enable the tenant
    Enable {
        /// Name of the tenant
        name: String,
    },
    /// Set the networks and rates of the tenant's requests
    Limit {
        /// Name of the tenant
        name: String,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Show or set the quota of the tenant's buckets together
    #[command(
        after_help = "Writes beyond a quota fail with QuotaExceeded, even if they replace objects; \
            deletes always succeed. Workers count buckets every few seconds, large ones less \
            often, and each proxy adds its own writes since the last count."
    )]
    Quota(QuotaArgs),
    /// Delete a tenant without users, roles, keys and buckets
    Delete {
        /// Name of the tenant
        name: String,
    },
}

impl TenantCommand {
    /// Sends the command's request and prints the answer.
    pub(in crate::admin) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let change = |change: TenantChange| server.put::<TenantLine>(TENANT, &change);
        let tenant = |name: &String| name.clone();
        let line: TenantLine = match self {
            Self::Create { name, display_name, networks } => {
                let (display_name, networks) = (display_name.clone(), networks.clone());
                let request = TenantRequest { tenant: tenant(name), display_name, networks };
                server.post(TENANTS, &request)?
            }
            Self::List => {
                let lines: Vec<TenantLine> = fetch_all(server, TENANTS, &[])?;
                show(&lines, json, |lines| print::tenants(lines));
                return Ok(());
            }
            Self::Show { name } => server.request_json(TENANT, &[("tenant", name)])?,
            Self::Disable { name } | Self::Enable { name } => {
                let enabled = Some(matches!(self, Self::Enable { .. }));
                change(TenantChange { tenant: tenant(name), enabled, ..TenantChange::default() })?
            }
            Self::Limit { name, limit } => {
                let (networks, rate) = (limit.networks(), limit.rate());
                change(TenantChange { tenant: tenant(name), enabled: None, networks, rate })?
            }
            Self::Quota(args) => return args.run(server, TENANT_QUOTA, "tenant", json),
            Self::Delete { name } => {
                let deleted: DeletedLine = server.delete(TENANT, &[("tenant", name)])?;
                show(&deleted, json, |it| format!("deleted tenant {}\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::tenant);
        Ok(())
    }
}
