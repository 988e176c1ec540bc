//! Things to examine, as the settings of a process name them.

use std::net::SocketAddr;
use std::path::PathBuf;

use martlet_admin_api::ServerStatus;

/// Things to examine. Empty parts are left out.
#[derive(Debug, Default)]
pub struct Target {
    /// Device folders. They may be missing before the first start.
    pub devices: Vec<DeviceTarget>,
    /// Data folder of the process.
    pub data_dir: Option<PathBuf>,
    /// Addresses that the process listens on.
    pub addresses: Vec<ListenAddress>,
    /// Ring files, and folders with ring files.
    pub rings: Vec<PathBuf>,
    /// Certificates of ports for clients and for members.
    pub certificates: Vec<CertificateFiles>,
    /// Files that only the process may read.
    pub secret_files: Vec<PathBuf>,
    /// Membership in a cluster.
    pub member: Option<MemberTarget>,
    /// Status of other processes, whose view of this one is examined.
    pub views: Vec<PeerView>,
    /// Maximum number of connections of clients.
    pub connections: u64,
    /// Memory that the settings allow, in bytes, if they name it.
    pub memory_bytes: Option<u64>,
    /// Runtime threads, if the settings name them.
    pub threads: Option<u64>,
    /// True if syncs of devices are measured, for which a file is written and removed.
    pub probes_syncs: bool,
}

/// Device folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTarget {
    /// Name in the rings; empty for a server without rings of its own.
    pub name: String,
    /// Folder.
    pub path: PathBuf,
}

impl DeviceTarget {
    /// Returns the name for people: name and folder.
    pub(crate) fn shown(&self) -> String {
        let path = self.path.display();
        if self.name.is_empty() { path.to_string() } else { format!("{} {path}", self.name) }
    }
}

/// Address that a process listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Name of the setting.
    pub setting: &'static str,
    /// Address.
    pub address: SocketAddr,
}

/// Certificate of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Name of the setting of the certificate, such as `s3_tls_certificate`.
    pub setting: &'static str,
    /// PEM file with the certificate chain.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// PEM file with the authority, if only that one is trusted.
    pub authority: Option<PathBuf>,
    /// Host names and addresses that clients use.
    pub names: Vec<String>,
}

/// Status of another process, from its admin address.
#[derive(Debug)]
pub struct PeerView {
    /// Admin address.
    pub address: String,
    /// Status, or the reason for its absence.
    pub status: Result<ServerStatus, String>,
}

/// Membership in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberTarget {
    /// Name of the node in the rings.
    pub name: String,
    /// True if the process serves devices, so that the rings must name them.
    pub stores: bool,
    /// File with the cluster's key.
    pub key_file: PathBuf,
    /// Certificate, key and authority for TLS between members.
    pub tls: Option<[PathBuf; 3]>,
}
