//! `martlet admin tenant`: tenants.

use clap::Subcommand;
use martlet_protocol::Network;

use super::{LimitArgs, all, print};
use crate::admin::ask::Server;
use crate::admin::limits::QuotaArgs;
use crate::admin::print::show;
use crate::admin::wire::accounts::{
    Deleted, TENANT, TENANTS, TenantAsked, TenantChange, TenantLine,
};
use crate::admin::wire::limits::TENANT_QUOTA;
use crate::failure::Failure;

/// What is asked of tenants.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A tenant is an account of its own: it owns the buckets that its keys make, and sees no others unless \
their policies let it in. Whatever is changed is in force everywhere within a second.

Examples:
  martlet admin tenant create research --display-name 'The research group'
  martlet admin key create --tenant research
  martlet admin tenant limit research --network 10.0.0.0/8
  martlet admin tenant limit research --requests 500 --bytes 200MiB
  martlet admin tenant quota research --bytes 500GiB --objects 1000000
  martlet admin tenant disable research")]
pub(in crate::admin) enum TenantCommand {
    /// Make a tenant
    Create {
        /// Its name: letters, digits and _+=,.@-
        name: String,
        /// What S3 calls it beside its canonical id [default: its name]
        #[arg(long, value_name = "TEXT")]
        display_name: Option<String>,
        /// Take its requests from this network alone; repeat it for several
        #[arg(long = "network", value_name = "CIDR")]
        networks: Vec<Network>,
    },
    /// List them
    List,
    /// Show one
    Show {
        /// Its name
        name: String,
    },
    /// Let none of its keys in, until it is enabled
    Disable {
        /// Its name
        name: String,
    },
    /// Let its keys in again
    Enable {
        /// Its name
        name: String,
    },
    /// Say where its requests may come from and how fast, in place of what was said before
    Limit {
        /// Its name
        name: String,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Show how much its buckets hold and may hold together, or set how much
    #[command(after_help = "\
Writes beyond a quota are refused with QuotaExceeded, whatever they replace; deletes never are. Buckets are \
counted every some seconds, large ones less often, and each proxy adds what it has written since.")]
    Quota(QuotaArgs),
    /// Delete one that has no users, roles, keys and buckets any more
    Delete {
        /// Its name
        name: String,
    },
}

impl TenantCommand {
    /// Sends the command's request and prints the answer.
    pub(in crate::admin) fn run(&self, server: &Server, json: bool) -> Result<(), Failure> {
        let change = |change: TenantChange| server.put::<TenantLine>(TENANT, &change);
        let tenant = |name: &String| name.clone();
        let line: TenantLine = match self {
            Self::Create { name, display_name, networks } => {
                let (display_name, networks) = (display_name.clone(), networks.clone());
                let asked = TenantAsked { tenant: tenant(name), display_name, networks };
                server.post(TENANTS, &asked)?
            }
            Self::List => {
                let lines: Vec<TenantLine> = all(server, TENANTS, &[])?;
                show(&lines, json, |lines| print::tenants(lines));
                return Ok(());
            }
            Self::Show { name } => server.ask(TENANT, &[("tenant", name)])?,
            Self::Disable { name } | Self::Enable { name } => {
                let enabled = Some(matches!(self, Self::Enable { .. }));
                change(TenantChange { tenant: tenant(name), enabled, ..TenantChange::default() })?
            }
            Self::Limit { name, limit } => {
                let (networks, rate) = (limit.networks(), limit.rate());
                change(TenantChange { tenant: tenant(name), enabled: None, networks, rate })?
            }
            Self::Quota(args) => return args.run(server, (TENANT_QUOTA, "tenant"), json),
            Self::Delete { name } => {
                let deleted: Deleted = server.delete(TENANT, &[("tenant", name)])?;
                show(&deleted, json, |it| format!("the tenant {} is deleted\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::tenant);
        Ok(())
    }
}
