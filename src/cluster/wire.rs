//! Messages between commands and the running `up`: one line of JSON each way.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::layout::ProcessRole;

/// Request of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(super) enum ControlRequest {
    Status,
    Kill { which: TargetSelector },
    Start { which: TargetSelector },
    Stop { which: TargetSelector },
    Pause { which: TargetSelector },
    Resume { which: TargetSelector },
    AddNode { zone: Option<u32> },
}

/// Target of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TargetSelector {
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
pub(super) enum ControlReply {
    /// Status of the cluster.
    Status(ClusterStatus),
    /// Success, with sentences for people.
    Done(Vec<String>),
    /// Refusal, with its reason.
    Refused(String),
}

/// Status of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ClusterStatus {
    pub(super) data_dir: PathBuf,
    pub(super) replicas: usize,
    /// URLs of the S3 endpoints.
    pub(super) endpoints: Vec<String>,
    pub(super) processes: Vec<ProcessStatus>,
    pub(super) devices: Vec<DataDevice>,
    pub(super) rings: Vec<RingLine>,
}

/// Status of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessStatus {
    pub(super) name: String,
    pub(super) role: ProcessRole,
    /// Node that the process belongs to.
    pub(super) node: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) state: ProcessState,
    /// True if the process is ready. If not, `reason` holds the reported reason.
    pub(super) ready: bool,
    pub(super) reason: String,
    pub(super) address: Option<SocketAddr>,
    pub(super) admin_address: SocketAddr,
    pub(super) log: PathBuf,
    /// Epochs of the rings in its replies, as `index=1,data-0=2`. Empty if the process reports
    /// none.
    pub(super) rings: String,
}

/// State of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ProcessState {
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
pub(super) struct DataDevice {
    pub(super) id: u32,
    pub(super) node: String,
    pub(super) name: String,
    pub(super) zone: u32,
    pub(super) path: PathBuf,
    /// Replicas that the index ring and the rings of extents assign to the device.
    pub(super) index_replicas: usize,
    pub(super) data_replicas: usize,
}

/// Summary of a ring file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingLine {
    pub(super) name: String,
    pub(super) epoch: u64,
    pub(super) hash: String,
    pub(super) partitions: usize,
    pub(super) moving: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_one_readable_line() {
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
    fn states_read_as_people_say_them() {
        assert_eq!(ProcessState::Died("signal 9".into()).to_string(), "died: signal 9");
        assert_eq!(serde_json::to_string(&ProcessState::Running).unwrap(), "\"running\"");
    }
}
