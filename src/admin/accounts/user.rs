//! `martlet admin user`: users of tenants, and their policies.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use martlet_admin_api::accounts::{DeletedLine, USER, USERS, UserLine, UserRequest};
use martlet_admin_api::roles::{USER_POLICY, UserPolicy};
use martlet_proxy::Role;
use martlet_serving::Failure;

use super::pages::fetch_all;
use super::print;
use super::role::document;
use crate::admin::client::AdminEndpoint;
use crate::admin::print::show;

/// Subcommands of `martlet admin user`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A user's role limits its permissions within the tenant's: admin allows everything; read-write \
reads everything, and writes and deletes objects; read-only reads. Bucket policies name a user as \
arn:aws:iam::TENANT:user/NAME. A user with a policy of its own may only do what that policy and \
bucket policies allow. Users are optional: the tenant's own keys have all of its permissions.

Examples:
  martlet admin user create --tenant research trainer --role read-write
  martlet admin key create --tenant research --user trainer
  martlet admin user set --tenant research trainer --role read-only
  martlet admin user policy put --tenant research trainer policy.json")]
pub(in crate::admin) enum UserCommand {
    /// Create a user
    Create {
        #[command(flatten)]
        who: UserArgs,
        /// Role that limits the user's permissions
        #[arg(long, value_name = "admin|read-write|read-only", default_value = "admin")]
        role: Role,
    },
    /// List the users of a tenant
    List {
        /// Tenant
        #[arg(long, value_name = "NAME")]
        tenant: String,
    },
    /// Show a user
    Show(UserArgs),
    /// Change the role of a user
    Set {
        #[command(flatten)]
        who: UserArgs,
        /// Role that limits the user's permissions
        #[arg(long, value_name = "admin|read-write|read-only")]
        role: Role,
    },
    /// Manage the policy of a user
    #[command(subcommand)]
    Policy(UserPolicyCommand),
    /// Disable all keys of the user until it is enabled again
    Disable(UserArgs),
    /// Enable the user
    Enable(UserArgs),
    /// Delete a user without keys
    Delete(UserArgs),
}

/// Subcommands of `martlet admin user policy`.
#[derive(Debug, Subcommand)]
pub(in crate::admin) enum UserPolicyCommand {
    /// Set the policy of a user
    Put {
        #[command(flatten)]
        who: UserArgs,
        /// File with the policy, without principals
        file: PathBuf,
    },
    /// Show the policy of a user
    Get(UserArgs),
    /// Delete the policy of a user; the role remains as the limit
    Delete(UserArgs),
}

impl UserPolicyCommand {
    fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let line: UserPolicy = match self {
            Self::Put { who, file } => {
                let UserRequest { tenant, user, .. } = who.user_request();
                let policy = Some(document(file)?);
                server.put(USER_POLICY, &UserPolicy { tenant, user, policy })?
            }
            Self::Get(who) => server.request_json(USER_POLICY, &who.query())?,
            Self::Delete(who) => {
                let deleted: DeletedLine = server.delete(USER_POLICY, &who.query())?;
                show(&deleted, json, |it| format!("the user {} has no policy\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::user_policy);
        Ok(())
    }
}

/// Name of a user.
#[derive(Args, Debug)]
pub(in crate::admin) struct UserArgs {
    /// Tenant of the user
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Name of the user: letters, digits and _+=,.@-
    name: String,
}

impl UserArgs {
    fn user_request(&self) -> UserRequest {
        let (tenant, user) = (self.tenant.clone(), self.name.clone());
        UserRequest { tenant, user, ..UserRequest::default() }
    }

    fn query(&self) -> [(&str, &str); 2] {
        [("tenant", &self.tenant), ("user", &self.name)]
    }
}

impl UserCommand {
    /// Sends the command's request and prints the answer.
    pub(in crate::admin) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let line: UserLine = match self {
            Self::Create { who, role } | Self::Set { who, role } => {
                let request = UserRequest { role: Some(role.to_string()), ..who.user_request() };
                if matches!(self, Self::Create { .. }) {
                    server.post(USERS, &request)?
                } else {
                    server.put(USER, &request)?
                }
            }
            Self::List { tenant } => {
                let lines: Vec<UserLine> = fetch_all(server, USERS, &[("tenant", tenant)])?;
                show(&lines, json, |lines| print::users(lines));
                return Ok(());
            }
            Self::Show(who) => server.request_json(USER, &who.query())?,
            Self::Policy(command) => return command.run(server, json),
            Self::Disable(who) | Self::Enable(who) => {
                let enabled = Some(matches!(self, Self::Enable(_)));
                server.put(USER, &UserRequest { enabled, ..who.user_request() })?
            }
            Self::Delete(who) => {
                let deleted: DeletedLine = server.delete(USER, &who.query())?;
                show(&deleted, json, |it| format!("deleted user {}\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::user);
        Ok(())
    }
}
