//! One process of a cluster.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use martlet_protocol::http::TlsFiles;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{sleep, timeout};

use super::settings_text::quoted;
use super::{certificates, ring_files};
use crate::image::Image;
use crate::network::Host;
use crate::s3;
use crate::server::binary;

/// Maximum time for a process to become ready or to end. Machines that also run builds are slow.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Log lines of each member that are printed when a test panics.
const LINES_SHOWN: usize = 40;

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRole {
    /// Stores entries and extents.
    StorageNode,
    /// Serves S3.
    Proxy,
    /// Runs the workers.
    Replicator,
}

impl ProcessRole {
    fn command(self) -> &'static str {
        match self {
            Self::StorageNode => "storage-node",
            Self::Proxy => "proxy",
            Self::Replicator => "replicator",
        }
    }
}

/// A process with its settings and its folder. Dropping a member kills its process.
#[derive(Debug)]
pub struct ClusterMember {
    /// Name of the process and of its host.
    pub name: String,
    /// S3 address of a proxy, or internal address of a node. A replicator serves nothing on this
    /// address.
    pub address: SocketAddr,
    /// Admin address.
    pub admin_address: SocketAddr,
    role: ProcessRole,
    folder: PathBuf,
    host: Option<Host>,
    environment: Vec<(String, String)>,
    /// Binary of later starts.
    binary: PathBuf,
    process: Option<Child>,
    disk: Option<Image>,
    certificates: Option<TlsFiles>,
}

impl ClusterMember {
    /// Makes a member that is not running, with its service address and its admin address.
    pub(super) fn new(
        role: ProcessRole,
        name: &str,
        folder: PathBuf,
        host: Option<Host>,
        [address, admin_address]: [SocketAddr; 2],
    ) -> Self {
        Self {
            name: name.to_owned(),
            address,
            admin_address,
            role,
            folder,
            host,
            environment: Vec::new(),
            binary: binary(),
            process: None,
            disk: None,
            certificates: None,
        }
    }

    /// Puts the devices and the data folder, which holds the record of peers, on a disk of its own.
    pub(super) fn put_on(&mut self, disk: Image) {
        self.disk = Some(disk);
    }

    /// Makes the member use TLS with these files; must precede `configure`.
    pub(super) fn show(&mut self, certificates: TlsFiles) {
        self.certificates = Some(certificates);
    }

    /// The member's own disk. Panics without one.
    pub fn disk(&self) -> &Image {
        self.disk.as_ref().expect("it was given a disk")
    }

    /// Writes the settings file: the settings common to all roles, with the rings of so many
    /// policies, then `lines`.
    pub(super) fn configure(&self, policies: usize, lines: &str) {
        let (data, Self { name, admin_address, folder, .. }) = (data_root(self).join("data"), self);
        let cluster = folder.parent().unwrap();
        let settings = format!(
            "name = \"{name}\"\ndata_dir = {}\nadmin_address = \"{admin_address}\"\n\
             admin_allow_clear = true\n\
             cluster_key_file = {}\nrings = [{}]\n{}{lines}",
            quoted(&data),
            quoted(&cluster.join("cluster.key")),
            ring_files::names(policies)
                .map(|name| quoted(&ring_files::path(cluster, &name)))
                .collect::<Vec<_>>()
                .join(", "),
            self.certificates.as_ref().map(certificates::settings).unwrap_or_default(),
        );
        fs::write(self.settings_path(), settings).unwrap();
    }

    /// Sets an environment variable for later starts.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Sets the binary of later starts.
    pub fn use_binary(&mut self, binary: &Path) {
        binary.clone_into(&mut self.binary);
    }

    /// Folder of a device; numbers start at 1.
    pub fn device(&self, number: usize) -> PathBuf {
        data_root(self).join(format!("d{number}"))
    }

    /// Empties a device, as if its disk had been replaced. The process must not be running.
    pub fn wipe(&self, device: usize) {
        assert!(self.process.is_none(), "{} has its devices open", self.name);
        let path = self.device(device);
        fs::remove_dir_all(&path).unwrap();
        fs::create_dir(&path).unwrap();
    }

    /// Path of the settings file.
    pub fn settings_path(&self) -> PathBuf {
        self.folder.join("martlet.toml")
    }

    /// Log of all runs of the process.
    pub fn logged(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Returns true if the process was started and has not been killed or stopped since.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Id of the running process.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Starts the process and waits until it is ready.
    pub async fn start(&mut self) {
        self.spawn();
        self.wait_until_ready().await;
    }

    /// Starts the process without waiting.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "{} runs already", self.name);
        let log = self.folder.join("log");
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = match &self.host {
            Some(host) => host.command(&self.binary),
            None => Command::new(&self.binary),
        };
        // Removes Martlet's variables but `MARTLET_LOG`, which sets the log level for debugging.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name != "MARTLET_LOG") {
            if name.to_string_lossy().starts_with("MARTLET_") {
                command.env_remove(name);
            }
        }
        command.arg(self.role.command()).arg("--config").arg(self.settings_path());
        command.envs(self.environment.iter().cloned()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Waits until the process is ready. Panics with the log if the process ends first, or after a
    /// minute.
    pub async fn wait_until_ready(&mut self) {
        let begun = Instant::now();
        while !self.is_ready().await {
            let ended = self.process.as_mut().expect("it was started").try_wait().unwrap();
            let (name, log) = (&self.name, self.logged());
            assert!(ended.is_none(), "{name} ended with {ended:?}:\n{log}");
            assert!(begun.elapsed() < PATIENCE, "{name} does not become ready:\n{log}");
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns true if `/readyz` answers 200.
    pub async fn is_ready(&self) -> bool {
        self.admin("/readyz").await.is_ok_and(|reply| reply.status == 200)
    }

    /// Sends a GET to the admin address, with a timeout of two seconds.
    pub async fn admin(&self, path: &str) -> Result<s3::Reply, s3::LostReply> {
        let reply = timeout(Duration::from_secs(2), s3::plain(self.admin_address, path)).await;
        reply.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    /// Sums all samples of an integer metric; `None` without a reply.
    pub async fn metric(&self, name: &str) -> Option<u64> {
        self.metric_of(name, "").await
    }

    /// Sums the samples of the series with a label, such as `node="n1"`; `None` without a reply.
    pub async fn metric_of(&self, name: &str, label: &str) -> Option<u64> {
        let text = self.admin("/metrics").await.ok()?.text();
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let matches = series.split('{').next() == Some(name) && series.contains(label);
            matches.then(|| value.parse::<u64>().ok())?
        };
        Some(text.lines().filter_map(sample).sum())
    }

    /// Kills the process, as `kill -9` does.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Kills the process if it is running, and reaps it.
    pub fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            process.wait().unwrap();
        }
    }

    /// Cuts the power of several members at one moment: their processes and unsynced data are lost.
    pub fn cut_power<'a>(members: impl IntoIterator<Item = &'a mut Self>) {
        let mut members: Vec<&mut Self> = members.into_iter().collect();
        // Syncs in the moment of the cut may return success for bytes that are gone. A process without
        // power acknowledges nothing, so each stops before its disk.
        for member in &members {
            member.pause();
        }
        assert!(Image::cut_all_power(members.iter().map(|it| it.disk())), "the power stays on");
        for member in &mut members {
            member.kill();
            assert!(member.process.is_none(), "{} has its disk open", member.name);
            remount(member.disk.as_mut().expect("it was given a disk"), &member.name);
        }
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub async fn stop(&mut self) {
        send(self.pid(), Signal::TERM);
        let begun = Instant::now();
        while self.process.as_mut().expect("it runs").try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "{} does not end:\n{}", self.name, self.logged());
            sleep(POLL_INTERVAL).await;
        }
        self.process = None;
    }

    /// Stops the process with SIGSTOP, so that it hangs.
    pub fn pause(&self) {
        send(self.pid(), Signal::STOP);
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        send(self.pid(), Signal::CONT);
    }
}

impl Drop for ClusterMember {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let log = self.logged();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
            println!("── the end of the log of {} ──\n{end}", self.name);
        }
    }
}

/// Folder of all persistent data of a member's process.
fn data_root(member: &ClusterMember) -> PathBuf {
    member.disk.as_ref().map_or_else(|| member.folder.clone(), Image::path)
}

/// Mounts a disk again after its power was cut and its process killed.
fn remount(disk: &mut Image, member: &str) {
    disk.unmount();
    assert!(disk.mount(), "{member} has lost its disk");
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
