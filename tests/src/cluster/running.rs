//! A running cluster: its start, its members and its files.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::join_all;
use martlet_protocol::http::TlsFiles;
use tempfile::TempDir;

use super::build::{AddressSource, Build};
use super::certificates::Certificates;
use super::internal::CLUSTER_KEY;
use super::member::ClusterMember;
use super::plan::ClusterPlan;
use super::rings::RingMaker;
use crate::image::Image;
use crate::network::BridgeNetwork;
use crate::s3::S3;

impl ClusterPlan {
    /// Starts the cluster with all addresses on the loopback device.
    pub async fn start(&self) -> TestCluster {
        TestCluster::start(self, None, Vec::new()).await
    }

    /// Starts the cluster with disks of `sizes_mib` for the first nodes. Prints that the test is
    /// skipped and returns `None` if the machine can't mount disk images.
    pub async fn start_on_disks(&self, test: &str, sizes_mib: &[u64]) -> Option<TestCluster> {
        let disks = disks(test, sizes_mib)?;
        Some(TestCluster::start(self, None, disks).await)
    }

    /// Starts the cluster with hosts that have cables to cut, and disks to cut the power of.
    pub async fn start_on_machines(&self, test: &str, sizes_mib: &[u64]) -> Option<TestCluster> {
        let (network, disks) = (BridgeNetwork::new(test)?, disks(test, sizes_mib)?);
        Some(TestCluster::start(self, Some(network), disks).await)
    }

    /// Starts the cluster with a network namespace for each process. Prints that the test is
    /// skipped and returns `None` if the machine can't make namespaces.
    pub async fn start_on_hosts(&self, test: &str) -> Option<TestCluster> {
        let network = BridgeNetwork::new(test)?;
        Some(TestCluster::start(self, Some(network), Vec::new()).await)
    }
}

fn disks(test: &str, sizes_mib: &[u64]) -> Option<Vec<Image>> {
    sizes_mib.iter().map(|mib| Image::new(test, *mib)).collect()
}

/// Running processes. Fields are dropped in their order.
#[derive(Debug)]
pub struct TestCluster {
    /// The storage nodes.
    pub nodes: Vec<ClusterMember>,
    /// The proxies.
    pub proxies: Vec<ClusterMember>,
    /// The replicators.
    pub replicators: Vec<ClusterMember>,
    /// The rings.
    pub rings: RingMaker,
    plan: ClusterPlan,
    place: AddressSource,
    pub(super) certificates: Option<Certificates>,
    folder: TempDir,
}

impl TestCluster {
    async fn start(plan: &ClusterPlan, network: Option<BridgeNetwork>, disks: Vec<Image>) -> Self {
        let folder = tempfile::Builder::new().prefix("martlet-cluster-").tempdir().unwrap();
        let key = folder.path().join("cluster.key");
        fs::write(&key, format!("{CLUSTER_KEY}\n")).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let (place, disks) = (AddressSource::new(network), disks.into_iter());
        let certificates = plan.tls.then(|| Certificates::new(folder.path()));
        let authority = certificates.as_ref().map(|certificates| &certificates.authority);
        let mut build = Build { plan, place, authority, folder: folder.path(), disks };
        let nodes: Vec<ClusterMember> = (1..=plan.nodes).map(|number| build.node(number)).collect();
        let rings = RingMaker::new(folder.path(), &nodes, plan);
        let proxies = (1..=plan.proxies).map(|number| build.proxy(number)).collect();
        let replicators = if plan.replicators { plan.nodes } else { 0 };
        let replicators = (1..=replicators).map(|number| build.replicator(number)).collect();
        let (plan, place) = (plan.clone(), build.place);
        let mut cluster =
            Self { nodes, proxies, replicators, rings, plan, place, certificates, folder };
        cluster.start_all().await;
        cluster
    }

    /// Adds nodes, which are not running yet, to zones of new rings. New nodes read the new rings
    /// at their start; the test pushes them to running nodes. Each node gets a replicator if the
    /// plan has replicators.
    pub fn add_nodes(&mut self, zones: &[u32]) {
        let before = self.nodes.len();
        let (plan, folder, disks) = (&self.plan, self.folder.path(), Vec::new().into_iter());
        let place = std::mem::take(&mut self.place);
        let authority = self.certificates.as_ref().map(|certificates| &certificates.authority);
        let mut build = Build { plan, place, authority, folder, disks };
        for number in (before + 1)..=(before + zones.len()) {
            self.nodes.push(build.node(number));
            if plan.replicators {
                self.replicators.push(build.replicator(number));
            }
        }
        self.place = build.place;
        let added: Vec<_> = zones.iter().copied().zip(&self.nodes[before..]).collect();
        self.rings.add_nodes(&added, plan.devices);
    }

    /// Starts all members that are not running, and waits until all are ready.
    pub async fn start_all(&mut self) {
        let begun = Instant::now();
        for member in self.members_mut() {
            if !member.is_running() {
                member.spawn();
            }
        }
        join_all(self.members_mut().map(ClusterMember::wait_until_ready)).await;
        println!("the cluster took {:?} to be ready", begun.elapsed());
    }

    /// All processes.
    pub fn members(&self) -> impl Iterator<Item = &ClusterMember> {
        self.nodes.iter().chain(&self.proxies).chain(&self.replicators)
    }

    fn members_mut(&mut self) -> impl Iterator<Item = &mut ClusterMember> {
        self.nodes.iter_mut().chain(&mut self.proxies).chain(&mut self.replicators)
    }

    /// Returns a client of a proxy. Proxy numbers start at 0 and wrap around.
    pub fn client(&self, proxy: usize) -> S3 {
        S3::new(self.proxies[proxy % self.proxies.len()].address)
    }

    /// S3 addresses of all proxies.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(|proxy| proxy.address).collect()
    }

    /// The network of a cluster on hosts. Panics if the cluster runs on the loopback device.
    pub fn network(&self) -> &BridgeNetwork {
        self.place.network.as_ref().expect("the cluster was started on hosts")
    }

    /// Certificate files of an operator outside the cluster. Panics without TLS.
    pub fn operator_certificates(&self) -> &TlsFiles {
        &self.certificates.as_ref().expect("its members speak TLS").operator
    }

    /// Folder of all files of this cluster.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until the sum of a metric over some members satisfies `wanted`; panics after
    /// `patience`.
    pub async fn wait_for_metric(
        members: &[ClusterMember],
        name: &str,
        patience: Duration,
        wanted: impl Fn(u64) -> bool,
    ) {
        let begun = Instant::now();
        loop {
            let all = join_all(members.iter().map(|member| member.metric(name))).await;
            let sum = all.into_iter().flatten().sum();
            if wanted(sum) {
                return;
            }
            assert!(begun.elapsed() < patience, "{name} stays {sum}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Panics if the log of a process contains a panic.
    pub fn assert_no_panic(&self) {
        for member in self.members() {
            let log = member.logged();
            let line = log.lines().find(|line| line.contains("panicked at"));
            assert!(line.is_none(), "{}: {}", member.name, line.unwrap_or_default());
        }
    }
}
