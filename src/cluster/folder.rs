//! Folder of a cluster. Missing files are made; existing files are kept.
//!
//! ```text
//! <dir>/cluster.toml                 layout; lock, control.sock: of the running `up`
//! <dir>/cluster.key, credentials     secrets, mode 0600
//! <dir>/master.key                   seals the secrets of tenants' keys, mode 0600
//! <dir>/sse-master.key               master key of object encryption, mode 0600
//! <dir>/*.builder, *.ring            see `rings`
//! <dir>/n1/storage-node.toml, data/, d1/, d2/, log, direct.sock
//! <dir>/r1/replicator.toml, data/, log
//! <dir>/p1/proxy.toml, data/, log
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use martlet_admin_api::control::ProcessRole;
use martlet_notifications::EventSettings;
use martlet_serving::Failure;
use martlet_serving::folder::{DataFolder, make_folder};
use martlet_serving::settings::{SecretText, cores};
use toml::{Table, Value};

use super::layout::{self, ClusterLayout, ClusterProcess, ClusterShape, NODES_MAX};
use super::ports::Ports;
use super::process::Launch;
use super::{child, rings};
use crate::process::master_keys::{self, SSE_FILE, new_key};
use crate::process::s3_port::S3Settings;
use crate::server::credentials::{self, Credentials};

const KEY: &str = "cluster.key";
const ACCESS_KEY: &str = "MARTLET_ROOT_ACCESS_KEY";
const SECRET_KEY: &str = "MARTLET_ROOT_SECRET_KEY";
/// Settings in the environment of `up`, besides those of events, that `up` passes to proxies and to
/// replicators.
const TO_PROXIES: [&str; 5] =
    ["access_log", "bucket_log_interval", "allow_signature_v2", "max_requests", "window_cache"];
const TO_REPLICATORS: [&str; 1] = ["lifecycle_day_seconds"];
/// Longest path of a Unix socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Name of a node's direct socket in its folder.
const DIRECT_SOCKET: &str = "direct.sock";
/// Reserve of each device, smaller than the default because all devices share one disk.
const RESERVE: &str = "64MiB";

/// The cluster's folder, with its layout and credentials.
pub(super) struct ClusterFolder {
    folder: DataFolder,
    path: PathBuf,
    pub(super) layout: ClusterLayout,
    pub(super) credentials: Credentials,
    /// True if the credentials are new and must be shown.
    pub(super) is_new: bool,
}

impl ClusterFolder {
    /// Opens a folder and makes its missing files. Chosen ports stay reserved in `ports`.
    pub(super) fn open(
        path: &Path,
        shape: ClusterShape,
        ports: &mut Ports,
    ) -> Result<Self, Failure> {
        let unusable = |error: &std::io::Error| {
            Failure::refused(format!("the folder {} can't be created: {error}", path.display()))
        };
        // The folder holds secrets and all users' data.
        make_folder(path).map_err(|error| unusable(&error))?;
        let folder = DataFolder::open(path)?;
        let path = path.canonicalize().map_err(|error| unusable(&error))?;
        let layout = match fs::read_to_string(folder.join(layout::FILE)) {
            Ok(text) => ClusterLayout::parse(&text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let layout = ClusterLayout::new(shape, ports)?;
                folder.replace(layout::FILE, layout.to_text().as_bytes())?;
                layout
            }
            Err(error) => {
                let file = folder.join(layout::FILE);
                let sentence = format!("{} can't be read: {error}", file.display());
                return Err(Failure::refused(sentence));
            }
        };
        for key in [KEY, master_keys::FILE, SSE_FILE] {
            if !folder.join(key).exists() {
                folder.replace(key, new_key()?.as_bytes())?;
            }
        }
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let given = S3Settings {
            root_access_key: environment(ACCESS_KEY),
            root_secret_key: environment(SECRET_KEY).map(SecretText),
            ..S3Settings::default()
        };
        let (credentials, is_new) = Credentials::find_or_make(&given, &folder)?;
        check_sockets(&path, &layout)?;
        rings::make_missing(&path, &layout)?;
        let cluster = Self { folder, path, layout, credentials, is_new };
        for member in cluster.layout.members() {
            cluster.make_settings(&member)?;
        }
        Ok(cluster)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the credentials file.
    pub(super) fn credentials_path(&self) -> PathBuf {
        self.path.join(credentials::FILE)
    }

    /// Path of the cluster key.
    pub(super) fn key_path(&self) -> PathBuf {
        self.path.join(KEY)
    }

    /// Stores another layout.
    pub(super) fn keep(&mut self, layout: ClusterLayout) -> Result<(), Failure> {
        self.folder.replace(layout::FILE, layout.to_text().as_bytes())?;
        self.layout = layout;
        Ok(())
    }

    /// Path of a member's log.
    pub(super) fn log(&self, member: &ClusterProcess) -> PathBuf {
        self.path.join(&member.name).join("log")
    }

    /// Returns the command that starts a member.
    pub(super) fn launch(&self, member: &ClusterProcess) -> Launch {
        let settings = self.settings_path(member).display().to_string();
        let parent = std::process::id().to_string();
        let words = ["cluster", "child", "--parent", &parent, "--", member.role.name(), "--config"];
        let mut arguments: Vec<String> = words.map(str::to_owned).to_vec();
        arguments.push(settings);
        let Credentials { access_key, secret_key: SecretText(secret) } = &self.credentials;
        let mut environment = handed_on(member.role, |name| std::env::var(name).ok());
        if member.role == ProcessRole::Proxy {
            environment.push((ACCESS_KEY.to_owned(), access_key.clone()));
            environment.push((SECRET_KEY.to_owned(), secret.clone()));
            environment.extend(self.late_master_key(member));
        }
        Launch { program: child::this_program(), arguments, environment }
    }

    /// Master key settings for a proxy whose settings file predates the master key. With them the
    /// proxy also seals secrets that are stored in clear. All proxies of this folder start with
    /// these settings.
    fn late_master_key(&self, member: &ClusterProcess) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.settings_path(member)).unwrap_or_default();
        let table: Table = text.parse().unwrap_or_default();
        if table.contains_key("master_keys") || table.contains_key("master_key_file") {
            return Vec::new();
        }
        let path = self.path.join(master_keys::FILE).display().to_string();
        let seal = ("MARTLET_SEAL_SECRETS".to_owned(), "true".to_owned());
        vec![("MARTLET_MASTER_KEY_FILE".to_owned(), path), seal]
    }

    fn settings_path(&self, member: &ClusterProcess) -> PathBuf {
        self.path.join(&member.name).join(format!("{}.toml", member.role.name()))
    }

    /// Writes a member's settings file. An existing file is kept, because operators may edit it.
    pub(super) fn make_settings(&self, member: &ClusterProcess) -> Result<(), Failure> {
        let path = self.settings_path(member);
        if path.exists() {
            return Ok(());
        }
        let folder = self.path.join(&member.name);
        let text = settings(&self.path, &folder, member, &self.layout).to_string();
        let written = make_folder(&folder).and_then(|()| fs::write(&path, text));
        written.map_err(|error| {
            Failure::refused(format!("{} can't be written: {error}", path.display()))
        })
    }
}

/// Refuses a folder whose path is too long for the direct sockets of its nodes.
fn check_sockets(path: &Path, layout: &ClusterLayout) -> Result<(), Failure> {
    let longest = path.join(format!("n{NODES_MAX}")).join(DIRECT_SOCKET);
    if !layout.direct_sockets || longest.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{} is too long for direct sockets, whose paths have at most {SOCKET_PATH_BYTES_MAX} \
         bytes: choose a shorter --data-dir",
        path.display()
    )))
}

/// Settings in the environment of `up` that are passed to a role: events, access logs and the
/// length of lifecycle days.
fn handed_on(role: ProcessRole, set: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let names = match role {
        ProcessRole::Proxy => [&EventSettings::NAMES[..], &TO_PROXIES].concat(),
        ProcessRole::Replicator => [&EventSettings::NAMES[..], &TO_REPLICATORS].concat(),
        ProcessRole::StorageNode => Vec::new(),
    };
    let variables = names.into_iter().map(|name| format!("MARTLET_{}", name.to_uppercase()));
    variables.filter_map(|name| set(&name).map(|value| (name, value))).collect()
}

/// Threads of each node and each replicator: this machine's cores divided by the number of nodes.
/// More threads would only contend for cores.
fn threads_of_each(nodes: usize) -> i64 {
    let share = cores() / nodes.max(1);
    i64::try_from(share.max(1)).unwrap_or(i64::MAX)
}

/// Contents of a member's settings file.
fn settings(
    cluster: &Path,
    folder: &Path,
    member: &ClusterProcess,
    layout: &ClusterLayout,
) -> Table {
    let text = |path: PathBuf| Value::from(path.display().to_string());
    let address = |address: std::net::SocketAddr| Value::from(address.to_string());
    let rings: Vec<Value> =
        rings::names(layout).iter().map(|name| text(rings::ring_path(cluster, name))).collect();
    let mut table = Table::from_iter([
        ("name".to_owned(), Value::from(member.name.clone())),
        ("data_dir".to_owned(), text(folder.join("data"))),
        ("admin_address".to_owned(), address(member.admin_address)),
        ("cluster_key_file".to_owned(), text(cluster.join(KEY))),
        ("rings".to_owned(), Value::from(rings)),
    ]);
    if member.role != ProcessRole::Proxy {
        table.insert("max_threads".to_owned(), Value::from(threads_of_each(layout.nodes.len())));
    }
    match (member.role, member.address) {
        (ProcessRole::Proxy, Some(at)) => {
            table.insert("s3_address".to_owned(), address(at));
            table.insert("master_key_file".to_owned(), text(cluster.join(master_keys::FILE)));
            table.insert("sse_master_key_file".to_owned(), text(cluster.join(SSE_FILE)));
        }
        (ProcessRole::StorageNode, Some(at)) => {
            table.insert("internal_address".to_owned(), address(at));
            table.insert("reserve".to_owned(), Value::from(RESERVE));
            if let Some(at) = member.data_address {
                table.insert("data_address".to_owned(), address(at));
            }
            if layout.direct_sockets {
                table.insert("direct_socket".to_owned(), text(folder.join(DIRECT_SOCKET)));
            }
            let node = layout.nodes.iter().find(|node| node.name == member.name);
            let names = node.map(|node| node.devices.as_slice()).unwrap_or_default();
            let device = |name: &String| (name.clone(), text(folder.join(name)));
            let devices: Table = names.iter().map(device).collect();
            table.insert("devices".to_owned(), Value::from(devices));
        }
        _ => {
            let nodes: Vec<Value> = member.node.iter().map(|name| name.clone().into()).collect();
            table.insert("nodes".to_owned(), Value::from(nodes));
        }
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::layout::tests::SHAPE;
    use super::*;

    pub(in super::super) fn open(path: &Path) -> Result<ClusterFolder, Failure> {
        ClusterFolder::open(path, SHAPE, &mut Ports::default())
    }

    fn table(path: &Path) -> Table {
        fs::read_to_string(path).unwrap().parse().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_second_start_finds_everything_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c");
        let first = open(&path).unwrap();
        assert!(first.is_new);
        let (layout, credentials) = (first.layout.clone(), first.credentials.clone());
        let key = fs::read(path.join(KEY)).unwrap();
        fs::write(path.join("p1/proxy.toml"), "changed by hand").unwrap();
        drop(first);
        let other = ClusterShape { nodes: 9, ..SHAPE };
        let second = ClusterFolder::open(&path, other, &mut Ports::default()).unwrap();
        assert!(!second.is_new);
        assert_eq!((&second.layout, &second.credentials), (&layout, &credentials));
        assert_eq!(fs::read(path.join(KEY)).unwrap(), key);
        assert_eq!(fs::read(path.join("p1/proxy.toml")).unwrap(), b"changed by hand");
    }

    #[test]
    fn secrets_are_for_their_owner_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c");
        let cluster = open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!((mode(&path.join(KEY)), mode(&cluster.credentials_path())), (0o600, 0o600));
        let key = fs::read_to_string(path.join(KEY)).unwrap();
        assert!(key.trim().len() == 64 && hex::decode(key.trim()).is_ok(), "{key}");
        assert_eq!(mode(&path.join(SSE_FILE)), 0o600);
        assert_ne!(fs::read_to_string(path.join(SSE_FILE)).unwrap(), key);
        for member in cluster.layout.members() {
            let launch = cluster.launch(&member);
            let secret = &cluster.credentials.secret_key.0;
            assert!(launch.arguments.iter().all(|word| !word.contains(secret)), "ps shows it");
            let is_told = launch.environment.iter().any(|(_, value)| value == secret);
            assert_eq!(is_told, member.role == ProcessRole::Proxy, "{}", member.name);
        }
    }

    #[test]
    fn proxies_of_an_earlier_version_get_the_master_key_too() {
        let place = tempfile::tempdir().unwrap();
        let cluster = open(place.path()).unwrap();
        let is_proxy = |member: &ClusterProcess| member.role == ProcessRole::Proxy;
        let proxy = cluster.layout.members().into_iter().find(is_proxy).unwrap();
        let environment = || {
            let names = cluster.launch(&proxy).environment;
            names.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let late = ["MARTLET_MASTER_KEY_FILE".to_owned(), "MARTLET_SEAL_SECRETS".to_owned()];
        assert_eq!(mode(&cluster.path().join(master_keys::FILE)), 0o600);
        assert!(late.iter().all(|name| !environment().contains(name)), "its file says so");
        fs::write(cluster.settings_path(&proxy), "name = \"p1\"").unwrap();
        assert!(late.iter().all(|name| environment().contains(name)));
    }

    #[test]
    fn settings_of_event_targets_go_to_the_processes_that_send_events() {
        let names = |role| {
            let set = |name: &str| (name != "MARTLET_NOTIFICATION_SPOOL").then(|| "x".to_owned());
            let environment = handed_on(role, set);
            environment.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        let of_events = "MARTLET_NOTIFICATIONS MARTLET_MAX_NOTIFICATION_ATTEMPTS \
                         MARTLET_MAX_NOTIFICATION_REFUSALS";
        let logs = "MARTLET_ACCESS_LOG MARTLET_BUCKET_LOG_INTERVAL MARTLET_ALLOW_SIGNATURE_V2 \
                    MARTLET_MAX_REQUESTS MARTLET_WINDOW_CACHE";
        assert_eq!(names(ProcessRole::Proxy), format!("{of_events} {logs}"));
        let days = "MARTLET_LIFECYCLE_DAY_SECONDS";
        assert_eq!(names(ProcessRole::Replicator), format!("{of_events} {days}"));
        assert_eq!(names(ProcessRole::StorageNode), "");
    }

    #[test]
    fn each_role_gets_its_settings() {
        let place = tempfile::tempdir().unwrap();
        let cluster = open(place.path()).unwrap();
        let path = cluster.path();
        let member = |name: &str| {
            cluster.layout.members().into_iter().find(|member| member.name == name).unwrap()
        };
        let node = table(&path.join("n2/storage-node.toml"));
        let address = member("n2").address.unwrap().to_string();
        assert_eq!(node["internal_address"].as_str(), Some(address.as_str()));
        let device = path.join("n2/d1");
        assert_eq!(node["devices"]["d1"].as_str(), device.to_str());
        assert_eq!(node["rings"].as_array().unwrap().len(), 2);
        let threads = threads_of_each(cluster.layout.nodes.len());
        assert_eq!(node["max_threads"], Value::from(threads));
        let proxy = table(&path.join("p1/proxy.toml"));
        assert!(proxy.contains_key("s3_address") && !proxy.contains_key("devices"));
        assert!(!proxy.contains_key("max_threads"), "it has the whole machine");
        assert!(!node.contains_key("data_address") && !node.contains_key("direct_socket"));
        let replicator = table(&path.join("r3/replicator.toml"));
        assert_eq!(replicator["nodes"], Value::from(vec!["n3"]));
        let launch = cluster.launch(&member("r3"));
        let settings = path.join("r3/replicator.toml").display().to_string();
        assert!(launch.arguments.ends_with(&["replicator".into(), "--config".into(), settings]));
    }

    #[test]
    fn nodes_have_the_requested_data_ports_and_direct_sockets() {
        let place = tempfile::tempdir().unwrap();
        let shape = ClusterShape { data_ports: true, direct_sockets: true, ..SHAPE };
        let cluster = ClusterFolder::open(place.path(), shape, &mut Ports::default()).unwrap();
        let path = cluster.path();
        let node = table(&path.join("n3/storage-node.toml"));
        let is_third = |member: &ClusterProcess| member.name == "n3";
        let member = cluster.layout.members().into_iter().find(is_third).unwrap();
        let address = member.data_address.unwrap().to_string();
        assert_eq!(node["data_address"].as_str(), Some(address.as_str()));
        assert_eq!(node["direct_socket"].as_str(), path.join("n3/direct.sock").to_str());
        for other in ["p1/proxy.toml", "r3/replicator.toml"] {
            assert!(!table(&path.join(other)).contains_key("data_address"), "{other}");
        }
    }

    #[test]
    fn a_path_that_is_too_long_for_sockets_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x".repeat(100));
        let shape = ClusterShape { data_ports: true, direct_sockets: true, ..SHAPE };
        let refusal = ClusterFolder::open(&path, shape, &mut Ports::default());
        let refusal = refusal.err().unwrap().to_string();
        assert!(refusal.contains("shorter --data-dir"), "{refusal}");
    }
}
