//! JSON messages and paths of the other processes of a cluster, which a process reads for its principals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of the list of processes; GET returns [`ProcessName`]s.
pub const PROCESSES: &str = "/admin/v1/processes";
/// Path of a reply of one process; GET returns it as that process sent it.
pub const PROCESS_REPLY: &str = "/admin/v1/processes/reply";
/// Maximum length of the query of a relayed request.
pub const QUERY_BYTES_MAX: usize = 2048;
/// Maximum length of a relayed reply.
pub const RELAYED_BYTES_MAX: usize = 4 << 20;

/// Process of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessName {
    /// Role and name, such as `proxy p1`. Processes of one name are told apart by their addresses.
    pub process: String,
    /// Roles and names at the process's admin address, that with the most routes first.
    #[serde(default)]
    pub roles: Vec<String>,
    /// True for the process that replies.
    pub own: bool,
    /// Paths that the principal may read of the process.
    pub routes: Vec<String>,
    /// Reason for a process that this one can't read.
    #[serde(default)]
    pub silent: Option<String>,
}

/// Query parameters of a reply of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RelayQuery {
    /// Role and name of the process, as the list has them.
    pub process: String,
    /// Path of the route: one of those that the list names for the process.
    pub route: String,
    /// Query of the request, encoded for a URL, 2,048 bytes at most. Default: none.
    pub query: Option<String>,
}
