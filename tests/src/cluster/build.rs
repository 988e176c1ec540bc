//! Construction of a cluster's members: folders, settings, addresses.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::certificates::Authority;
use super::member::{ClusterMember, ProcessRole};
use super::plan::ClusterPlan;
use crate::image::Image;
use crate::network::{BridgeNetwork, Host};
use crate::s3::{ACCESS_KEY, SECRET_KEY};

const INTERNAL_PORT: u16 = 20_000;
const S3_PORT: u16 = 21_000;
const ADMIN_PORT: u16 = 22_000;
const DATA_PORT: u16 = 23_000;

/// Skips addresses 0 and 1 of a block, which may belong to the machine itself.
static CLUSTERS: AtomicU32 = AtomicU32::new(2);

/// Source of the processes' addresses.
#[derive(Debug, Default)]
pub(super) struct AddressSource {
    pub(super) network: Option<BridgeNetwork>,
    loopback: Option<Ipv4Addr>,
}

impl AddressSource {
    pub(super) fn new(network: Option<BridgeNetwork>) -> Self {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let [.., a, b, c] = std::process::id().wrapping_mul(64).wrapping_add(number).to_be_bytes();
        Self { network, loopback: Some(Ipv4Addr::new(127, a, b, c)) }
    }

    fn host(&mut self, name: &str) -> (Option<Host>, Ipv4Addr) {
        match &mut self.network {
            Some(network) => {
                let host = network.add(name);
                let address = host.address;
                (Some(host), address)
            }
            None => (None, self.loopback.expect("the cluster has an address")),
        }
    }
}

/// Builder of members: their folders, settings and addresses.
pub(super) struct Build<'a> {
    pub(super) plan: &'a ClusterPlan,
    pub(super) place: AddressSource,
    /// Issuer of the members' certificates, with TLS.
    pub(super) authority: Option<&'a Authority>,
    pub(super) folder: &'a Path,
    /// Disks for the first nodes.
    pub(super) disks: std::vec::IntoIter<Image>,
}

impl Build<'_> {
    pub(super) fn node(&mut self, number: usize) -> ClusterMember {
        let mut member =
            self.member(ProcessRole::StorageNode, &format!("n{number}"), INTERNAL_PORT);
        if let Some(disk) = self.disks.next() {
            member.put_on(disk);
        }
        let mut devices = String::new();
        for device in 1..=self.plan.devices {
            let path = member.device(device);
            fs::create_dir_all(&path).unwrap();
            writeln!(devices, "d{device} = \"{}\"", path.display()).unwrap();
        }
        let address = member.address;
        let mut settings = format!("internal_address = \"{address}\"\nreserve = \"16MiB\"\n");
        if self.plan.data_ports {
            let port = DATA_PORT - INTERNAL_PORT + address.port();
            let data_address = SocketAddr::from((address.ip(), port));
            writeln!(settings, "data_address = \"{data_address}\"").unwrap();
        }
        writeln!(settings, "[devices]\n{devices}").unwrap();
        member.configure(self.plan.policies.len(), &settings);
        member
    }

    pub(super) fn proxy(&mut self, number: usize) -> ClusterMember {
        let mut member = self.member(ProcessRole::Proxy, &format!("p{number}"), S3_PORT);
        let more = &self.plan.proxy_settings;
        let settings = format!("s3_address = \"{}\"\n{more}", member.address);
        member.configure(self.plan.policies.len(), &settings);
        member.set("MARTLET_ROOT_ACCESS_KEY", ACCESS_KEY);
        member.set("MARTLET_ROOT_SECRET_KEY", SECRET_KEY);
        member
    }

    pub(super) fn replicator(&mut self, number: usize) -> ClusterMember {
        let member = self.member(ProcessRole::Replicator, &format!("r{number}"), 0);
        let settings = format!("nodes = [\"n{number}\"]\n");
        member.configure(self.plan.policies.len(), &settings);
        member
    }

    fn member(&mut self, role: ProcessRole, name: &str, port: u16) -> ClusterMember {
        let folder: PathBuf = self.folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        let (host, ip) = self.place.host(name);
        let number: u16 = name[1..].parse().unwrap();
        let admin = ADMIN_PORT + number + 100 * role as u16;
        let address = SocketAddr::from((ip, if port == 0 { 0 } else { port + number }));
        let certificates = self.authority.map(|authority| authority.issue(ip.into(), &folder));
        let mut member =
            ClusterMember::new(role, name, folder, host, [address, (ip, admin).into()]);
        if let Some(certificates) = certificates {
            member.show(certificates);
        }
        if let Some(binary) = &self.plan.binary {
            member.use_binary(binary);
        }
        for (name, value) in &self.plan.environment {
            member.set(name, value);
        }
        member
    }
}
