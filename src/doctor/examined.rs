//! Settings of a process, as far as they name things to examine.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use martlet_doctor::{CertificateFiles, DeviceTarget, ListenAddress, MemberTarget, Target};
use martlet_serving::settings::{CommonArgs, CommonSettings, MergedSettings, list};
use martlet_serving::{Failure, Size};
use serde::{Deserialize, Deserializer};

use super::{DoctorArgs, ExaminedRole};
use crate::{node, proxy, replicator, server, storage_node};

/// Settings file in the folder of `martlet node`.
const NODE_FILE: &str = "node.toml";
/// Folders of the roles below the data folder of `martlet node`.
const ROLE_FOLDERS: [&str; 3] = ["storage-node", "proxy", "replicator"];

/// Settings, and the reason for which a process would refuse them.
pub(super) struct ReadSettings {
    pub(super) settings: ExaminedSettings,
    pub(super) problem: Option<Failure>,
}

/// Settings that name things to examine.
pub(super) struct ExaminedSettings {
    role: ExaminedRole,
    fields: ExaminedFields,
    common: CommonSettings,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ExaminedFields {
    name: Option<String>,
    data_dir: Option<PathBuf>,
    #[serde(deserialize_with = "devices")]
    devices: Vec<ExaminedDevice>,
    #[serde(deserialize_with = "list")]
    roles: Vec<String>,
    s3_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    internal_address: Option<SocketAddr>,
    data_address: Option<SocketAddr>,
    #[serde(deserialize_with = "list")]
    domains: Vec<String>,
    #[serde(deserialize_with = "list")]
    rings: Vec<PathBuf>,
    cluster_key_file: Option<PathBuf>,
    credentials_file: Option<PathBuf>,
    master_key_file: Option<PathBuf>,
    sse_master_key_file: Option<PathBuf>,
    first_key_file: Option<PathBuf>,
    s3_tls_certificate: Option<PathBuf>,
    s3_tls_key: Option<PathBuf>,
    data_tls_certificate: Option<PathBuf>,
    data_tls_key: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    memory: Option<Size>,
}

/// Device folder with its name, if the settings name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ExaminedDevice {
    name: String,
    path: PathBuf,
}

impl ExaminedDevice {
    fn of_text(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, path)) => Self { name: name.trim().to_owned(), path: path.trim().into() },
            None => Self { name: String::new(), path: text.trim().into() },
        }
    }
}

/// Deserializes devices in the forms of servers and of storage nodes.
fn devices<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<ExaminedDevice>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum DevicesForm {
        Table(BTreeMap<String, PathBuf>),
        Text(String),
        List(Vec<String>),
    }
    let of = |text: &str| ExaminedDevice::of_text(text);
    Ok(match DevicesForm::deserialize(d)? {
        DevicesForm::Table(table) => {
            table.into_iter().map(|(name, path)| ExaminedDevice { name, path }).collect()
        }
        DevicesForm::Text(text) => {
            text.split(',').filter(|item| !item.trim().is_empty()).map(of).collect()
        }
        DevicesForm::List(items) => items.iter().map(|item| of(item)).collect(),
    })
}

/// Reads the settings of a process. Only a file that can't be read or parsed is an error.
///
/// For `martlet node` this process enters the settings' folder, as a node does, since relative paths
/// begin there.
pub(super) fn read(args: &DoctorArgs) -> Result<ReadSettings, Failure> {
    let is_folder = args.config.as_ref().is_some_and(|path| path.is_dir());
    let role =
        args.role.unwrap_or(if is_folder { ExaminedRole::Node } else { ExaminedRole::Server });
    let file = args
        .config
        .as_ref()
        .map(|path| if is_folder { path.join(NODE_FILE) } else { path.clone() });
    let file = file.map(|file| {
        file.canonicalize().map_err(|error| {
            Failure::usage(format!("the settings in {} can't be read: {error}", file.display()))
        })
    });
    let file = file.transpose()?;
    let merged = MergedSettings::at_start(&names(role), &CommonArgs::default(), file.as_deref())?;
    if let Some(folder) =
        file.as_deref().and_then(Path::parent).filter(|_| role == ExaminedRole::Node)
    {
        std::env::set_current_dir(folder).map_err(|error| {
            Failure::refused(format!("{} can't be entered: {error}", folder.display()))
        })?;
    }
    let mut fields: ExaminedFields = merged.extract()?;
    let problem = check(role, &merged).err();
    let common = merged.extract().unwrap_or_default();
    if !args.devices.is_empty() {
        fields.devices = args.devices.iter().map(|text| ExaminedDevice::of_text(text)).collect();
    }
    fields.data_dir = args.data_dir.clone().or(fields.data_dir);
    fields.cluster_key_file = args.cluster_key_file.clone().or(fields.cluster_key_file);
    Ok(ReadSettings { settings: ExaminedSettings { role, fields, common }, problem })
}

/// Names of the settings of a role besides the common ones.
pub(crate) fn names(role: ExaminedRole) -> Vec<&'static str> {
    match role {
        ExaminedRole::Server => server::settings::names(),
        ExaminedRole::StorageNode => storage_node::StorageNodeSettings::names(),
        ExaminedRole::Proxy => proxy::ProxySettings::names(),
        ExaminedRole::Replicator => replicator::ReplicatorSettings::names(),
        ExaminedRole::Node => node::NodeSettings::names(),
    }
}

/// Checks the settings as the role does at its start.
fn check(role: ExaminedRole, merged: &MergedSettings) -> Result<(), Failure> {
    match role {
        ExaminedRole::Server => server::settings::ServerSettings::of(merged).map(drop),
        ExaminedRole::StorageNode => storage_node::StorageNodeSettings::of(merged).map(drop),
        ExaminedRole::Proxy => proxy::ProxySettings::of(merged).map(drop),
        ExaminedRole::Replicator => replicator::ReplicatorSettings::of(merged).map(drop),
        ExaminedRole::Node => node::NodeSettings::of(merged).map(drop),
    }
}

impl ExaminedSettings {
    /// Returns the data folder, or its default.
    pub(super) fn data_dir(&self) -> PathBuf {
        let usual = match self.role {
            ExaminedRole::Server => "martlet-data",
            ExaminedRole::StorageNode => storage_node::DATA_DIR,
            ExaminedRole::Proxy => proxy::DATA_DIR,
            ExaminedRole::Replicator => replicator::DATA_DIR,
            ExaminedRole::Node => node::DATA_DIR,
        };
        self.fields.data_dir.clone().unwrap_or_else(|| usual.into())
    }

    /// Returns the file with the cluster's key.
    pub(super) fn cluster_key_file(&self) -> Option<&Path> {
        self.fields.cluster_key_file.as_deref()
    }

    /// Returns true if the process has this role.
    fn has(&self, role: ExaminedRole, name: &str) -> bool {
        let of_node =
            || self.fields.roles.is_empty() || self.fields.roles.iter().any(|it| it == name);
        self.role == role || (self.role == ExaminedRole::Node && of_node())
    }

    fn stores(&self) -> bool {
        self.has(ExaminedRole::StorageNode, "storage-node")
    }

    fn serves_s3(&self) -> bool {
        self.role == ExaminedRole::Server || self.has(ExaminedRole::Proxy, "proxy")
    }

    /// Returns the things to examine.
    pub(super) fn target(&self, probes_syncs: bool) -> Target {
        let fields = &self.fields;
        let member = fields.cluster_key_file.clone().filter(|_| self.role != ExaminedRole::Server);
        Target {
            devices: self.devices(),
            data_dir: Some(self.data_dir()),
            addresses: self.addresses(),
            rings: self.rings(),
            certificates: self.certificates(),
            secret_files: self.secret_files(),
            member: member.map(|key_file| MemberTarget {
                name: fields.name.clone().unwrap_or_default(),
                stores: self.stores(),
                key_file,
                tls: self.member_tls(),
            }),
            views: Vec::new(),
            connections: self.common.max_connections as u64,
            memory_bytes: fields.memory.map(|Size(bytes)| bytes),
            threads: Some(self.common.max_threads as u64),
            probes_syncs,
        }
    }

    fn devices(&self) -> Vec<DeviceTarget> {
        let given = self
            .fields
            .devices
            .iter()
            .map(|device| DeviceTarget { name: device.name.clone(), path: device.path.clone() });
        let given: Vec<DeviceTarget> = given.collect();
        match self.role {
            ExaminedRole::Server if given.is_empty() => {
                server::known_device_folders(&self.data_dir())
                    .into_iter()
                    .map(|path| DeviceTarget { name: String::new(), path })
                    .collect()
            }
            _ => given,
        }
    }

    fn addresses(&self) -> Vec<ListenAddress> {
        let fields = &self.fields;
        let local = |port: u16| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        let admin_port = match self.role {
            ExaminedRole::StorageNode => storage_node::ADMIN_PORT,
            ExaminedRole::Replicator => replicator::ADMIN_PORT,
            _ => proxy::ADMIN_PORT,
        };
        let all = [
            ("s3_address", fields.s3_address.or(local(9000)).filter(|_| self.serves_s3())),
            ("internal_address", fields.internal_address.or(local(6200)).filter(|_| self.stores())),
            ("admin_address", fields.admin_address.or(local(admin_port))),
            ("data_address", fields.data_address),
        ];
        let set = all.into_iter().filter_map(|(setting, address)| Some((setting, address?)));
        set.map(|(setting, address)| ListenAddress { setting, address }).collect()
    }

    /// Ring files of the settings, and folders in which the process keeps newer ones.
    fn rings(&self) -> Vec<PathBuf> {
        let data_dir = self.data_dir();
        let mut all = self.fields.rings.clone();
        match self.role {
            ExaminedRole::Server => all.clear(),
            ExaminedRole::Node => all.extend(ROLE_FOLDERS.map(|folder| data_dir.join(folder))),
            _ => all.push(data_dir),
        }
        all
    }

    fn certificates(&self) -> Vec<CertificateFiles> {
        let fields = &self.fields;
        let mut all = Vec::new();
        let mut add = |setting, certificate: &Option<PathBuf>, key: &Option<PathBuf>, names| {
            if let (Some(certificate), Some(key)) = (certificate.clone(), key.clone()) {
                all.push(CertificateFiles { setting, certificate, key, authority: None, names });
            }
        };
        let mut names = fields.domains.clone();
        let ip = fields.s3_address.map(|address| address.ip());
        names.extend(ip.filter(|ip| !IpAddr::is_unspecified(ip)).map(|ip| ip.to_string()));
        add("s3_tls_certificate", &fields.s3_tls_certificate, &fields.s3_tls_key, names);
        let data = (&fields.data_tls_certificate, &fields.data_tls_key);
        add("data_tls_certificate", data.0, data.1, Vec::new());
        add("tls_certificate", &fields.tls_certificate, &fields.tls_key, Vec::new());
        if let Some(last) = all.last_mut().filter(|it| it.setting == "tls_certificate") {
            last.authority.clone_from(&fields.tls_ca);
        }
        all
    }

    fn member_tls(&self) -> Option<[PathBuf; 3]> {
        let ExaminedFields { tls_certificate, tls_key, tls_ca, .. } = self.fields.clone();
        Some([tls_certificate?, tls_key?, tls_ca?])
    }

    fn secret_files(&self) -> Vec<PathBuf> {
        let fields = &self.fields;
        let named = [
            &fields.cluster_key_file,
            &fields.credentials_file,
            &fields.master_key_file,
            &fields.sse_master_key_file,
            &fields.first_key_file,
            &fields.s3_tls_key,
            &fields.data_tls_key,
            &fields.tls_key,
        ];
        let mut all: Vec<PathBuf> = named.into_iter().flatten().cloned().collect();
        // A server makes these at its first start.
        let made = ["credentials", "master.key", "sse-master.key", "token.key"];
        let made = made.map(|name| self.data_dir().join(name));
        all.extend(made.into_iter().filter(|path| path.exists()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined(role: ExaminedRole, text: &str) -> ExaminedSettings {
        let args = CommonArgs::default();
        let merged = MergedSettings::gather(&names(role), &args, |_| None, Some(text)).unwrap();
        let (fields, common) = (merged.extract().unwrap(), merged.extract().unwrap());
        ExaminedSettings { role, fields, common }
    }

    #[test]
    fn a_server_without_settings_is_examined_at_its_defaults() {
        let target = examined(ExaminedRole::Server, "").target(false);
        assert_eq!(target.devices.len(), 1);
        assert!(target.devices[0].path.ends_with("martlet-data/device0"));
        let ports: Vec<u16> = target.addresses.iter().map(|it| it.address.port()).collect();
        assert_eq!(ports, [9000, 9001]);
        assert!(target.member.is_none() && target.rings.is_empty());
    }

    #[test]
    fn a_node_is_examined_with_all_its_roles() {
        let text = "name = 'n1'\ndata_dir = '/x'\ncluster_key_file = 'cluster.key'\n\
            internal_address = '10.0.0.1:6200'\ns3_address = '10.0.0.1:9000'\n\
            domains = ['s3.example.com']\ns3_tls_certificate = 's3.crt'\ns3_tls_key = 's3.key'\n\
            tls_certificate = 'm.crt'\ntls_key = 'm.key'\ntls_ca = 'ca.crt'\nmemory = '2GiB'\n\
            rings = ['index.ring']\n[devices]\nd1 = '/a'\nd2 = '/b'";
        let target = examined(ExaminedRole::Node, text).target(true);
        assert_eq!(target.devices[1], DeviceTarget { name: "d2".into(), path: "/b".into() });
        assert_eq!(target.addresses.len(), 3);
        assert_eq!(target.rings.len(), 4);
        let member = target.member.unwrap();
        assert!(member.stores && member.tls.is_some() && member.name == "n1");
        let [s3, of_member] = target.certificates.as_slice() else { panic!("two certificates") };
        assert_eq!(s3.names, ["s3.example.com", "10.0.0.1"]);
        assert_eq!(of_member.authority.as_deref(), Some(Path::new("ca.crt")));
        assert_eq!(target.secret_files.len(), 3);
        assert_eq!(target.memory_bytes, Some(2 << 30));
        let proxy = examined(ExaminedRole::Node, "name = 'n1'\nroles = ['proxy']").target(false);
        assert!(proxy.addresses.iter().all(|it| it.setting != "internal_address"));
    }

    #[test]
    fn devices_are_read_in_the_forms_of_all_roles() {
        let paths = |role, text: &str| {
            let devices = examined(role, text).fields.devices;
            devices.into_iter().map(|it| format!("{}:{}", it.name, it.path.display())).collect()
        };
        let server: Vec<String> = paths(ExaminedRole::Server, "devices = ['/a', '/b']");
        assert_eq!(server, [":/a", ":/b"]);
        let node: Vec<String> = paths(ExaminedRole::StorageNode, "devices = 'a=/a, b=/b'");
        assert_eq!(node, ["a:/a", "b:/b"]);
    }
}
