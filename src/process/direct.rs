//! The direct socket of a process with devices: its settings, its start and its metrics.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use martlet_protocol::Clock;
use martlet_protocol::extent_token::ExtentTokenKey;
use martlet_protocol::limits::EXTENT_BYTES_MAX;
use martlet_serving::{Failure, Size};
use martlet_storage_node::direct::DIRECT_BYTES_DEFAULT;
use martlet_storage_node::{
    DirectFigures, DirectListener, DirectOptions, DirectServer, DirectTimes, StorageNode,
};
use serde::{Deserialize, Deserializer, Serialize};

/// Source of the figures of a direct socket.
pub(crate) type DirectSource = Arc<dyn Fn() -> DirectFigures + Send + Sync>;

/// Flags of the direct socket.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct DirectArgs {
    /// Unix socket on which local processes receive descriptors of extents [default: none]
    #[arg(id = "direct_socket", long = "direct-socket", value_name = "PATH")]
    #[serde(rename = "direct_socket", skip_serializing_if = "Option::is_none")]
    socket: Option<PathBuf>,
    /// Id of a user that may use the direct socket; repeatable [default: the server's user]
    #[arg(id = "direct_uids", long = "direct-uid", value_name = "UID")]
    #[serde(rename = "direct_uids", skip_serializing_if = "Vec::is_empty")]
    uids: Vec<u32>,
    /// Bytes of extents that processes may have leased, half of them by each user [default: 64GiB]
    #[arg(id = "direct_bytes", long = "direct-bytes", value_name = "SIZE")]
    #[serde(rename = "direct_bytes", skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

/// Settings of the direct socket.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct DirectSettings {
    /// Path of the socket. Without it, the process has none.
    #[serde(rename = "direct_socket")]
    socket: Option<PathBuf>,
    /// Users that may use the socket. Default: the user of the process.
    #[serde(rename = "direct_uids", deserialize_with = "uids")]
    uids: Vec<u32>,
    /// Maximum number of leased bytes. Each user may lease half of them.
    #[serde(rename = "direct_bytes")]
    bytes: Size,
}

impl Default for DirectSettings {
    fn default() -> Self {
        Self { socket: None, uids: Vec::new(), bytes: Size(DIRECT_BYTES_DEFAULT) }
    }
}

impl DirectSettings {
    /// Names of these settings.
    pub(crate) const NAMES: [&str; 3] = ["direct_socket", "direct_uids", "direct_bytes"];

    /// Refuses invalid values.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.socket.is_none() && !self.uids.is_empty() {
            return Err(Failure::usage(
                "direct_uids names users of the direct socket: name its path with direct_socket, \
                 such as /run/martlet/direct.sock",
            ));
        }
        if self.bytes.0 < 2 * EXTENT_BYTES_MAX {
            return Err(Failure::usage(
                "direct_bytes must be at least 128MiB: a user may lease half of it, and an extent \
                 has up to 64MiB",
            ));
        }
        Ok(())
    }

    /// Returns true if the process has a direct socket, and so its devices lend extents.
    pub(crate) fn lends(&self) -> bool {
        self.socket.is_some()
    }

    /// Makes the socket, if one is set.
    pub(crate) fn bind(&self) -> Result<Option<DirectListener>, Failure> {
        let bound = self.socket.clone().map(DirectListener::bind).transpose();
        bound.map_err(|error| Failure::refused(error.to_string()))
    }

    /// Makes the server of the socket.
    pub(crate) fn server(
        &self,
        listener: DirectListener,
        node: &Arc<StorageNode>,
        key: ExtentTokenKey,
        clock: Arc<dyn Clock>,
    ) -> DirectServer {
        let options = DirectOptions {
            uids: self.uids.clone(),
            bytes_max: self.bytes.0,
            key,
            clock,
            times: DirectTimes::default(),
        };
        DirectServer::new(listener, node.clone(), options)
    }
}

/// Returns a sentence for operators for each device that lends its extents not to all users.
pub(crate) fn lending_limits(node: &StorageNode) -> Vec<String> {
    let limits = node.lending_limits().into_iter();
    limits
        .map(|limit| {
            format!(
                "device {} lends no extents to root and the server's user, because it has no \
                 read-only mount: {}",
                limit.device, limit.reason
            )
        })
        .collect()
}

/// Deserializes user ids: a list, one number, or text with commas.
fn uids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum UidsForm {
        One(u32),
        Many(Vec<u32>),
        Text(String),
    }
    match UidsForm::deserialize(deserializer)? {
        UidsForm::One(uid) => Ok(vec![uid]),
        UidsForm::Many(uids) => Ok(uids),
        UidsForm::Text(text) => text
            .split(',')
            .map(str::trim)
            .filter(|uid| !uid.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| serde::de::Error::custom("write numbers of users, as in 1000,1001")),
    }
}

#[cfg(test)]
mod tests {
    use martlet_serving::settings::MergedSettings;

    use super::*;

    fn settings(
        args: &DirectArgs,
        uids: Option<&str>,
        file: &str,
    ) -> Result<DirectSettings, Failure> {
        let environment = |name: &str| match name {
            "MARTLET_DIRECT_UIDS" => uids.map(str::to_owned),
            _ => None,
        };
        let merged = MergedSettings::gather(&DirectSettings::NAMES, args, environment, Some(file))?;
        let settings: DirectSettings = merged.extract()?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn users_are_read_in_all_their_forms() {
        let path = "direct_socket = '/run/x'\n";
        let none = DirectArgs::default();
        let file = format!("{path}direct_uids = [1, 2]");
        assert_eq!(settings(&none, None, &file).unwrap().uids, [1, 2]);
        assert_eq!(settings(&none, Some("3, 4"), &file).unwrap().uids, [3, 4]);
        let args = DirectArgs { uids: vec![5], ..DirectArgs::default() };
        assert_eq!(settings(&args, Some("3"), &file).unwrap().uids, [5]);
        let one = format!("{path}direct_uids = 6");
        assert_eq!(settings(&none, None, &one).unwrap().uids, [6]);
        assert!(!settings(&none, None, "").unwrap().lends());
    }

    #[test]
    fn mistakes_are_refused() {
        let refusal = |uids, file: &str| {
            settings(&DirectArgs::default(), uids, file).unwrap_err().to_string()
        };
        assert!(refusal(None, "direct_uids = [1]").contains("name its path with direct_socket"));
        let path = "direct_socket = '/run/x'\n";
        assert!(refusal(Some("root"), path).contains("numbers of users"));
        assert!(refusal(None, "direct_bytes = '127MiB'").contains("at least 128MiB"));
    }
}
