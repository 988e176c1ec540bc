//! `cluster.toml`: nodes, proxies, devices and ports of a cluster on one machine. It is written
//! when the cluster is made and when a node joins. A later start reads it and starts that cluster
//! again.
//!
//! * Names are never used again: a node is `n` and its number, its replicator `r` and that number.
//! * Every port is used once.

use std::fmt;
use std::net::SocketAddr;

use martlet_admin_api::control::ProcessRole;
use martlet_serving::Failure;
use serde::{Deserialize, Serialize};

use super::ports::{Ports, loopback};
use crate::policies::NamedCode;

/// File name within the cluster's folder.
pub(super) const FILE: &str = "cluster.toml";
const VERSION: u32 = 1;

/// First port of each kind, if free.
const INTERNAL_PORT: u16 = 7001;
const NODE_ADMIN_PORT: u16 = 7101;
const PROXY_ADMIN_PORT: u16 = 7201;
const REPLICATOR_ADMIN_PORT: u16 = 7301;
const DATA_PORT: u16 = 7401;
/// Distance between proxies' ports: the port after a server's S3 port is its default admin port.
const S3_PORT_STEP: u16 = 10;

/// Limits on nodes, devices of a node and proxies, since all run on one machine.
pub(super) const NODES_MAX: usize = 32;
pub(super) const DEVICES_MAX: usize = 16;
pub(super) const PROXIES_MAX: usize = 16;

/// Contents of `cluster.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterLayout {
    version: u32,
    /// Copies of each entry, and of each extent under the default policy.
    pub(super) replicas: usize,
    /// Number of zones; nodes are assigned to them in turn.
    pub(super) zones: u32,
    /// Number of devices of a node that joins.
    pub(super) devices_per_node: usize,
    /// True if each node has a data port, and so do nodes that join.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) data_ports: bool,
    /// True if each node has a direct socket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) direct_sockets: bool,
    /// Erasure-coded storage policies, numbered from 1.
    #[serde(rename = "policy", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) policies: Vec<NamedCode>,
    #[serde(rename = "node")]
    pub(super) nodes: Vec<NodeLayout>,
    #[serde(rename = "proxy")]
    pub(super) proxies: Vec<ProxyLayout>,
}

/// Node: a storage node process, and the replicator of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeLayout {
    pub(super) name: String,
    pub(super) zone: u32,
    pub(super) devices: Vec<String>,
    pub(super) internal_port: u16,
    admin_port: u16,
    replicator_admin_port: u16,
    /// Port at which clients read in place; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data_port: Option<u16>,
}

/// Proxy process with its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProxyLayout {
    pub(super) name: String,
    s3_port: u16,
    admin_port: u16,
}

/// Requested shape of a new cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterShape {
    pub(super) nodes: usize,
    pub(super) devices_per_node: usize,
    pub(super) zones: u32,
    pub(super) proxies: usize,
    pub(super) replicas: usize,
    pub(super) policies: Vec<NamedCode>,
    pub(super) s3_port: u16,
    pub(super) data_ports: bool,
    pub(super) direct_sockets: bool,
}

/// One process of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterProcess {
    pub(super) name: String,
    pub(super) role: ProcessRole,
    /// Node that the process belongs to; `None` for proxies.
    pub(super) node: Option<String>,
    /// Address that the process serves; `None` for replicators.
    pub(super) address: Option<SocketAddr>,
    /// Address at which clients read in place, of a storage node that has one.
    pub(super) data_address: Option<SocketAddr>,
    /// Admin address of the process.
    pub(super) admin_address: SocketAddr,
}

impl ClusterProcess {
    /// All addresses that the process listens on.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.address.into_iter().chain(self.data_address).chain([self.admin_address])
    }
}

impl ClusterLayout {
    /// Makes the layout of a new cluster of this shape.
    pub(super) fn new(shape: ClusterShape, ports: &mut Ports) -> Result<Self, Failure> {
        let mut layout = Self {
            version: VERSION,
            replicas: shape.replicas,
            zones: shape.zones,
            devices_per_node: shape.devices_per_node,
            data_ports: shape.data_ports,
            direct_sockets: shape.direct_sockets,
            policies: shape.policies,
            nodes: Vec::new(),
            proxies: Vec::new(),
        };
        for number in 1..=shape.proxies {
            layout.proxies.push(ProxyLayout {
                name: format!("p{number}"),
                s3_port: ports.take(offset(shape.s3_port, S3_PORT_STEP, number))?,
                admin_port: ports.take(offset(PROXY_ADMIN_PORT, 1, number))?,
            });
        }
        for _ in 0..shape.nodes {
            layout.add_node(None, ports)?;
        }
        Ok(layout)
    }

    /// Adds a node, in the given zone or the next in turn. At [`NODES_MAX`] nodes it is refused.
    pub(super) fn add_node(
        &mut self,
        zone: Option<u32>,
        ports: &mut Ports,
    ) -> Result<&NodeLayout, Failure> {
        let number = self.nodes.len() + 1;
        if number > NODES_MAX {
            return Err(Failure::refused(format!(
                "a cluster on one machine has at most {NODES_MAX} nodes"
            )));
        }
        let data_port = self.data_ports.then(|| ports.take(offset(DATA_PORT, 1, number)));
        let in_turn = u32::try_from(number - 1).unwrap_or_default() % self.zones + 1;
        self.nodes.push(NodeLayout {
            name: format!("n{number}"),
            zone: zone.unwrap_or(in_turn),
            devices: (1..=self.devices_per_node).map(|device| format!("d{device}")).collect(),
            internal_port: ports.take(offset(INTERNAL_PORT, 1, number))?,
            admin_port: ports.take(offset(NODE_ADMIN_PORT, 1, number))?,
            replicator_admin_port: ports.take(offset(REPLICATOR_ADMIN_PORT, 1, number))?,
            data_port: data_port.transpose()?,
        });
        Ok(self.nodes.last().expect("the node was added above"))
    }

    /// Parses the contents of `cluster.toml`.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let broken = |why: &dyn fmt::Display| {
            Failure::refused(format!(
                "{FILE} is damaged ({why}): restore it from a copy; it lists the cluster's ports \
                 and devices"
            ))
        };
        let layout: Self = toml::from_str(text).map_err(|error| broken(&error.message()))?;
        if layout.version != VERSION {
            return Err(broken(&format_args!("its version is {}", layout.version)));
        }
        if layout.zones == 0 {
            return Err(broken(&"it has no zone"));
        }
        Ok(layout)
    }

    /// Formats the contents of `cluster.toml`.
    pub(super) fn to_text(&self) -> String {
        let body = toml::to_string(self).expect("names and numbers make TOML");
        format!(
            "# Nodes, ports and devices of this cluster, read and written by `martlet \
             cluster`.\n{body}"
        )
    }

    /// All processes, in start order.
    pub(super) fn members(&self) -> Vec<ClusterProcess> {
        let nodes = self.nodes.iter();
        let mut members: Vec<ClusterProcess> =
            nodes.clone().map(NodeLayout::storage_node).collect();
        members.extend(nodes.map(NodeLayout::replicator));
        members.extend(self.proxies.iter().map(ProxyLayout::member));
        members
    }
}

fn offset(first: u16, step: u16, number: usize) -> u16 {
    let steps = u16::try_from(number - 1).unwrap_or(u16::MAX);
    first.saturating_add(step.saturating_mul(steps))
}

impl NodeLayout {
    fn storage_node(&self) -> ClusterProcess {
        ClusterProcess {
            name: self.name.clone(),
            role: ProcessRole::StorageNode,
            node: Some(self.name.clone()),
            address: Some(loopback(self.internal_port)),
            data_address: self.data_port.map(loopback),
            admin_address: loopback(self.admin_port),
        }
    }

    fn replicator(&self) -> ClusterProcess {
        ClusterProcess {
            name: self.name.replacen('n', "r", 1),
            role: ProcessRole::Replicator,
            node: Some(self.name.clone()),
            address: None,
            data_address: None,
            admin_address: loopback(self.replicator_admin_port),
        }
    }

    /// Processes of this node.
    pub(super) fn members(&self) -> [ClusterProcess; 2] {
        [self.storage_node(), self.replicator()]
    }
}

impl ProxyLayout {
    fn member(&self) -> ClusterProcess {
        ClusterProcess {
            name: self.name.clone(),
            role: ProcessRole::Proxy,
            node: None,
            address: Some(loopback(self.s3_port)),
            data_address: None,
            admin_address: loopback(self.admin_port),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;

    use super::*;

    pub(in super::super) const SHAPE: ClusterShape = ClusterShape {
        nodes: 4,
        devices_per_node: 2,
        zones: 2,
        proxies: 2,
        replicas: 3,
        policies: Vec::new(),
        s3_port: 9000,
        data_ports: false,
        direct_sockets: false,
    };

    /// Layout with an erasure-coded policy of four data and two parity fragments.
    pub(in super::super) fn coded() -> ClusterLayout {
        let policies = NamedCode::parse_all(&["ec=4+2"]).unwrap();
        ClusterLayout::new(ClusterShape { policies, ..SHAPE }, &mut Ports::default()).unwrap()
    }

    pub(in super::super) fn layout() -> ClusterLayout {
        ClusterLayout::new(SHAPE, &mut Ports::default()).unwrap()
    }

    #[test]
    fn a_layout_reads_as_it_was_written() {
        for layout in [layout(), coded()] {
            assert_eq!(ClusterLayout::parse(&layout.to_text()).unwrap(), layout);
        }
        assert!(!layout().to_text().contains("policy"));
    }

    #[test]
    fn data_ports_are_for_each_node_and_for_those_that_join() {
        let shape = ClusterShape { data_ports: true, direct_sockets: true, ..SHAPE };
        let mut layout = ClusterLayout::new(shape, &mut Ports::default()).unwrap();
        layout.add_node(None, &mut Ports::default()).unwrap();
        assert_eq!(ClusterLayout::parse(&layout.to_text()).unwrap(), layout);
        let members = layout.members();
        assert_eq!(members.iter().filter(|member| member.data_address.is_some()).count(), 5);
        let all: Vec<SocketAddr> = members.iter().flat_map(ClusterProcess::addresses).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        let text = self::layout().to_text();
        assert!(
            !text.contains("data_port") && !text.contains("direct"),
            "earlier versions read it"
        );
    }

    #[test]
    fn nodes_are_dealt_over_zones_and_nothing_shares_a_port() {
        let layout = layout();
        let zones: Vec<u32> = layout.nodes.iter().map(|node| node.zone).collect();
        assert_eq!(zones, [1, 2, 1, 2]);
        let members = layout.members();
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["n1", "n2", "n3", "n4", "r1", "r2", "r3", "r4", "p1", "p2"]);
        let addresses: Vec<SocketAddr> =
            members.iter().flat_map(ClusterProcess::addresses).collect();
        assert_eq!(addresses.len(), 16);
        assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), 16);
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn a_node_joins_the_zone_in_turn_or_the_one_named() {
        let mut layout = layout();
        let ports = &mut Ports::default();
        assert_eq!(layout.add_node(None, ports).unwrap().zone, 1);
        let node = layout.add_node(Some(7), ports).unwrap();
        assert_eq!((node.name.as_str(), node.zone, node.devices.len()), ("n6", 7, 2));
        while layout.nodes.len() < NODES_MAX {
            layout.add_node(None, ports).unwrap();
        }
        let refusal = layout.add_node(None, ports).unwrap_err().to_string();
        assert!(refusal.contains("at most 32 nodes"), "{refusal}");
    }

    #[test]
    fn a_file_that_was_spoiled_is_refused() {
        let text = layout().to_text();
        let spoiled = [
            text.replace("version = 1", "version = 9"),
            text.replace("replicas = 3", "replicas = \"many\""),
            text.replace("zones = 2", "zones = 0"),
            text.replace("zone = 1", "galaxy = 1"),
            "nonsense".to_owned(),
        ];
        for text in spoiled {
            let refusal = ClusterLayout::parse(&text).unwrap_err().to_string();
            assert!(refusal.starts_with("cluster.toml is damaged"), "{refusal}");
        }
    }
}
