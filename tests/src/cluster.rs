//! A cluster of real processes: storage nodes, proxies and replicators from settings files that are
//! written here, on rings that are made here.
//!
//! * [`Plan`] says how many of each, and whether every process is a host of its own with cables to
//!   cut ([`Network`]) or all share the loopback device.
//! * [`Member`] is one process: to kill, to pause, to start again.
//! * [`rings`]: the rings, and newer ones later.
//! * [`internal`]: requests to an internal port, signed by the test itself.
//!
//! Addresses belong to this test process alone: a block of 127.0.0.0/8, or a subnet. Processes are
//! killed and folders removed when a [`Cluster`] is dropped; when a test panics, the ends of their
//! logs are printed.

pub mod internal;
mod member;
pub mod rings;

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tempfile::TempDir;

pub use member::{Member, Role};
use rings::RingMaker;

use crate::network::{Host, Network};
use crate::s3::{ACCESS_KEY, S3, SECRET_KEY};

const INTERNAL_PORT: u16 = 20_000;
const S3_PORT: u16 = 21_000;
const ADMIN_PORT: u16 = 22_000;
/// What the key file says.
pub const CLUSTER_KEY: &str = "6d6172746c65742d746573742d636c75737465722d6b65792d6d6172746c6574";

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

/// How a cluster is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Storage nodes, each in a zone of its own, called `n1`, `n2` and so on.
    pub nodes: usize,
    /// Devices of each node, called `d1`, `d2` and so on.
    pub devices: usize,
    /// Proxies, called `p1`, `p2` and so on.
    pub proxies: usize,
    /// Whether each node has a replicator, called `r1`, `r2` and so on.
    pub replicators: bool,
    /// Lines for the settings file of every proxy.
    pub proxy_settings: String,
}

impl Default for Plan {
    fn default() -> Self {
        let proxy_settings = String::new();
        Self { nodes: 4, devices: 1, proxies: 3, replicators: true, proxy_settings }
    }
}

impl Plan {
    /// Starts it, with all addresses on the loopback device.
    pub async fn start(&self) -> Cluster {
        Cluster::start(self, None).await
    }

    /// Starts it with a network namespace for each process, or says loudly that this can't be done.
    pub async fn start_on_hosts(&self, test: &str) -> Option<Cluster> {
        let network = Network::new(test)?;
        Some(Cluster::start(self, Some(network)).await)
    }
}

/// Running processes. The order of its parts is the order in which they go.
#[derive(Debug)]
pub struct Cluster {
    /// The storage nodes.
    pub nodes: Vec<Member>,
    /// The proxies.
    pub proxies: Vec<Member>,
    /// The replicators.
    pub replicators: Vec<Member>,
    /// The rings.
    pub rings: RingMaker,
    network: Option<Network>,
    folder: TempDir,
}

impl Cluster {
    async fn start(plan: &Plan, network: Option<Network>) -> Self {
        let folder = tempfile::Builder::new().prefix("martlet-cluster-").tempdir().unwrap();
        let key = folder.path().join("cluster.key");
        fs::write(&key, format!("{CLUSTER_KEY}\n")).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let mut build = Build { plan, place: Place::new(network), folder: folder.path() };
        let nodes: Vec<Member> = (1..=plan.nodes).map(|number| build.node(number)).collect();
        let rings = RingMaker::new(folder.path(), &nodes, plan.devices);
        let proxies = (1..=plan.proxies).map(|number| build.proxy(number)).collect();
        let replicators = if plan.replicators { plan.nodes } else { 0 };
        let replicators = (1..=replicators).map(|number| build.replicator(number)).collect();
        let network = build.place.network;
        let mut cluster = Self { nodes, proxies, replicators, rings, network, folder };
        cluster.start_all().await;
        cluster
    }

    /// Starts whatever is not running, and waits until all of it is ready.
    pub async fn start_all(&mut self) {
        let begun = Instant::now();
        for member in self.members_mut() {
            if !member.is_running() {
                member.spawn();
            }
        }
        join_all(self.members_mut().map(Member::wait_until_ready)).await;
        println!("the cluster took {:?} to be ready", begun.elapsed());
    }

    /// All processes.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.nodes.iter().chain(&self.proxies).chain(&self.replicators)
    }

    fn members_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.nodes.iter_mut().chain(&mut self.proxies).chain(&mut self.replicators)
    }

    /// A client of a proxy; proxies count from 0 and come around again.
    pub fn client(&self, proxy: usize) -> S3 {
        S3::new(self.proxies[proxy % self.proxies.len()].address)
    }

    /// Where all proxies speak S3.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(|proxy| proxy.address).collect()
    }

    /// The cables, where every process is a host of its own.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("the cluster was started on hosts")
    }

    /// Where everything of this cluster lies.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until the sum of a metric over some members is as wanted.
    pub async fn wait_for_metric(
        members: &[Member],
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

    /// No process may have panicked, whatever happened to it.
    pub fn assert_nobody_panicked(&self) {
        for member in self.members() {
            let log = member.logged();
            let line = log.lines().find(|line| line.contains("panicked at"));
            assert!(line.is_none(), "{}: {}", member.name, line.unwrap_or_default());
        }
    }
}

/// Where processes get their addresses.
struct Place {
    network: Option<Network>,
    loopback: Ipv4Addr,
}

impl Place {
    fn new(network: Option<Network>) -> Self {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let [.., a, b, c] = std::process::id().wrapping_mul(64).wrapping_add(number).to_be_bytes();
        Self { network, loopback: Ipv4Addr::new(127, a, b, c.max(2)) }
    }

    fn host(&mut self, name: &str) -> (Option<Host>, Ipv4Addr) {
        match &mut self.network {
            Some(network) => {
                let host = network.add(name);
                let address = host.address;
                (Some(host), address)
            }
            None => (None, self.loopback),
        }
    }
}

/// Makes members: their folders, their settings, their addresses.
struct Build<'a> {
    plan: &'a Plan,
    place: Place,
    folder: &'a Path,
}

impl Build<'_> {
    fn node(&mut self, number: usize) -> Member {
        let mut member = self.member(Role::StorageNode, &format!("n{number}"), INTERNAL_PORT);
        let mut devices = String::new();
        for device in 1..=self.plan.devices {
            let path = member.device(device);
            fs::create_dir_all(&path).unwrap();
            writeln!(devices, "d{device} = \"{}\"", path.display()).unwrap();
        }
        let address = member.address;
        member.configure(&format!(
            "internal_address = \"{address}\"\nreserve = \"16MiB\"\n[devices]\n{devices}"
        ));
        member
    }

    fn proxy(&mut self, number: usize) -> Member {
        let mut member = self.member(Role::Proxy, &format!("p{number}"), S3_PORT);
        let more = &self.plan.proxy_settings;
        member.configure(&format!("s3_address = \"{}\"\n{more}", member.address));
        member.set("MARTLET_ROOT_ACCESS_KEY", ACCESS_KEY);
        member.set("MARTLET_ROOT_SECRET_KEY", SECRET_KEY);
        member
    }

    fn replicator(&mut self, number: usize) -> Member {
        let mut member = self.member(Role::Replicator, &format!("r{number}"), 0);
        member.configure(&format!("nodes = [\"n{number}\"]\n"));
        member
    }

    fn member(&mut self, role: Role, name: &str, port: u16) -> Member {
        let folder: PathBuf = self.folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        let (host, ip) = self.place.host(name);
        let number: u16 = name[1..].parse().unwrap();
        let admin = ADMIN_PORT + number + 100 * role as u16;
        let address = SocketAddr::from((ip, if port == 0 { 0 } else { port + number }));
        Member::new(role, name, folder, host, [address, (ip, admin).into()])
    }
}
