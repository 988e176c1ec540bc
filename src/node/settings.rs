//! Settings of a machine: those of its roles, in one file.
//!
//! A setting that several roles have, such as `max_requests`, holds for each of them. Each role
//! keeps its state in a folder of its own below `data_dir`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use martlet_deploy::NodeRole;
use martlet_membership::{MemberArgs, MemberSettings};
use martlet_serving::Failure;
use martlet_serving::settings::{CommonArgs, CommonSettings, MergedSettings, list};
use serde::{Deserialize, Serialize};

use crate::process::args::{EventArgs, S3Args};
use crate::process::console::ConsoleArgs;
use crate::process::data_port::DataPortArgs;
use crate::process::direct::DirectArgs;
use crate::proxy::{FirstArgs, ProxySettings};
use crate::replicator::{ReplicatorSettings, WorkerArgs};
use crate::server::credentials::Credentials;
use crate::storage_node::{DeviceArgs, StorageNodeSettings};

/// Settings file in the folder that `--config` names.
const FILE: &str = "node.toml";
/// Default folder for the state of all roles.
pub(crate) const DATA_DIR: &str = "/var/lib/martlet";
/// Default port of the admin address.
const ADMIN_PORT: u16 = 9001;

const AFTER_HELP: &str = "\
The folder comes from `martlet cluster apply`. Its node.toml has the settings of all roles; \
relative paths, also those of flags, are relative to the folder. MARTLET_ variables override the \
file, and flags override both.

One admin address serves all roles: /readyz names the problems of each, and /metrics has the label \
role. SIGTERM stops the proxy and the workers first, and the storage node once they are done.

Example:
  martlet node --config /etc/martlet";

/// Flags of `martlet node`.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct NodeArgs {
    /// Role of this process; repeatable [default: all]
    #[arg(long = "role", value_name = "ROLE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
    /// File with the root credentials
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials_file: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    #[serde(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    #[serde(flatten)]
    s3: S3Args,
    #[command(flatten)]
    #[serde(flatten)]
    data_port: DataPortArgs,
    #[command(flatten)]
    #[serde(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    #[serde(flatten)]
    workers: WorkerArgs,
    #[command(flatten)]
    #[serde(flatten)]
    events: EventArgs,
    #[command(flatten)]
    #[serde(flatten)]
    first: FirstArgs,
    #[command(flatten)]
    #[serde(flatten)]
    console: ConsoleArgs,
    #[command(flatten)]
    #[serde(flatten)]
    common: CommonArgs,
}

fn parse_role(text: &str) -> Result<NodeRole, Failure> {
    NodeRole::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
        Failure::usage(format!(
            "\"{text}\" is not a role: roles may have storage-node, proxy and replicator"
        ))
    })
}

/// Settings that only `martlet node` has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct OwnSettings {
    /// Roles of the process. Default: all.
    #[serde(deserialize_with = "list")]
    roles: Vec<String>,
    /// File with the root credentials.
    credentials_file: Option<PathBuf>,
}

const NAMES: [&str; 2] = ["roles", "credentials_file"];

/// Settings of a machine.
pub(crate) struct NodeSettings {
    pub(super) member: MemberSettings,
    pub(super) common: CommonSettings,
    pub(super) storage_node: Option<StorageNodeSettings>,
    pub(super) proxy: Option<ProxySettings>,
    pub(super) replicator: Option<ReplicatorSettings>,
}

impl NodeSettings {
    /// Returns the names of all settings of `martlet node` besides the common ones.
    pub(crate) fn names() -> Vec<&'static str> {
        let roles =
            [StorageNodeSettings::names(), ProxySettings::names(), ReplicatorSettings::names()];
        let mut names = NAMES.to_vec();
        for name in roles.concat() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Loads the settings of a start with these flags, and checks them. The process continues in
    /// the folder of the settings, where relative paths begin.
    pub(super) fn load(args: &NodeArgs) -> Result<Self, Failure> {
        let from_environment = || std::env::var_os("MARTLET_CONFIG").map(PathBuf::from);
        let given = args.common.config.clone().or_else(from_environment).ok_or_else(|| {
            Failure::usage(
                "no settings are given: name the folder that `martlet cluster apply` has written, \
                 as in --config /etc/martlet",
            )
        })?;
        let file = if given.is_dir() { given.join(FILE) } else { given };
        let file = file.canonicalize().map_err(|error| {
            Failure::usage(format!("the settings in {} can't be read: {error}", file.display()))
        })?;
        let merged = MergedSettings::at_start(&Self::names(), args, Some(&file))?;
        if let Some(folder) = file.parent() {
            std::env::set_current_dir(folder).map_err(|error| {
                Failure::refused(format!("{} can't be entered: {error}", folder.display()))
            })?;
        }
        Self::of(&merged)
    }

    /// Extracts the settings of all roles and checks them.
    pub(crate) fn of(merged: &MergedSettings) -> Result<Self, Failure> {
        let own: OwnSettings = merged.extract()?;
        let member: MemberSettings = merged.extract()?;
        let common: CommonSettings = merged.common()?;
        common.check()?;
        let name = member.name()?.to_owned();
        let folder = member.data_dir(DATA_DIR);
        let roles: Vec<NodeRole> = if own.roles.is_empty() {
            NodeRole::ALL.to_vec()
        } else {
            own.roles.iter().map(|text| parse_role(text)).collect::<Result<_, _>>()?
        };
        let has = |role: NodeRole| roles.contains(&role);
        let of_role = |role: NodeRole| merged.clone().with("data_dir", folder.join(role.name()));
        let storage_node = has(NodeRole::StorageNode)
            .then(|| StorageNodeSettings::of(&of_role(NodeRole::StorageNode)))
            .transpose()?;
        let proxy = has(NodeRole::Proxy)
            .then(|| {
                let merged = of_role(NodeRole::Proxy);
                ProxySettings::of(&with_credentials(merged, own.credentials_file.as_deref())?)
            })
            .transpose()?;
        let replicator = has(NodeRole::Replicator)
            .then(|| {
                let merged = of_role(NodeRole::Replicator);
                // Workers look after the machine's own devices; a machine without any serves all.
                let nodes =
                    if has(NodeRole::StorageNode) { vec![name.clone()] } else { Vec::new() };
                ReplicatorSettings::of(&merged.with("nodes", nodes))
            })
            .transpose()?;
        Ok(Self { member, common, storage_node, proxy, replicator })
    }

    /// Returns the admin address.
    pub(super) fn admin_address(&self) -> SocketAddr {
        self.member.admin_address(ADMIN_PORT)
    }
}

/// Adds root credentials of a file. Those of the environment and of the settings win.
fn with_credentials(
    merged: MergedSettings,
    file: Option<&Path>,
) -> Result<MergedSettings, Failure> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct RootKey {
        root_access_key: Option<String>,
    }
    let given: RootKey = merged.extract()?;
    let (None, Some(file)) = (given.root_access_key, file) else { return Ok(merged) };
    let read = Credentials::read(file)?.ok_or_else(|| {
        Failure::refused(format!(
            "there are no root credentials in {}: copy the folder of this machine again",
            file.display()
        ))
    })?;
    Ok(merged.with("root_access_key", read.access_key).with("root_secret_key", read.secret_key.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_TEXT: &str = "name = 'n1'\ndata_dir = '/x'\nroot_access_key = 'root'\n\
        root_secret_key = '1234567890123456'\ncluster_key_file = 'cluster.key'\n";

    fn settings(more: &str) -> Result<NodeSettings, Failure> {
        let (names, args) = (NodeSettings::names(), NodeArgs::default());
        let text = format!("{FILE_TEXT}{more}");
        NodeSettings::of(&MergedSettings::gather(&names, &args, |_| None, Some(&text))?)
    }

    #[test]
    fn each_role_has_a_folder_of_its_own_and_the_workers_their_machine() {
        let settings = settings("devices = 'a=/a'").unwrap();
        let folder = |member: &MemberSettings| member.data_dir("none");
        let storage_node = settings.storage_node.as_ref().unwrap();
        assert_eq!(folder(&storage_node.member), Path::new("/x/storage-node"));
        assert_eq!(folder(&settings.proxy.as_ref().unwrap().member), Path::new("/x/proxy"));
        let replicator = settings.replicator.as_ref().unwrap();
        assert_eq!(folder(&replicator.member), Path::new("/x/replicator"));
        assert_eq!(replicator.nodes, ["n1"]);
        assert_eq!(settings.admin_address(), "127.0.0.1:9001".parse().unwrap());
    }

    #[test]
    fn a_machine_may_have_some_roles_only() {
        let settings = settings("roles = ['proxy', 'replicator']").unwrap();
        assert!(settings.storage_node.is_none() && settings.proxy.is_some());
        assert!(settings.replicator.unwrap().nodes.is_empty(), "it serves all devices");
    }

    #[test]
    fn mistakes_are_refused_by_their_name() {
        let refusal = |more: &str| settings(more).err().unwrap().to_string();
        assert!(refusal("rolls = 'proxy'").contains("there is no setting \"rolls\""));
        assert!(refusal("roles = 'prox'").contains("\"prox\" is not a role"));
        assert!(refusal("").contains("no device"), "a storage node needs devices");
        let one = NodeSettings::names();
        let mut sorted = one.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), one.len(), "each name is listed once");
    }

    #[test]
    fn root_credentials_come_from_a_file_or_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("credentials");
        let (names, args) = (NodeSettings::names(), NodeArgs::default());
        let text = format!("name = 'n1'\nroles = 'proxy'\ncredentials_file = '{}'", path.display());
        let of = || {
            let merged = MergedSettings::gather(&names, &args, |_| None, Some(&text)).unwrap();
            NodeSettings::of(&merged)
        };
        assert!(of().err().unwrap().to_string().contains("no root credentials"));
        let lines = "MARTLET_ROOT_ACCESS_KEY=root\nMARTLET_ROOT_SECRET_KEY=1234567890123456\n";
        std::fs::write(&path, lines).unwrap();
        assert_eq!(of().unwrap().proxy.unwrap().root().unwrap().0, "root");
    }
}
