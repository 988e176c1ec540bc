//! Access to the admin API: who may call which route.
//!
//! ```text
//! request ─▶ gate ─┬─ token of a secret ──────▶ operator
//!                  ├─ signature of a key ─────▶ role of the key   (processes with accounts)
//!                  └─ token of a session ─────▶ role of its key
//!            gate ─── rule of the route: roles, and the field that names a tenant
//! ```
//!
//! * [`rule`]: the rule that each route's description has; [`target`]: names in requests.
//! * [`secret`]: secrets of keys and tokens of sessions; [`signature`]: signed requests;
//!   [`replays`]: signatures that were accepted.
//! * [`principal`]: requesters, and the accounts that know their keys; [`authentication`]: requests
//!   by their heads.
//! * [`gate`]: the decision, and the records of changes; [`state`]: its state; [`records`]: the route
//!   of the records.
//!
//! Keys and their revocation are documents of accounts. So only processes with an S3 port verify
//! signatures of keys. Other members of a cluster accept sessions of operators and viewers, in their
//! first five minutes, because the session's token proves all by itself.

mod authentication;
pub(crate) mod gate;
mod principal;
pub(crate) mod records;
mod replays;
mod rule;
mod secret;
mod signature;
pub(crate) mod state;
mod target;

use std::fmt;
use std::sync::Arc;

use martlet_admin_api::principals::AdminRole;
use martlet_protocol::{Clock, SystemClock};

pub use self::principal::{
    AdminDirectory, AdminKeyState, Principal, PrincipalKind, TenantName, TenantTarget,
};
pub use self::rule::{RouteAccess, TenantField};
pub use self::secret::{AdminSecret, SessionClaims};
pub use self::signature::{SigningKey, UnsignedRequest};
use crate::audit::AuditLog;

/// Means of a process to admit requests to its admin API.
#[derive(Clone)]
pub struct AdminAccess {
    /// Secrets of keys and sessions. `None` accepts the tokens of secrets alone.
    pub secret: Option<AdminSecret>,
    /// Accounts. `None` for processes without an S3 port.
    pub directory: Option<Arc<dyn AdminDirectory>>,
    /// Clock of dates and sessions.
    pub clock: Arc<dyn Clock>,
    /// Log of changes by operators. `None` if the setting turns it off.
    pub audit: Option<Arc<AuditLog>>,
    /// Log of changes by all others: tenant admins, viewers, and S3 requests for buckets. Its files
    /// are others, so that they push no record of an operator out.
    pub tenant_audit: Option<Arc<AuditLog>>,
    /// Roles of the process with their names, such as `proxy p1`. A session of one path is for one of them.
    pub roles: Vec<String>,
}

impl Default for AdminAccess {
    /// Accepts the tokens of secrets alone.
    fn default() -> Self {
        let clock = Arc::new(SystemClock);
        let roles = Vec::new();
        Self { secret: None, directory: None, clock, audit: None, tenant_audit: None, roles }
    }
}

impl AdminAccess {
    /// Returns the log of the changes of a role.
    pub(crate) fn log_of(&self, role: AdminRole) -> Option<&Arc<AuditLog>> {
        let log = if role == AdminRole::Operator { &self.audit } else { &self.tenant_audit };
        log.as_ref()
    }

    /// Returns the audit logs of the process.
    pub fn audit_logs(&self) -> Vec<Arc<AuditLog>> {
        [&self.audit, &self.tenant_audit].into_iter().flatten().cloned().collect()
    }
}

impl fmt::Debug for AdminAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminAccess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
