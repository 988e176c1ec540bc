//! Checks of a parsed `cluster.toml`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use martlet_serving::Size;
use toml::Spanned;

use super::{
    ClusterSpec, DeviceSpec, FIRST_POLICY, FirstSpec, NodeRole, NodeSpec, PolicySpec, PortSpec,
};
use crate::names::CLUSTER_DIR;

/// Most nodes in a file.
const NODES_MAX: usize = 4096;

/// Words for paths that units and scripts can name.
const PLAIN_PATH: &str = "without double quotes, backslashes and control characters";

/// True if units and scripts can name a path.
fn is_plain_path(path: &Path) -> bool {
    let is_odd = |c: char| c == '"' || c == '\\' || c.is_control();
    path.to_str().is_some_and(|text| !text.contains(is_odd))
}

/// Checks of a parsed file.
pub(super) struct SpecChecks<'a> {
    pub(super) text: &'a str,
    pub(super) spec: &'a ClusterSpec,
}

impl SpecChecks<'_> {
    /// Checks everything. The error begins with its line, where there is one.
    pub(super) fn all(&self) -> Result<(), String> {
        self.named("cluster", &self.spec.name)?;
        let nodes = self.spec.nodes.len();
        if nodes == 0 || nodes > NODES_MAX {
            return Err(format!("a cluster has 1 to {NODES_MAX} nodes, not {nodes}: add [[node]]"));
        }
        let data_dir = &self.spec.data_dir;
        if !data_dir.get_ref().is_absolute() || !is_plain_path(data_dir.get_ref()) {
            let why = format!("data_dir must be an absolute path {PLAIN_PATH}");
            return Err(self.at(&data_dir.span(), &why));
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
        self.roles()?;
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
            if !device.path.is_absolute() || !is_plain_path(&device.path) {
                let why = format!("the path of {name}/{called} must be absolute, {PLAIN_PATH}");
                return Err(self.at(&device.name.span(), &why));
            }
            self.weight(name, device)?;
        }
        Ok(())
    }

    /// Checks that clients have a proxy, and each storage node a replicator.
    fn roles(&self) -> Result<(), String> {
        let nodes = || self.spec.nodes.iter();
        if !nodes().any(|node| node.has(NodeRole::Proxy)) {
            return Err(
                "no node has the role proxy, which S3 clients need: add it to the roles of \
                        a node, or add a node"
                    .to_owned(),
            );
        }
        // A replicator beside devices looks after these alone.
        let serves_all =
            |node: &NodeSpec| node.has(NodeRole::Replicator) && !node.has(NodeRole::StorageNode);
        if nodes().any(serves_all) {
            return Ok(());
        }
        let is_alone =
            |node: &&NodeSpec| node.has(NodeRole::StorageNode) && !node.has(NodeRole::Replicator);
        let Some(alone) = nodes().find(is_alone) else { return Ok(()) };
        let why = format!(
            "no replicator looks after the devices of {}: add replicator to its roles, or a node \
             with the role replicator and without storage-node, which looks after all devices",
            alone.name()
        );
        Err(self.at(&alone.roles.span(), &why))
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
