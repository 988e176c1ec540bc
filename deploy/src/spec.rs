//! Contents of `cluster.toml`, with its checks. A mistake is refused with its line and a remedy.

mod checks;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use martlet_protocol::Redundancy;
use martlet_ring::{NewDevice, Node};
use martlet_serving::{Failure, Size, nearest};
use serde::Deserialize;
use toml::{Spanned, Table};

use self::checks::SpecChecks;

/// Name of the ring that places entries.
pub(crate) const INDEX: &str = "index";
/// Bytes of a device for one unit of weight.
const BYTES_PER_WEIGHT: f64 = 1e9;
/// Name of the first policy, which keeps copies.
const FIRST_POLICY: &str = "default";

/// A cluster as an operator describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSpec {
    /// Name of the cluster, which its certificate authority bears.
    pub(crate) name: Spanned<String>,
    /// Copies of each entry, and of each extent under the default policy.
    #[serde(default = "three")]
    pub(crate) replicas: Spanned<u8>,
    /// Hours between two moves of a partition.
    #[serde(default = "one_hour")]
    pub(crate) min_part_hours: u32,
    /// Share by which a device may exceed its own to increase the distance of copies.
    #[serde(default = "tenth")]
    pub(crate) overload: f64,
    /// Partitions of new rings, as a power of two. Default: by the number of devices.
    pub(crate) part_power: Option<u8>,
    /// Storage policy of new buckets. Default: copies.
    pub(crate) default_policy: Option<Spanned<String>>,
    /// Folder for the state of each machine.
    #[serde(default = "state_dir")]
    pub(crate) data_dir: Spanned<PathBuf>,
    #[serde(default)]
    pub(crate) ports: PortSpec,
    #[serde(default)]
    pub(crate) tls: TlsSpec,
    /// Tenant and bucket that a new cluster gets.
    pub(crate) first: Option<FirstSpec>,
    /// Further settings of every machine.
    #[serde(default)]
    pub(crate) settings: Table,
    #[serde(rename = "policy", default)]
    pub(crate) policies: Vec<PolicySpec>,
    #[serde(rename = "node")]
    pub(crate) nodes: Vec<NodeSpec>,
}

/// Ports of every machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PortSpec {
    /// S3 port, at the machine's address.
    pub(crate) s3: u16,
    /// Port for other members, at the machine's address.
    pub(crate) internal: u16,
    /// Admin port: on 127.0.0.1, or over TLS at the machine's address.
    pub(crate) admin: u16,
}

impl Default for PortSpec {
    fn default() -> Self {
        Self { s3: 9000, internal: 6200, admin: 9001 }
    }
}

/// Use of TLS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsSpec {
    /// True if members use TLS among each other.
    pub(crate) members: bool,
    /// True if the S3 port uses TLS with certificates of the cluster's authority.
    pub(crate) s3: bool,
    /// True if the admin port listens at the machine's address, with TLS by a certificate of the
    /// cluster's authority.
    pub(crate) admin: bool,
    /// Further host names in the certificates of the S3 port and of the admin port.
    pub(crate) names: Vec<String>,
    /// Days for which certificates of machines are valid.
    pub(crate) days: u32,
}

impl Default for TlsSpec {
    fn default() -> Self {
        Self { members: true, s3: true, admin: false, names: Vec::new(), days: 730 }
    }
}

/// Tenant and bucket of a new cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstSpec {
    pub(crate) tenant: Spanned<String>,
    pub(crate) bucket: Option<Spanned<String>>,
}

/// Erasure-coded storage policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicySpec {
    pub(crate) name: Spanned<String>,
    pub(crate) code: Redundancy,
}

/// A machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeSpec {
    pub(crate) name: Spanned<String>,
    /// Address for clients and other members: an IP address or a host name.
    pub(crate) address: Spanned<String>,
    /// IP address to listen on. Default: `address`.
    pub(crate) bind: Option<IpAddr>,
    #[serde(default = "first")]
    pub(crate) region: u32,
    pub(crate) zone: u32,
    #[serde(default = "NodeRole::all")]
    pub(crate) roles: Spanned<Vec<NodeRole>>,
    #[serde(rename = "device", default)]
    pub(crate) devices: Vec<DeviceSpec>,
    /// Further settings of this machine.
    #[serde(default)]
    pub(crate) settings: Table,
}

/// Role of a machine's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRole {
    /// `martlet storage-node`.
    StorageNode,
    /// `martlet proxy`.
    Proxy,
    /// `martlet replicator`.
    Replicator,
}

impl NodeRole {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::StorageNode, Self::Proxy, Self::Replicator];

    fn all() -> Spanned<Vec<Self>> {
        Spanned::new(0..0, Self::ALL.to_vec())
    }

    /// Name of the role, as its command and settings have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::StorageNode => "storage-node",
            Self::Proxy => "proxy",
            Self::Replicator => "replicator",
        }
    }
}

/// A disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceSpec {
    pub(crate) name: Spanned<String>,
    pub(crate) path: PathBuf,
    /// Share of the data; 0 drains the device.
    weight: Option<f64>,
    /// Size of the disk, from which the weight follows.
    size: Option<Size>,
}

fn three() -> Spanned<u8> {
    Spanned::new(0..0, 3)
}

fn one_hour() -> u32 {
    1
}

fn tenth() -> f64 {
    0.1
}

fn first() -> u32 {
    1
}

fn state_dir() -> Spanned<PathBuf> {
    Spanned::new(0..0, "/var/lib/martlet".into())
}

/// Purpose of a ring: the index or a storage policy.
#[derive(Clone, Debug)]
pub(crate) struct RingSpec {
    /// Name of the ring's file without its extension.
    pub(crate) file: String,
    pub(crate) policy: u16,
    pub(crate) policy_name: String,
    pub(crate) redundancy: Redundancy,
    pub(crate) replicas: u8,
}

impl DeviceSpec {
    /// Share of the data. The checks of the file ensure that there is one.
    pub(crate) fn weight(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "weights are shares")]
        let by_size = self.size.map(|Size(bytes)| bytes as f64 / BYTES_PER_WEIGHT);
        self.weight.or(by_size).unwrap_or_default()
    }
}

impl NodeSpec {
    pub(crate) fn name(&self) -> &str {
        self.name.get_ref()
    }

    pub(crate) fn address(&self) -> &str {
        self.address.get_ref()
    }

    pub(crate) fn has(&self, role: NodeRole) -> bool {
        self.roles.get_ref().contains(&role)
    }

    /// Address with a port, as URLs and rings write it.
    pub(crate) fn at(&self, port: u16) -> String {
        match self.address().parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            _ => format!("{}:{port}", self.address()),
        }
    }

    /// IP address to listen on.
    pub(crate) fn bind(&self) -> Option<IpAddr> {
        self.bind.or_else(|| self.address().parse().ok())
    }
}

/// Returns the message of a parse error. For an unknown name the nearest known one is added, which
/// the message has between backticks after the unknown one.
fn hinted(error: &toml::de::Error) -> String {
    let mut names = error.message().split('`').skip(1).step_by(2);
    let unknown = names.next().filter(|_| error.message().starts_with("unknown "));
    let hint = unknown.and_then(|unknown| nearest(unknown, names));
    let text = error.to_string();
    match hint {
        Some(right) => format!("{}: did you mean \"{right}\"?", text.trim_end()),
        None => text.trim_end().to_owned(),
    }
}

impl ClusterSpec {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("the cluster file {shown} can't be read: {error}"))
        })?;
        Self::parse(&text).map_err(|why| Failure::usage(format!("{shown}: {why}")))
    }

    /// Parses and checks the text of a file. An error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let spec: Self = toml::from_str(text).map_err(|error| hinted(&error))?;
        SpecChecks { text, spec: &spec }.all()?;
        Ok(spec)
    }

    /// All rings, the index first.
    pub(crate) fn rings(&self) -> Vec<RingSpec> {
        let replicas = *self.replicas.get_ref();
        let copies = |file: &str, policy_name: &str| RingSpec {
            file: file.to_owned(),
            policy: 0,
            policy_name: policy_name.to_owned(),
            redundancy: Redundancy::Replicated,
            replicas,
        };
        let mut all = vec![copies(INDEX, INDEX), copies("data-0", FIRST_POLICY)];
        all.extend((1..).zip(&self.policies).map(|(policy, spec)| RingSpec {
            file: format!("data-{policy}"),
            policy,
            policy_name: spec.name.get_ref().clone(),
            redundancy: spec.code,
            replicas: spec.code.fragments().unwrap_or(replicas),
        }));
        all
    }

    /// All devices, in the order of the file.
    pub(crate) fn devices(&self) -> impl Iterator<Item = NewDevice> {
        self.nodes.iter().flat_map(move |node| {
            node.devices.iter().map(move |device| NewDevice {
                region: node.region,
                zone: node.zone,
                node: Node { name: node.name().into(), address: node.at(self.ports.internal) },
                name: device.name.get_ref().clone(),
                weight: device.weight(),
                meta: String::new(),
            })
        })
    }

    /// Internal addresses of storage nodes, by name.
    pub fn storage_nodes(&self) -> Vec<(String, String)> {
        let nodes = self.nodes.iter().filter(|node| node.has(NodeRole::StorageNode));
        nodes.map(|node| (node.name().to_owned(), node.at(self.ports.internal))).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
