//! Contents of `cluster.toml`, with its checks. A mistake is refused with its line and a remedy.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use martlet_protocol::Redundancy;
use martlet_ring::{NewDevice, Node};
use martlet_serving::{Failure, Size};
use serde::Deserialize;
use toml::{Spanned, Table};

/// Name of the folder for keys and builders in the output folder, which no node may have.
pub(crate) const CLUSTER_DIR: &str = "cluster";
/// Bytes of a device for one unit of weight.
const BYTES_PER_WEIGHT: f64 = 1e9;
/// Name of the first policy, which keeps copies.
const FIRST_POLICY: &str = "default";
/// Most nodes in a file.
const NODES_MAX: usize = 4096;

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
    /// Admin port, on 127.0.0.1.
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
    /// Further host names in the certificates of the S3 port.
    pub(crate) names: Vec<String>,
    /// Days for which certificates of machines are valid.
    pub(crate) days: u32,
}

impl Default for TlsSpec {
    fn default() -> Self {
        Self { members: true, s3: true, names: Vec::new(), days: 730 }
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
pub(crate) enum NodeRole {
    StorageNode,
    Proxy,
    Replicator,
}

impl NodeRole {
    fn all() -> Spanned<Vec<Self>> {
        Spanned::new(0..0, vec![Self::StorageNode, Self::Proxy, Self::Replicator])
    }

    /// Name of the role in settings.
    pub(crate) fn name(self) -> &'static str {
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
        let spec: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        let checks = SpecChecks { text, spec: &spec };
        checks.all()?;
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
        let mut all = vec![copies("index", "index"), copies("data-0", FIRST_POLICY)];
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

/// Checks of a parsed file.
struct SpecChecks<'a> {
    text: &'a str,
    spec: &'a ClusterSpec,
}

impl SpecChecks<'_> {
    fn all(&self) -> Result<(), String> {
        self.named("cluster", &self.spec.name)?;
        let nodes = self.spec.nodes.len();
        if nodes == 0 || nodes > NODES_MAX {
            return Err(format!("a cluster has 1 to {NODES_MAX} nodes, not {nodes}: add [[node]]"));
        }
        if !self.spec.data_dir.get_ref().is_absolute() {
            let why = "data_dir must be an absolute path";
            return Err(self.at(&self.spec.data_dir.span(), why));
        }
        if !self.spec.overload.is_finite() || self.spec.overload < 0.0 {
            return Err("overload must be a fraction of at least 0, such as 0.1".to_owned());
        }
        if self.spec.tls.days == 0 || self.spec.tls.days > 3650 {
            return Err("tls.days must be 1 to 3650".to_owned());
        }
        self.first()?;
        self.policies()?;
        self.nodes()?;
        self.ports()?;
        self.copies()
    }

    /// Returns an error sentence that begins with the line of `span`.
    fn at(&self, span: &Range<usize>, why: &str) -> String {
        let end = span.start.min(self.text.len());
        format!("line {}: {why}", self.text[..end].matches('\n').count() + 1)
    }

    fn named(&self, kind: &str, name: &Spanned<String>) -> Result<(), String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let text = name.get_ref();
        let is_odd = text.is_empty() || text.len() > 64 || text.starts_with(['.', '-']);
        if is_odd || !text.chars().all(is_plain) {
            let why = format!(
                "\"{text}\" is not a name of a {kind}: use 1 to 64 letters, digits, -, _ and ."
            );
            return Err(self.at(&name.span(), &why));
        }
        Ok(())
    }

    fn first(&self) -> Result<(), String> {
        let Some(FirstSpec { tenant, bucket }) = &self.spec.first else { return Ok(()) };
        self.named("tenant", tenant)?;
        let Some(bucket) = bucket else { return Ok(()) };
        let name = bucket.get_ref();
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_right = (3..=63).contains(&name.len())
            && name.starts_with(is_letter)
            && name.ends_with(is_letter)
            && name.chars().all(|c| is_letter(c) || c == '-');
        if is_right {
            return Ok(());
        }
        let why = format!(
            "\"{name}\" is not a name of a first bucket: use 3 to 63 small letters, digits and -"
        );
        Err(self.at(&bucket.span(), &why))
    }

    fn policies(&self) -> Result<(), String> {
        let mut names = BTreeSet::from([FIRST_POLICY.to_owned(), "standard".to_owned()]);
        for PolicySpec { name, code } in &self.spec.policies {
            self.named("policy", name)?;
            let folded = name.get_ref().to_lowercase().replace('_', "-");
            if !names.insert(folded) {
                let why = format!("the policy {} is reserved or named twice", name.get_ref());
                return Err(self.at(&name.span(), &why));
            }
            if code.is_replicated() {
                let why = "a [[policy]] needs an erasure code, such as code = \"4+2\"; copies are \
                           the policy named default";
                return Err(self.at(&name.span(), why));
            }
        }
        let Some(chosen) = &self.spec.default_policy else { return Ok(()) };
        let known = |policy: &PolicySpec| policy.name.get_ref() == chosen.get_ref();
        if chosen.get_ref() == FIRST_POLICY || self.spec.policies.iter().any(known) {
            return Ok(());
        }
        let why = format!("there is no [[policy]] with the name {}", chosen.get_ref());
        Err(self.at(&chosen.span(), &why))
    }

    fn nodes(&self) -> Result<(), String> {
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for node in &self.spec.nodes {
            self.named("node", &node.name)?;
            let (name, address) = (node.name(), node.address());
            if name == CLUSTER_DIR {
                let why = "a node can't be named cluster, the folder of keys and builders";
                return Err(self.at(&node.name.span(), why));
            }
            if !names.insert(name) {
                let why = format!("the node {name} is named twice");
                return Err(self.at(&node.name.span(), &why));
            }
            if !addresses.insert(address) {
                let why = format!("two nodes have the address {address}");
                return Err(self.at(&node.address.span(), &why));
            }
            self.address(node)?;
            self.devices(node)?;
        }
        Ok(())
    }

    fn address(&self, node: &NodeSpec) -> Result<(), String> {
        let address = node.address();
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let is_ip = address.parse::<IpAddr>().is_ok();
        if !is_ip && (address.is_empty() || !address.chars().all(is_host)) {
            let why = format!(
                "\"{address}\" is neither an IP address nor a host name; ports have a table of \
                 their own, [ports]"
            );
            return Err(self.at(&node.address.span(), &why));
        }
        if node.bind().is_none() {
            let why = format!(
                "{address} is a host name: name the IP address to listen on too, as in bind = \
                 \"10.0.0.1\""
            );
            return Err(self.at(&node.address.span(), &why));
        }
        Ok(())
    }

    fn devices(&self, node: &NodeSpec) -> Result<(), String> {
        let name = node.name();
        let span = if node.roles.span().is_empty() { node.name.span() } else { node.roles.span() };
        if node.roles.get_ref().is_empty() {
            return Err(self.at(&span, &format!("the node {name} has no role: remove roles")));
        }
        if node.has(NodeRole::StorageNode) == node.devices.is_empty() {
            let why = if node.devices.is_empty() {
                format!(
                    "the node {name} has no [[node.device]]: add one, or leave storage-node \
                         out of its roles"
                )
            } else {
                format!("the node {name} has devices, so its roles need storage-node")
            };
            return Err(self.at(&span, &why));
        }
        let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
        for device in &node.devices {
            self.named("device", &device.name)?;
            let called = device.name.get_ref();
            if !names.insert(called) || !paths.insert(&device.path) {
                let why = format!("a device of {name} has the name or the path of {called} too");
                return Err(self.at(&device.name.span(), &why));
            }
            if !device.path.is_absolute() {
                let why = format!("the path of {name}/{called} must be absolute");
                return Err(self.at(&device.name.span(), &why));
            }
            self.weight(name, device)?;
        }
        Ok(())
    }

    fn weight(&self, node: &str, device: &DeviceSpec) -> Result<(), String> {
        let called = device.name.get_ref();
        let why = match (device.weight, device.size) {
            (None, None) => "needs a size, such as \"4TB\", or a weight",
            (Some(weight), _) if !weight.is_finite() || weight < 0.0 => {
                "has a weight that is no number of at least 0"
            }
            (None, Some(Size(0))) => "has no size: write weight = 0 to drain it",
            _ => return Ok(()),
        };
        Err(self.at(&device.name.span(), &format!("the device {node}/{called} {why}")))
    }

    fn ports(&self) -> Result<(), String> {
        let PortSpec { s3, internal, admin } = self.spec.ports;
        if [s3, internal, admin].contains(&0) || s3 == internal || s3 == admin || internal == admin
        {
            return Err("[ports] needs three different ports above 0".to_owned());
        }
        Ok(())
    }

    /// Checks that there are enough machines and devices for each policy.
    fn copies(&self) -> Result<(), String> {
        let holds = |node: &&NodeSpec| node.devices.iter().any(|device| device.weight() > 0.0);
        let nodes = self.spec.nodes.iter().filter(holds).count();
        let replicas = usize::from(*self.spec.replicas.get_ref());
        if replicas == 0 || replicas > nodes {
            let why = format!(
                "{replicas} copies need as many nodes with a device of weight, and there are \
                 {nodes}: add nodes, or reduce replicas"
            );
            return Err(self.at(&self.spec.replicas.span(), &why));
        }
        let devices = self.spec.devices().filter(|device| device.weight > 0.0).count();
        for policy in &self.spec.policies {
            let fragments = usize::from(policy.code.fragments().unwrap_or(1));
            if fragments > devices {
                let why = format!(
                    "the policy {} needs {fragments} devices, one for each fragment, and there \
                     are {devices} with weight",
                    policy.name.get_ref()
                );
                return Err(self.at(&policy.name.span(), &why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
