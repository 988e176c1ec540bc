//! One process of a cluster.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use martlet_protocol::http::TlsFiles;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{sleep, timeout};

use super::{papers, rings};
use crate::image::Image;
use crate::network::Host;
use crate::s3;
use crate::server::binary;

/// How long a process may take to be ready or to end; machines that build meanwhile are slow.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of a log that are shown when a test panics.
const LINES_SHOWN: usize = 40;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Keeps entries and extents.
    StorageNode,
    /// Speaks S3.
    Proxy,
    /// Runs the workers.
    Replicator,
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Self::StorageNode => "storage-node",
            Self::Proxy => "proxy",
            Self::Replicator => "replicator",
        }
    }
}

/// A process: its settings, its folder, and whether it runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Member {
    /// Its name, which is its host's name too.
    pub name: String,
    /// Where it serves: S3 for a proxy, the internal port for a node, nothing for a replicator.
    pub address: SocketAddr,
    /// Where operators ask.
    pub admin_address: SocketAddr,
    role: Role,
    folder: PathBuf,
    host: Option<Host>,
    environment: Vec<(String, String)>,
    process: Option<Child>,
    disk: Option<Image>,
    papers: Option<TlsFiles>,
}

impl Member {
    /// One that is not running yet, with the addresses where it serves and where operators ask.
    pub(super) fn new(
        role: Role,
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
            process: None,
            disk: None,
            papers: None,
        }
    }

    /// Keeps its devices, and what it remembers of its peers, on a disk of its own.
    pub(super) fn put_on(&mut self, disk: Image) {
        self.disk = Some(disk);
    }

    /// Lets it speak TLS with the others, once it is configured.
    pub(super) fn show(&mut self, papers: TlsFiles) {
        self.papers = Some(papers);
    }

    /// The disk that it has for its own.
    pub fn disk(&self) -> &Image {
        self.disk.as_ref().expect("it was given a disk")
    }

    /// Where everything lies that a node must keep.
    fn kept(&self) -> PathBuf {
        self.disk.as_ref().map_or_else(|| self.folder.clone(), Image::path)
    }

    /// Writes its settings: what all roles have, with rings of so many policies, then these lines.
    pub(super) fn configure(&self, policies: usize, lines: &str) {
        let (data, Self { name, admin_address, folder, .. }) = (self.kept().join("data"), self);
        let cluster = folder.parent().unwrap();
        let settings = format!(
            "name = \"{name}\"\ndata_dir = {}\nadmin_address = \"{admin_address}\"\n\
             cluster_key_file = {}\nrings = [{}]\n{}{lines}",
            quoted(&data),
            quoted(&cluster.join("cluster.key")),
            rings::names(policies)
                .map(|name| quoted(&rings::path(cluster, &name)))
                .collect::<Vec<_>>()
                .join(", "),
            self.papers.as_ref().map(papers::settings).unwrap_or_default(),
        );
        fs::write(self.settings_path(), settings).unwrap();
    }

    /// Sets a variable of its environment.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// The folder of a device, counted from 1.
    pub fn device(&self, number: usize) -> PathBuf {
        self.kept().join(format!("d{number}"))
    }

    /// Empties a device, as if its disk had been replaced. The process is not running.
    pub fn wipe(&self, device: usize) {
        assert!(self.process.is_none(), "{} has its devices open", self.name);
        let path = self.device(device);
        fs::remove_dir_all(&path).unwrap();
        fs::create_dir(&path).unwrap();
    }

    /// Where its settings are.
    pub fn settings_path(&self) -> PathBuf {
        self.folder.join("martlet.toml")
    }

    /// What it logged, in all its lives.
    pub fn logged(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Whether it was started and has not been killed or stopped since.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Starts it, and waits until it is ready.
    pub async fn start(&mut self) {
        self.spawn();
        self.wait_until_ready().await;
    }

    /// Starts it, and waits for nothing.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "{} runs already", self.name);
        let log = self.folder.join("log");
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = match &self.host {
            Some(host) => host.command(&binary()),
            None => Command::new(binary()),
        };
        // All but what is to be logged, for whoever looks for a mistake.
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

    /// Waits until it says that it is ready.
    pub async fn wait_until_ready(&mut self) {
        let begun = Instant::now();
        while !self.is_ready().await {
            let ended = self.process.as_mut().expect("it was started").try_wait().unwrap();
            let (name, log) = (&self.name, self.logged());
            assert!(ended.is_none(), "{name} ended with {ended:?}:\n{log}");
            assert!(begun.elapsed() < PATIENCE, "{name} does not become ready:\n{log}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Whether it says that it is ready.
    pub async fn is_ready(&self) -> bool {
        self.admin("/readyz").await.is_ok_and(|reply| reply.status == 200)
    }

    /// What its admin address answers within a moment.
    pub async fn admin(&self, path: &str) -> Result<s3::Reply, s3::Lost> {
        let asked = timeout(Duration::from_secs(2), s3::plain(self.admin_address, path)).await;
        asked.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    /// The sum of all samples of a metric of whole numbers, if it answers.
    pub async fn metric(&self, name: &str) -> Option<u64> {
        self.metric_of(name, "").await
    }

    /// The same of the series that have such a label, as `node="n1"`.
    pub async fn metric_of(&self, name: &str, label: &str) -> Option<u64> {
        let text = self.admin("/metrics").await.ok()?.text();
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let is_asked = series.split('{').next() == Some(name) && series.contains(label);
            is_asked.then(|| value.parse::<u64>().ok())?
        };
        Some(text.lines().filter_map(sample).sum())
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Ends it, whether it runs or has ended by itself.
    pub fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            process.wait().unwrap();
        }
    }

    /// Cuts the power of some at the same moment: their processes are gone, and what was not synced.
    pub fn cut_power<'a>(members: impl IntoIterator<Item = &'a mut Self>) {
        let mut members: Vec<&mut Self> = members.into_iter().collect();
        assert!(Image::cut_all_power(members.iter().map(|it| it.disk())), "the power stays on");
        for member in &mut members {
            member.kill();
            member.replug();
        }
    }

    /// Brings its disk back after its power was cut and its process killed.
    fn replug(&mut self) {
        assert!(self.process.is_none(), "{} has its disk open", self.name);
        let disk = self.disk.as_mut().expect("it was given a disk");
        disk.unmount();
        assert!(disk.mount(), "{} has lost its disk", self.name);
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        while self.process.as_mut().expect("it runs").try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "{} does not end:\n{}", self.name, self.logged());
            sleep(LOOK_EVERY).await;
        }
        self.process = None;
    }

    /// Lets it do nothing, as a machine that hangs.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

/// A path as settings have it.
pub(super) fn quoted(path: &Path) -> String {
    toml::Value::from(path.display().to_string()).to_string()
}

impl Drop for Member {
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
