//! `martlet admin key`: access keys, and keys of the admin API.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use martlet_admin_api::accounts::{
    DeletedLine, KEY, KEYS, KeyChange, KeyLine, KeyRequest, ROTATE, Rotation,
};
use martlet_admin_api::principals::AdminRole;
use martlet_protocol::Network;
use martlet_serving::{Failure, parse_span};

use super::admin_key::{self, NewKey};
use super::limit_args::LimitArgs;
use super::pages::fetch_all;
use super::print;
use crate::admin::client::AdminEndpoint;
use crate::admin::print::show;

/// Subcommands of `martlet admin key`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Secrets are shown once, when they are made. The index stores them encrypted if the process at the \
admin address has a master key (master_key_file), else in plain text.

With --role, the key is one of the admin API: viewer reads all but secrets, operator does all, \
tenant-admin cares for users, keys and buckets of its tenant. Commands sign by it: --admin-key-file.

Examples:
  martlet admin key create --tenant research
  martlet admin key create --tenant research --user trainer --network 10.7.0.0/16 --json
  MARTLET_NEW_SECRET_KEY=… martlet admin key create --tenant research --access-key AKIA…
  martlet admin key list --tenant research
  martlet admin key view AKIA… committed
  martlet admin key rotate AKIA…
  martlet admin key create --role operator --name alice --expires 90d --key-file alice.key
  martlet admin key create --role tenant-admin --tenant research
  martlet admin key list --admin
  martlet admin key revoke MADM…")]
pub(in crate::admin) enum KeyCommand {
    /// Create an access key and its secret
    Create(CreateArgs),
    /// List access keys
    List {
        /// List keys of this tenant only
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// List the keys of the admin API
        #[arg(long, conflicts_with = "tenant")]
        admin: bool,
    },
    /// Show an access key without its secret
    Show(KeyArgs),
    /// Disable the key until it is enabled again
    Disable(KeyArgs),
    /// Enable the key
    Enable(KeyArgs),
    /// Replace the secret; the old one stops working within a second
    Rotate {
        #[command(flatten)]
        which: KeyArgs,
        /// New secret [default: generated]
        #[arg(long, value_name = "SECRET", env = "MARTLET_NEW_SECRET_KEY", hide_env_values = true)]
        secret_key: Option<String>,
    },
    /// Set the networks and rates of the key's requests
    Limit {
        #[command(flatten)]
        which: KeyArgs,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Set the view of buckets with checkpoint rules that the key's requests get by default
    View {
        #[command(flatten)]
        which: KeyArgs,
        /// bucket: the bucket itself; committed: its complete checkpoints, as NAME--committed
        #[arg(value_parser = ["bucket", "committed"])]
        view: String,
    },
    /// Delete the key
    Delete(KeyArgs),
    /// Revoke a key of the admin API, and end its sessions
    Revoke {
        /// Id of the admin key
        key: String,
    },
}

/// Name of a key.
#[derive(Args, Debug)]
pub(in crate::admin) struct KeyArgs {
    /// Access key
    access_key: String,
}

/// Arguments of `martlet admin key create`.
#[derive(Args)]
pub(in crate::admin) struct CreateArgs {
    /// Tenant that owns the key
    #[arg(long, value_name = "NAME", required_unless_present = "role")]
    tenant: Option<String>,
    /// Make a key of the admin API: viewer, operator or tenant-admin
    #[arg(long, value_name = "ROLE")]
    role: Option<AdminRole>,
    /// Name of the admin key, for lists and audit records
    #[arg(long, value_name = "TEXT", requires = "role")]
    name: Option<String>,
    /// Lifetime of the admin key, such as 90d [default: no end]
    #[arg(long, value_name = "SPAN", requires = "role", value_parser = parse_span)]
    expires: Option<Duration>,
    /// Write the admin key to this new file, and print no secret
    #[arg(long, value_name = "FILE", requires = "role")]
    key_file: Option<PathBuf>,
    /// User that the key belongs to [default: the whole tenant]
    #[arg(long, value_name = "NAME", conflicts_with = "role")]
    user: Option<String>,
    /// Access key to use, with --secret-key [default: generated]
    #[arg(long, value_name = "KEY", requires = "secret_key", conflicts_with = "role")]
    access_key: Option<String>,
    /// Secret to use, with --access-key [default: generated]
    #[arg(
        long,
        value_name = "SECRET",
        env = "MARTLET_NEW_SECRET_KEY",
        hide_env_values = true,
        requires = "access_key"
    )]
    secret_key: Option<String>,
    /// Allow its requests only from this network; repeatable
    #[arg(long = "network", value_name = "CIDR", conflicts_with = "role")]
    networks: Vec<Network>,
}

impl fmt::Debug for CreateArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, user, access_key, .. } = self;
        write!(f, "CreateArgs({tenant:?}, {user:?}, {access_key:?})")
    }
}

impl CreateArgs {
    fn key_request(&self) -> KeyRequest {
        KeyRequest {
            tenant: self.tenant.clone().unwrap_or_default(),
            user: self.user.clone(),
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone(),
            networks: self.networks.clone(),
        }
    }

    /// Returns the admin key to create, if a role is given.
    fn admin_key(&self) -> Option<NewKey<'_>> {
        Some(NewKey {
            role: self.role?,
            tenant: self.tenant.as_deref(),
            name: self.name.as_deref(),
            expires: self.expires,
            file: self.key_file.as_deref(),
        })
    }
}

impl KeyArgs {
    fn change(&self) -> KeyChange {
        KeyChange { access_key: self.access_key.clone(), ..KeyChange::default() }
    }

    fn query(&self) -> [(&str, &str); 1] {
        [("access_key", &self.access_key)]
    }
}

impl KeyCommand {
    /// Sends the command's request and prints the answer.
    pub(in crate::admin) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let line: KeyLine = match self {
            Self::Create(args) => match args.admin_key() {
                Some(new) => return new.create(server, json),
                None => server.post(KEYS, &args.key_request())?,
            },
            Self::Revoke { key } => return admin_key::revoke(server, key, json),
            Self::List { admin: true, .. } => return admin_key::list(server, json),
            Self::List { tenant, .. } => {
                let query: Vec<_> = tenant.iter().map(|name| ("tenant", name.as_str())).collect();
                let lines: Vec<KeyLine> = fetch_all(server, KEYS, &query)?;
                show(&lines, json, |lines| print::keys(lines));
                return Ok(());
            }
            Self::Show(which) => server.request_json(KEY, &which.query())?,
            Self::Disable(which) | Self::Enable(which) => {
                let enabled = Some(matches!(self, Self::Enable(_)));
                server.put(KEY, &KeyChange { enabled, ..which.change() })?
            }
            Self::Rotate { which, secret_key } => {
                let (access_key, secret_key) = (which.access_key.clone(), secret_key.clone());
                server.post(ROTATE, &Rotation { access_key, secret_key })?
            }
            Self::Limit { which, limit } => {
                let (networks, rate) = (limit.networks(), limit.rate());
                server.put(KEY, &KeyChange { networks, rate, ..which.change() })?
            }
            Self::View { which, view } => {
                server.put(KEY, &KeyChange { view: Some(view.clone()), ..which.change() })?
            }
            Self::Delete(which) => {
                let deleted: DeletedLine = server.delete(KEY, &which.query())?;
                show(&deleted, json, |it| format!("deleted access key {}\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::key);
        Ok(())
    }
}
