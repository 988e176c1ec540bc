//! Plan of a cluster: its size and settings.

use std::path::PathBuf;

use martlet_protocol::Redundancy;

/// Environment variable with the devices of each node, where a test names no number.
const DEVICES: &str = "MARTLET_TEST_DEVICES";

/// Size and settings of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Storage nodes, each in a zone of its own, called `n1`, `n2` and so on.
    pub nodes: usize,
    /// Devices of each node, called `d1`, `d2` and so on. Tests that name no number have those of
    /// `MARTLET_TEST_DEVICES`, else one.
    pub devices: usize,
    /// Proxies, called `p1`, `p2` and so on.
    pub proxies: usize,
    /// Redundancy of each storage policy, from policy number 0 on. Policy 0 is the default policy.
    pub policies: Vec<Redundancy>,
    /// True if each node has a replicator, called `r1`, `r2` and so on.
    pub replicators: bool,
    /// Lines for the settings file of every proxy.
    pub proxy_settings: String,
    /// True if the nodes have data ports.
    pub data_ports: bool,
    /// True if members use TLS between each other.
    pub tls: bool,
    /// Binary of all members at the start of the cluster; none is the binary under test.
    pub binary: Option<PathBuf>,
    /// Environment variables of all members.
    pub environment: Vec<(&'static str, &'static str)>,
}

impl Default for ClusterPlan {
    fn default() -> Self {
        Self {
            nodes: 4,
            devices: devices_by_default(),
            proxies: 3,
            policies: vec![Redundancy::Replicated],
            replicators: true,
            proxy_settings: String::new(),
            data_ports: false,
            tls: false,
            binary: None,
            environment: Vec::new(),
        }
    }
}

fn devices_by_default() -> usize {
    let given = std::env::var(DEVICES).ok();
    given.map_or(1, |text| match text.parse() {
        Ok(devices @ 1..=60) => devices,
        _ => panic!("{DEVICES} is {text:?}, which is no number from 1 to 60"),
    })
}

impl ClusterPlan {
    /// Returns a plan in which workers run ten times a second and garbage expires after 100 ms.
    pub fn in_a_hurry() -> Self {
        let environment = vec![("MARTLET_TEST_RECLAIM_GRACE_MS", "100")];
        Self { environment, ..Self::default() }
    }

    /// Returns a plan like [`ClusterPlan::in_a_hurry`] with extents as k+m fragments, one node per
    /// fragment.
    pub fn coded(k: u8, m: u8) -> Self {
        let policies = vec![Redundancy::erasure(k, m).unwrap()];
        Self { nodes: usize::from(k + m), proxies: 2, policies, ..Self::in_a_hurry() }
    }
}
