//! `martlet admin role`: roles of tenants.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{all, print};
use crate::admin::ask::Server;
use crate::admin::print::show;
use crate::admin::wire::accounts::Deleted;
use crate::admin::wire::roles::{ROLE, ROLES, RoleAsked, RoleLine};
use crate::failure::Failure;
use crate::units::parse_span;

/// What is asked of roles.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A role is what somebody may be for a while: AssumeRole and AssumeRoleWithWebIdentity at the S3 address give \
credentials that may do what its policy says. Its trust document says who may take it on; without one, the \
tenant's own keys.

Examples:
  martlet admin role create --tenant research reader --policy reader.json --trust trust.json
  martlet admin role set --tenant research reader --max-session 12h
  martlet admin role disable --tenant research reader")]
pub(in crate::admin) enum RoleCommand {
    /// Make a role
    Create {
        #[command(flatten)]
        who: WhichRole,
        /// File with what it may do: a policy without principals
        #[arg(long, value_name = "FILE")]
        policy: PathBuf,
        /// File with who may take it on [default: the tenant's own keys]
        #[arg(long, value_name = "FILE")]
        trust: Option<PathBuf>,
        /// How long its sessions are at most, 15m to 12h
        #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1h")]
        max_session: Duration,
    },
    /// List those of a tenant
    List {
        /// The tenant
        #[arg(long, value_name = "NAME")]
        tenant: String,
    },
    /// Show one
    Show(WhichRole),
    /// Change it; its sessions are held to what it says then
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)
        .args(["policy", "trust", "max_session"])))]
    Set {
        #[command(flatten)]
        who: WhichRole,
        /// File with what it may do
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// File with who may take it on
        #[arg(long, value_name = "FILE")]
        trust: Option<PathBuf>,
        /// How long its sessions are at most, 15m to 12h
        #[arg(long, value_name = "TIME", value_parser = parse_span)]
        max_session: Option<Duration>,
    },
    /// Let nobody take it on, and end its sessions
    Disable(WhichRole),
    /// Let it be taken on again
    Enable(WhichRole),
    /// Delete one, and end its sessions
    Delete(WhichRole),
}

/// A role.
#[derive(Args, Debug)]
pub(in crate::admin) struct WhichRole {
    /// Its tenant
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Its name: letters, digits and _+=,.@-
    name: String,
}

impl WhichRole {
    fn asked(&self) -> RoleAsked {
        let (tenant, role) = (self.tenant.clone(), self.name.clone());
        RoleAsked { tenant, role, ..RoleAsked::default() }
    }

    fn query(&self) -> [(&str, &str); 2] {
        [("tenant", &self.tenant), ("role", &self.name)]
    }
}

/// Reads a document from a file.
pub(super) fn document(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{} can't be read: {error}", file.display())))
}

fn seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

impl RoleCommand {
    /// Sends the command's request and prints the answer.
    pub(in crate::admin) fn run(&self, server: &Server, json: bool) -> Result<(), Failure> {
        let optional = |file: &Option<PathBuf>| file.as_deref().map(document).transpose();
        let line: RoleLine = match self {
            Self::Create { who, policy, trust, max_session } => {
                let (policy, trust) = (Some(document(policy)?), optional(trust)?);
                let max_session_seconds = Some(seconds(*max_session));
                let asked = RoleAsked { policy, trust, max_session_seconds, ..who.asked() };
                server.post(ROLES, &asked)?
            }
            Self::Set { who, policy, trust, max_session } => {
                let (policy, trust) = (optional(policy)?, optional(trust)?);
                let max_session_seconds = max_session.map(seconds);
                let asked = RoleAsked { policy, trust, max_session_seconds, ..who.asked() };
                server.put(ROLE, &asked)?
            }
            Self::List { tenant } => {
                let lines: Vec<RoleLine> = all(server, ROLES, &[("tenant", tenant)])?;
                show(&lines, json, |lines| print::roles(lines));
                return Ok(());
            }
            Self::Show(who) => server.ask(ROLE, &who.query())?,
            Self::Disable(who) | Self::Enable(who) => {
                let enabled = Some(matches!(self, Self::Enable(_)));
                server.put(ROLE, &RoleAsked { enabled, ..who.asked() })?
            }
            Self::Delete(who) => {
                let deleted: Deleted = server.delete(ROLE, &who.query())?;
                show(&deleted, json, |it| format!("the role {} is deleted\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::role);
        Ok(())
    }
}
