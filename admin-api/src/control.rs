//! Messages at the control port of `martlet cluster up`, which runs a cluster of processes on one
//! machine: one line of JSON each way.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Request of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Returns the status of the cluster.
    Status,
    /// Kills processes at once.
    Kill {
        /// Node or process.
        which: TargetSelector,
    },
    /// Starts processes.
    Start {
        /// Node or process.
        which: TargetSelector,
    },
    /// Stops processes in order.
    Stop {
        /// Node or process.
        which: TargetSelector,
    },
    /// Suspends processes.
    Pause {
        /// Node or process.
        which: TargetSelector,
    },
    /// Continues suspended processes.
    Resume {
        /// Node or process.
        which: TargetSelector,
    },
    /// Adds a node.
    AddNode {
        /// Zone of the node. `None` takes the next zone in turn.
        zone: Option<u32>,
    },
}

/// Target of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetSelector {
    /// Number of a node, for all its processes.
    Node(usize),
    /// Name of one process.
    Process(String),
}

impl FromStr for TargetSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.parse() {
            return Ok(Self::Node(number));
        }
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Ok(Self::Process(text.to_owned()));
        }
        Err("neither a node's number nor a process's name: write 2, n2, r2 or p1".to_owned())
    }
}

impl fmt::Display for TargetSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(number) => write!(f, "node {number}"),
            Self::Process(name) => f.write_str(name),
        }
    }
}

/// Reply to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlReply {
    /// Status of the cluster.
    Status(ClusterStatus),
    /// Success, with sentences for people.
    Done(Vec<String>),
    /// Refusal, with its reason.
    Refused(String),
}

/// Status of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Folder of the cluster.
    pub data_dir: PathBuf,
    /// Copies of each entry, and of each extent under the default policy.
    pub replicas: usize,
    /// URLs of the S3 endpoints.
    pub endpoints: Vec<String>,
    /// Processes in the order of their start.
    pub processes: Vec<ProcessStatus>,
    /// Devices in the data ring.
    pub devices: Vec<DataDevice>,
    /// Rings of the cluster.
    pub rings: Vec<RingLine>,
}

/// Status of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Name of the process.
    pub name: String,
    /// Role of the process.
    pub role: ProcessRole,
    /// Node that the process belongs to.
    pub node: Option<String>,
    /// Process id while it lives.
    pub pid: Option<u32>,
    /// State of the process.
    pub state: ProcessState,
    /// True if the process is ready. If not, `reason` holds the reported reason.
    pub ready: bool,
    /// Reason for not being ready.
    pub reason: String,
    /// Address that the process serves. `None` for replicators.
    pub address: Option<SocketAddr>,
    /// Admin address of the process.
    pub admin_address: SocketAddr,
    /// Path of the log file.
    pub log: PathBuf,
    /// Epochs of the rings in its replies, as `index=1,data-0=2`. Empty if the process reports
    /// none.
    pub rings: String,
}

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessRole {
    /// Stores bytes and entries.
    StorageNode,
    /// Restores missing replicas and runs background workers.
    Replicator,
    /// Serves S3.
    Proxy,
}

impl ProcessRole {
    /// Name of the role's subcommand and settings file.
    pub fn name(self) -> &'static str {
        match self {
            Self::StorageNode => "storage-node",
            Self::Replicator => "replicator",
            Self::Proxy => "proxy",
        }
    }
}

impl fmt::Display for ProcessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// State of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// The process runs.
    Running,
    /// The process was suspended by command.
    Paused,
    /// The process was stopped or killed by command, or never started.
    Stopped,
    /// The process ended by itself, with this exit code or signal.
    Died(String),
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Paused => f.write_str("paused"),
            Self::Stopped => f.write_str("stopped"),
            Self::Died(how) => write!(f, "died: {how}"),
        }
    }
}

/// Device in the data ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataDevice {
    /// Device id in the rings.
    pub id: u32,
    /// Name of the node.
    pub node: String,
    /// Name of the device on its node.
    pub name: String,
    /// Zone of the node.
    pub zone: u32,
    /// Folder of the device.
    pub path: PathBuf,
    /// Replicas that the index ring assigns to the device.
    pub index_replicas: usize,
    /// Replicas that the rings of extents assign to the device.
    pub data_replicas: usize,
}

/// Summary of a ring file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingLine {
    /// Name of the ring.
    pub name: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// First bytes of the ring's hash.
    pub hash: String,
    /// Number of partitions.
    pub partitions: usize,
    /// Number of moving replicas.
    pub moving: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_request_is_one_readable_line() {
        let asked = ControlRequest::Kill { which: TargetSelector::Node(2) };
        let line = serde_json::to_string(&asked).unwrap();
        assert_eq!(line, r#"{"ask":"kill","which":{"node":2}}"#);
        assert_eq!(serde_json::from_str::<ControlRequest>(&line).unwrap(), asked);
        let reply = ControlReply::Refused("no".to_owned());
        let line = serde_json::to_string(&reply).unwrap();
        assert_eq!(line, r#"{"refused":"no"}"#);
        assert_eq!(serde_json::from_str::<ControlReply>(&line).unwrap(), reply);
    }

    #[test]
    fn states_have_readable_names() {
        assert_eq!(ProcessState::Died("signal 9".into()).to_string(), "died: signal 9");
        assert_eq!(serde_json::to_string(&ProcessState::Running).unwrap(), "\"running\"");
    }
}
