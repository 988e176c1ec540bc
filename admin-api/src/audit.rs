//! Records of changes: the lines of audit files, and the replies of the route that reads them.
//!
//! A change leaves two lines with one id. The first has no outcome and is durable before the change
//! begins; the second has the outcome and is durable before the reply. Readers show the second one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::principals::PrincipalLine;

/// Path of the audit records of a process.
pub const AUDIT: &str = "/admin/v1/audit";
/// Version of the records.
pub const AUDIT_VERSION: u8 = 1;
/// Maximum number of records in one page.
pub const PAGE_MAX: usize = 500;

/// Record of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// Version of the record: 1.
    pub v: u8,
    /// Id of the request, as the reply's header `x-martlet-request-id` has it.
    pub id: String,
    /// Time of the request, in milliseconds since 1970.
    pub time_ms: u64,
    /// Role and name of the process.
    pub process: String,
    /// Address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Principal of the request.
    pub who: PrincipalLine,
    /// Method and path of a route of the admin API, or the name of an S3 operation.
    pub operation: String,
    /// Names in the request: tenant, user, bucket, key and the like. Never a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub target: BTreeMap<String, String>,
    /// `done`, `refused` (status 4xx), `failed` (5xx), or `unknown`: the process ended before the
    /// outcome was stored. `None` in the line that precedes the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// HTTP status of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// Page of audit records, in the order in which the changes ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// Records.
    pub items: Vec<AuditRecord>,
    /// Cursor of the next page, also at the end of the records: later records follow there.
    pub next: String,
    /// True if the process has more records now.
    pub more: bool,
}
