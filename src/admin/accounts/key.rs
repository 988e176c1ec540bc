//! `martlet admin key`: access keys.

use std::fmt;

use clap::{Args, Subcommand};
use martlet_protocol::Network;

use super::{LimitArgs, all, print};
use crate::admin::ask::Server;
use crate::admin::print::show;
use crate::admin::wire::accounts::{
    Deleted, KEY, KEYS, KeyAsked, KeyChange, KeyLine, ROTATE, Rotation,
};
use crate::failure::Failure;

/// What is asked of access keys.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Secrets are shown once, when they are made. In the index they lie sealed by the master key of the process \
that is asked, if it has one (master_key_file), and in clear if it has none.

Examples:
  martlet admin key create --tenant research
  martlet admin key create --tenant research --user trainer --network 10.7.0.0/16 --json
  MARTLET_NEW_SECRET_KEY=… martlet admin key create --tenant research --access-key AKIA…
  martlet admin key list --tenant research
  martlet admin key rotate AKIA…")]
pub(in crate::admin) enum KeyCommand {
    /// Make an access key and its secret
    Create(CreateArgs),
    /// List them
    List {
        /// Those of this tenant alone
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
    },
    /// Show one, without its secret
    Show(WhichKey),
    /// Let it in no more, until it is enabled
    Disable(WhichKey),
    /// Let it in again
    Enable(WhichKey),
    /// Give it another secret; the one before is void within a second
    Rotate {
        #[command(flatten)]
        which: WhichKey,
        /// The secret, where it was made elsewhere
        #[arg(long, value_name = "SECRET", env = "MARTLET_NEW_SECRET_KEY", hide_env_values = true)]
        secret_key: Option<String>,
    },
    /// Say where its requests may come from and how fast, in place of what was said before
    Limit {
        #[command(flatten)]
        which: WhichKey,
        #[command(flatten)]
        limit: LimitArgs,
    },
    /// Delete it
    Delete(WhichKey),
}

/// A key.
#[derive(Args, Debug)]
pub(in crate::admin) struct WhichKey {
    /// The access key
    access_key: String,
}

/// A key to be made.
#[derive(Args)]
pub(in crate::admin) struct CreateArgs {
    /// Whose it is
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// The user that it speaks for [default: the whole tenant]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The access key, where it was made elsewhere
    #[arg(long, value_name = "KEY", requires = "secret_key")]
    access_key: Option<String>,
    /// Its secret
    #[arg(
        long,
        value_name = "SECRET",
        env = "MARTLET_NEW_SECRET_KEY",
        hide_env_values = true,
        requires = "access_key"
    )]
    secret_key: Option<String>,
    /// Take its requests from this network alone; repeat it for several
    #[arg(long = "network", value_name = "CIDR")]
    networks: Vec<Network>,
}

impl fmt::Debug for CreateArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, user, access_key, .. } = self;
        write!(f, "CreateArgs({tenant}, {user:?}, {access_key:?})")
    }
}

impl CreateArgs {
    fn asked(&self) -> KeyAsked {
        KeyAsked {
            tenant: self.tenant.clone(),
            user: self.user.clone(),
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone(),
            networks: self.networks.clone(),
        }
    }
}

impl WhichKey {
    fn change(&self) -> KeyChange {
        KeyChange { access_key: self.access_key.clone(), ..KeyChange::default() }
    }

    fn query(&self) -> [(&str, &str); 1] {
        [("access_key", &self.access_key)]
    }
}

impl KeyCommand {
    /// Sends the command's request and prints the answer.
    pub(in crate::admin) fn run(&self, server: &Server, json: bool) -> Result<(), Failure> {
        let line: KeyLine = match self {
            Self::Create(args) => server.post(KEYS, &args.asked())?,
            Self::List { tenant } => {
                let query: Vec<_> = tenant.iter().map(|name| ("tenant", name.as_str())).collect();
                let lines: Vec<KeyLine> = all(server, KEYS, &query)?;
                show(&lines, json, |lines| print::keys(lines));
                return Ok(());
            }
            Self::Show(which) => server.ask(KEY, &which.query())?,
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
            Self::Delete(which) => {
                let deleted: Deleted = server.delete(KEY, &which.query())?;
                show(&deleted, json, |it| format!("the access key {} is deleted\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::key);
        Ok(())
    }
}
