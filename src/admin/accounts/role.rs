//! `martlet admin role`: roles of tenants.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use martlet_admin_api::accounts::DeletedLine;
use martlet_admin_api::roles::{ROLE, ROLES, RoleLine, RoleRequest};
use martlet_serving::{Failure, parse_span};

use super::pages::fetch_all;
use super::print;
use crate::admin::client::AdminEndpoint;
use crate::admin::print::show;

/// Subcommands of `martlet admin role`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
AssumeRole and AssumeRoleWithWebIdentity at the S3 address return temporary credentials with the \
permissions of the role's policy. The trust document names the principals that may assume the \
role; without one, only the tenant's own keys may.

Examples:
  martlet admin role create --tenant research reader --policy reader.json --trust trust.json
  martlet admin role set --tenant research reader --max-session 12h
  martlet admin role disable --tenant research reader")]
pub(in crate::admin) enum RoleCommand {
    /// Create a role
    Create {
        #[command(flatten)]
        who: RoleArgs,
        /// File with the role's policy, without principals
        #[arg(long, value_name = "FILE")]
        policy: PathBuf,
        /// File with the trust document [default: the tenant's own keys]
        #[arg(long, value_name = "FILE")]
        trust: Option<PathBuf>,
        /// Maximum duration of a session, 15m to 12h
        #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1h")]
        max_session: Duration,
    },
    /// List the roles of a tenant
    List {
        /// Tenant
        #[arg(long, value_name = "NAME")]
        tenant: String,
    },
    /// Show a role
    Show(RoleArgs),
    /// Change a role; open sessions follow the change
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)
        .args(["policy", "trust", "max_session"])))]
    Set {
        #[command(flatten)]
        who: RoleArgs,
        /// File with the role's new policy
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// File with the new trust document
        #[arg(long, value_name = "FILE")]
        trust: Option<PathBuf>,
        /// Maximum duration of a session, 15m to 12h
        #[arg(long, value_name = "TIME", value_parser = parse_span)]
        max_session: Option<Duration>,
    },
    /// Disable the role and end its sessions
    Disable(RoleArgs),
    /// Enable the role
    Enable(RoleArgs),
    /// Delete the role and end its sessions
    Delete(RoleArgs),
}

/// Name of a role.
#[derive(Args, Debug)]
pub(in crate::admin) struct RoleArgs {
    /// Tenant of the role
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Name of the role: letters, digits and _+=,.@-
    name: String,
}

impl RoleArgs {
    fn role_request(&self) -> RoleRequest {
        let (tenant, role) = (self.tenant.clone(), self.name.clone());
        RoleRequest { tenant, role, ..RoleRequest::default() }
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
    pub(in crate::admin) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let optional = |file: &Option<PathBuf>| file.as_deref().map(document).transpose();
        let line: RoleLine = match self {
            Self::Create { who, policy, trust, max_session } => {
                let (policy, trust) = (Some(document(policy)?), optional(trust)?);
                let max_session_seconds = Some(seconds(*max_session));
                let request =
                    RoleRequest { policy, trust, max_session_seconds, ..who.role_request() };
                server.post(ROLES, &request)?
            }
            Self::Set { who, policy, trust, max_session } => {
                let (policy, trust) = (optional(policy)?, optional(trust)?);
                let max_session_seconds = max_session.map(seconds);
                let request =
                    RoleRequest { policy, trust, max_session_seconds, ..who.role_request() };
                server.put(ROLE, &request)?
            }
            Self::List { tenant } => {
                let lines: Vec<RoleLine> = fetch_all(server, ROLES, &[("tenant", tenant)])?;
                show(&lines, json, |lines| print::roles(lines));
                return Ok(());
            }
            Self::Show(who) => server.request_json(ROLE, &who.query())?,
            Self::Disable(who) | Self::Enable(who) => {
                let enabled = Some(matches!(self, Self::Enable(_)));
                server.put(ROLE, &RoleRequest { enabled, ..who.role_request() })?
            }
            Self::Delete(who) => {
                let deleted: DeletedLine = server.delete(ROLE, &who.query())?;
                show(&deleted, json, |it| format!("deleted role {}\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::role);
        Ok(())
    }
}
