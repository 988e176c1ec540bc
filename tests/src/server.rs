//! One `martlet server` process, on ports and folders of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::s3::{self, ACCESS_KEY, S3, SECRET_KEY};

/// Maximum time for a server to become ready or to end. Machines that also run builds are slow.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Path of the binary under test: `MARTLET_BIN`, or `martlet` in the build folder of these tests.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MARTLET_BIN") {
        return path.into();
    }
    let here = std::env::current_exe().unwrap();
    let path = here.ancestors().nth(2).unwrap().join("martlet");
    assert!(path.is_file(), "there is no {}: build it or set MARTLET_BIN", path.display());
    path
}

/// Command `martlet` with arguments, in an environment without Martlet's variables.
pub fn martlet(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MARTLET_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end.
pub fn finished(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Configuration of a server. Each start of one setup takes free ports.
#[derive(Debug)]
pub struct Setup {
    folder: Arc<TempDir>,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Setup {
    /// Makes a setup with a data folder of its own, the tests' keys, and a reserve of 16 MiB that a
    /// small disk can hold.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("martlet-test-").tempdir().unwrap();
        let folder = Arc::new(folder);
        Self { folder, flags: Vec::new(), environment: Vec::new() }
            .set("MARTLET_ROOT_ACCESS_KEY", ACCESS_KEY)
            .set("MARTLET_ROOT_SECRET_KEY", SECRET_KEY)
            .set("MARTLET_RESERVE", "16MiB")
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(other, _)| other != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn unset(mut self, name: &str) -> Self {
        self.environment.retain(|(other, _)| other != name);
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Path below the folder of this setup.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The data folder.
    pub fn data_dir(&self) -> PathBuf {
        self.join("data")
    }

    /// Returns the command that starts the server on free ports.
    pub fn command(&self) -> Command {
        let data_dir = self.data_dir();
        let defaults = [
            ("--data-dir", data_dir.to_str().unwrap()),
            ("--s3-address", "127.0.0.1:0"),
            ("--admin-address", "127.0.0.1:0"),
            ("--console-address", "off"),
        ];
        let mut command = martlet(&["server"]);
        for (flag, value) in defaults {
            let in_file = flag != "--data-dir" && self.is_given("--config");
            if !in_file && !self.is_given(flag) {
                command.args([flag, value]);
            }
        }
        command.args(&self.flags).envs(self.environment.iter().cloned());
        command
    }

    fn is_given(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    /// Starts the server, which must refuse to run. Returns the exit code and the last error
    /// message.
    pub fn refusal(&self) -> (i32, String) {
        let output = finished(&mut self.command());
        let text = String::from_utf8(output.stderr).unwrap();
        let last = text.lines().rfind(|line| line.starts_with("martlet: ")).unwrap_or_default();
        let code = output.status.code().unwrap_or_else(|| panic!("it was killed: {text}"));
        assert!(!last.is_empty() || code == 2, "no sentence in: {text}");
        (code, if last.is_empty() { text } else { last.to_owned() })
    }

    /// Starts the server and waits until it serves.
    pub async fn start(&self) -> Server {
        let mut server = self.spawn();
        server.wait_until_ready().await;
        server
    }

    /// Starts the server and waits until it prints its addresses. For servers whose admin address
    /// has TLS, which [`Setup::start`] does not speak.
    pub async fn start_and_announce(&self) -> Server {
        let mut server = self.spawn();
        server.wait_until(Server::is_announced).await;
        server
    }

    /// Starts the server without waiting.
    fn spawn(&self) -> Server {
        let (out, err) = (self.join("out"), self.join("err"));
        let process = self
            .command()
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let folder = self.folder.clone();
        Server { process, out, err, s3_address: nowhere, admin_address: nowhere, _folder: folder }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// A server process. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    process: Child,
    out: PathBuf,
    err: PathBuf,
    /// S3 address.
    pub s3_address: SocketAddr,
    /// Admin address.
    pub admin_address: SocketAddr,
    /// Keeps the folder while the server lives; the setup may be dropped before.
    _folder: Arc<TempDir>,
}

impl Server {
    /// A client with the tests' keys.
    pub fn client(&self) -> S3 {
        S3::new(self.s3_address)
    }

    /// Id of the server process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the standard output.
    pub fn printed(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Returns the log, from standard error.
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Sends a GET to the admin address.
    pub async fn admin(&self, path: &str) -> Result<s3::Reply, s3::LostReply> {
        s3::plain(self.admin_address, path).await
    }

    /// Sums all samples of an integer metric; zero without samples.
    pub async fn metric(&self, name: &str) -> u64 {
        let text = self.admin("/metrics").await.unwrap().text();
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let matches = series.split('{').next() == Some(name);
            matches.then(|| value.parse::<u64>().unwrap())
        };
        text.lines().filter_map(sample).sum()
    }

    /// Waits until a metric satisfies `wanted`; panics after a minute.
    pub async fn wait_for_metric(&self, name: &str, wanted: impl Fn(u64) -> bool) {
        let begun = Instant::now();
        loop {
            let value = self.metric(name).await;
            if wanted(value) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} stays {value}\n{}", self.logged());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Runs `martlet admin` against the server.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        let address = self.admin_address.to_string();
        let mut command = martlet(&["admin", "--admin-address", &address]);
        finished(command.env("MARTLET_ROOT_SECRET_KEY", SECRET_KEY).args(arguments))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Sends SIGTERM and waits until the server has ended.
    pub async fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Waits until the server has ended; panics after a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.logged());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Kills the server, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    async fn wait_until_ready(&mut self) {
        self.wait_until(Self::is_announced).await;
        let begun = Instant::now();
        while !self.admin("/readyz").await.is_ok_and(|reply| reply.status == 200) {
            assert!(begun.elapsed() < PATIENCE, "it does not become ready:\n{}", self.logged());
            sleep(LOOK_EVERY).await;
        }
    }

    async fn wait_until(&mut self, is_so: impl Fn(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("it ended with {status}:\n{}", self.logged());
            }
            assert!(begun.elapsed() < PATIENCE, "it does not become ready:\n{}", self.logged());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Reads the addresses that the server has printed. Returns true if there are both.
    fn is_announced(&mut self) -> bool {
        let printed = self.printed().replace("https://", "http://");
        let s3 = address_after(&printed, "Martlet serves S3 at http://");
        let admin = address_after(&self.logged(), " address=");
        let (Some(s3), Some(admin)) = (s3, admin) else { return false };
        (self.s3_address, self.admin_address) = (s3, admin);
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("── the server's log ──\n{}", self.logged());
        }
    }
}

fn address_after(text: &str, words: &str) -> Option<SocketAddr> {
    let (_, rest) = text.split_once(words)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Bytes on disk of a folder and everything below it.
pub fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
