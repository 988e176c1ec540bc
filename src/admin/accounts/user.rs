//! `martlet admin user`: users of tenants, and their policies.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use martlet_proxy::Role;

use super::role::document;
use super::{all, print};
use crate::admin::ask::Server;
use crate::admin::print::show;
use crate::admin::wire::accounts::{Deleted, USER, USERS, UserAsked, UserLine};
use crate::admin::wire::roles::{USER_POLICY, UserPolicy};
use crate::failure::Failure;

/// What is asked of users.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A user may do at most what its role says, of what its tenant may: admin all of it; read-write reads \
everything and writes and deletes objects; read-only reads. Bucket policies name it as \
arn:aws:iam::TENANT:user/NAME. With a policy of its own it may do no more than that and buckets' policies \
allow. A tenant needs no users: its own keys may do all that it may.

Examples:
  martlet admin user create --tenant research trainer --role read-write
  martlet admin key create --tenant research --user trainer
  martlet admin user set --tenant research trainer --role read-only
  martlet admin user policy put --tenant research trainer policy.json")]
pub(in crate::admin) enum UserCommand {
    /// Make a user
    Create {
        #[command(flatten)]
        who: WhichUser,
        /// What it may do at most
        #[arg(long, value_name = "admin|read-write|read-only", default_value = "admin")]
        role: Role,
    },
    /// List those of a tenant
    List {
        /// The tenant
        #[arg(long, value_name = "NAME")]
        tenant: String,
    },
    /// Show one
    Show(WhichUser),
    /// Change its role
    Set {
        #[command(flatten)]
        who: WhichUser,
        /// What it may do at most
        #[arg(long, value_name = "admin|read-write|read-only")]
        role: Role,
    },
    /// The policy of its own, if it has one
    #[command(subcommand)]
    Policy(UserPolicyCommand),
    /// Let none of its keys in, until it is enabled
    Disable(WhichUser),
    /// Let its keys in again
    Enable(WhichUser),
    /// Delete one that has no keys any more
    Delete(WhichUser),
}

/// What is asked of the policy of a user.
#[derive(Debug, Subcommand)]
pub(in crate::admin) enum UserPolicyCommand {
    /// Give it a policy, in place of the one it had
    Put {
        #[command(flatten)]
        who: WhichUser,
        /// File with a policy without principals
        file: PathBuf,
    },
    /// Show it
    Get(WhichUser),
    /// Take it away: its role alone says what it may do
    Delete(WhichUser),
}

impl UserPolicyCommand {
    fn run(&self, server: &Server, json: bool) -> Result<(), Failure> {
        let line: UserPolicy = match self {
            Self::Put { who, file } => {
                let UserAsked { tenant, user, .. } = who.asked();
                let policy = Some(document(file)?);
                server.put(USER_POLICY, &UserPolicy { tenant, user, policy })?
            }
            Self::Get(who) => server.ask(USER_POLICY, &who.query())?,
            Self::Delete(who) => {
                let deleted: Deleted = server.delete(USER_POLICY, &who.query())?;
                show(&deleted, json, |it| format!("the user {} has no policy\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::user_policy);
        Ok(())
    }
}

/// A user.
#[derive(Args, Debug)]
pub(in crate::admin) struct WhichUser {
    /// Its tenant
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Its name: letters, digits and _+=,.@-
    name: String,
}

impl WhichUser {
    fn asked(&self) -> UserAsked {
        let (tenant, user) = (self.tenant.clone(), self.name.clone());
        UserAsked { tenant, user, ..UserAsked::default() }
    }

    fn query(&self) -> [(&str, &str); 2] {
        [("tenant", &self.tenant), ("user", &self.name)]
    }
}

impl UserCommand {
    /// Sends the command's request and prints the answer.
    pub(in crate::admin) fn run(&self, server: &Server, json: bool) -> Result<(), Failure> {
        let line: UserLine = match self {
            Self::Create { who, role } | Self::Set { who, role } => {
                let asked = UserAsked { role: Some(role.to_string()), ..who.asked() };
                if matches!(self, Self::Create { .. }) {
                    server.post(USERS, &asked)?
                } else {
                    server.put(USER, &asked)?
                }
            }
            Self::List { tenant } => {
                let lines: Vec<UserLine> = all(server, USERS, &[("tenant", tenant)])?;
                show(&lines, json, |lines| print::users(lines));
                return Ok(());
            }
            Self::Show(who) => server.ask(USER, &who.query())?,
            Self::Policy(command) => return command.run(server, json),
            Self::Disable(who) | Self::Enable(who) => {
                let enabled = Some(matches!(self, Self::Enable(_)));
                server.put(USER, &UserAsked { enabled, ..who.asked() })?
            }
            Self::Delete(who) => {
                let deleted: Deleted = server.delete(USER, &who.query())?;
                show(&deleted, json, |it| format!("the user {} is deleted\n", it.deleted));
                return Ok(());
            }
        };
        show(&line, json, print::user);
        Ok(())
    }
}
