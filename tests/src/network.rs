//! Hosts in network namespaces of their own. A bridge joins them and the test's process. Cables can
//! be cut both ways or one way, made lossy, and healed.
//!
//! ```text
//!   test (this process) ── veth ──┐
//!   host n1 (namespace) ── veth ──┼── bridge (in a namespace of its own)
//!   host p1 (namespace) ── veth ──┘
//! ```
//!
//! * Names and the subnet belong to this process alone. Leftovers of killed processes are removed.
//! * Dropping a [`BridgeNetwork`] removes everything, also while a test panics.
//! * Root, `ip` and `nft` are required. Without them [`BridgeNetwork::new`] prints that the test is
//!   skipped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Folder of the named namespaces.
const NAMES: &str = "/run/netns";
/// Last byte of the test's own address; hosts count up from the next.
const OWN: u8 = 1;
/// Number of subnets to try.
const SUBNETS_TRIED: u32 = 64;

static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// A bridge and the hosts on it.
#[derive(Debug)]
pub struct BridgeNetwork {
    /// Prefix of all names of this network.
    prefix: String,
    subnet: [u8; 3],
    hosts: BTreeMap<String, Host>,
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Network namespace of the host's processes.
    pub namespace: String,
    /// Address on the bridge.
    pub address: Ipv4Addr,
}

impl Host {
    /// Returns a command that runs in the host's network namespace, under its own process id. The
    /// mount namespace is shared, so that no process keeps a disk mounted that a test unmounts.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={NAMES}/{}", self.namespace)).arg(program);
        command
    }
}

impl BridgeNetwork {
    /// Makes a bridge without hosts. Prints that the test is skipped and returns `None` on failure.
    pub fn new(test: &str) -> Option<Self> {
        remove_leftovers();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("mt{}x{number}", std::process::id());
        let network = Self { prefix, subnet: free_subnet(number), hosts: BTreeMap::new() };
        match network.build() {
            Ok(()) => Some(network),
            Err(why) => {
                println!("SKIPPED {test}: it needs root, ip and nft ({why})");
                None
            }
        }
    }

    fn build(&self) -> Result<(), String> {
        run("nft", &["list", "tables"])?;
        let (bridge, cable) = (self.bridge(), self.own_cable());
        ip(&format!("netns add {bridge}"))?;
        ip(&format!("-n {bridge} link add br0 type bridge"))?;
        ip(&format!("-n {bridge} link set br0 up"))?;
        ip(&format!("link add {cable} type veth peer name own netns {bridge}"))?;
        ip(&format!("-n {bridge} link set own master br0 up"))?;
        ip(&format!("addr add {}/24 dev {cable}", self.address(OWN)))?;
        ip(&format!("link set {cable} up"))
    }

    /// Adds a host.
    pub fn add(&mut self, name: &str) -> Host {
        let number = u8::try_from(self.hosts.len()).unwrap() + OWN + 1;
        let namespace = format!("{}-{name}", self.prefix);
        let host = Host { namespace: namespace.clone(), address: self.address(number) };
        let (bridge, port) = (self.bridge(), format!("port{number}"));
        for command in [
            format!("netns add {namespace}"),
            format!("-n {bridge} link add {port} type veth peer name eth0 netns {namespace}"),
            format!("-n {bridge} link set {port} master br0 up"),
            format!("-n {namespace} link set lo up"),
            format!("-n {namespace} addr add {}/24 dev eth0", host.address),
            format!("-n {namespace} link set eth0 up"),
        ] {
            ip(&command).unwrap();
        }
        host.nft(
            "add table inet martlet; \
             add chain inet martlet input { type filter hook input priority 0; }",
        );
        self.hosts.insert(name.to_owned(), host.clone());
        host
    }

    /// Returns a host; panics if no host has this name.
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.get(name).unwrap_or_else(|| panic!("there is no host {name}"))
    }

    /// Drops all packets between two hosts.
    pub fn cut(&self, one: &str, other: &str) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Drops all packets from one host to another; packets in the other direction arrive.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        self.add_rule(from, to, "drop");
    }

    /// Drops `percent` of the packets between two hosts, each way.
    pub fn lose(&self, one: &str, other: &str, percent: u8) {
        let rule = format!("numgen random mod 100 < {percent} drop");
        self.add_rule(one, other, &rule);
        self.add_rule(other, one, &rule);
    }

    /// Removes all cuts and losses.
    pub fn heal(&self) {
        for host in self.hosts.values() {
            host.nft("flush chain inet martlet input");
        }
    }

    fn add_rule(&self, from: &str, to: &str, rule: &str) {
        let source = self.host(from).address;
        self.host(to).nft(&format!("add rule inet martlet input ip saddr {source} {rule}"));
    }

    fn bridge(&self) -> String {
        format!("{}-bridge", self.prefix)
    }

    /// The test's end of its cable. Device names have at most 15 bytes.
    fn own_cable(&self) -> String {
        self.prefix.clone()
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, last)
    }
}

impl Host {
    fn nft(&self, script: &str) {
        run("ip", &["netns", "exec", &self.namespace, "nft", script]).unwrap();
    }
}

impl Drop for BridgeNetwork {
    fn drop(&mut self) {
        // Processes in the namespaces may end later; the namespaces lose their names now.
        drop(ip(&format!("link delete {}", self.own_cable())));
        for host in self.hosts.values() {
            drop(ip(&format!("netns delete {}", host.namespace)));
        }
        drop(ip(&format!("netns delete {}", self.bridge())));
    }
}

/// Returns a subnet in which no interface of the machine has an address.
fn free_subnet(number: u32) -> [u8; 3] {
    let taken = Command::new("ip").args(["-4", "-o", "addr", "show"]).output();
    let taken = taken.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let taken = taken.unwrap_or_default();
    let first = std::process::id().wrapping_mul(31).wrapping_add(number);
    let subnets = (0..SUBNETS_TRIED).map(|more| {
        let [.., b, c] = first.wrapping_add(more).to_be_bytes();
        [10, 64 + b % 128, c]
    });
    let is_free = |[a, b, c]: &[u8; 3]| !taken.contains(&format!(" {a}.{b}.{c}."));
    subnets.clone().find(is_free).unwrap_or([10, 64, 0])
}

/// Removes the namespaces of processes that no longer exist.
fn remove_leftovers() {
    let Ok(names) = std::fs::read_dir(NAMES) else { return };
    for entry in names.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("mt").and_then(|rest| rest.split_once('x'));
        let Some((pid, _)) = pid.filter(|(pid, _)| pid.parse::<u32>().is_ok()) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            drop(ip(&format!("netns delete {name}")));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    run("ip", &arguments.split(' ').collect::<Vec<_>>())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let output_text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", arguments.join(" "), output_text.trim()))
}

#[cfg(test)]
mod tests;
