//! One child process: start, signals, exit status and log.
//!
//! * Signals go only to a child that has not been waited for: until then the kernel does not reuse
//!   its process id.
//! * All output of a child is appended to its log.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use martlet_admin_api::control::ProcessState;
use martlet_serving::Failure;
use martlet_serving::folder::make_folder;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Timeout for the end of a killed process.
const DEATH: Duration = Duration::from_secs(10);
/// Bytes at the end of a log that are read, and lines of them that are shown.
const TAIL_BYTES: u64 = 16 * 1024;
const TAIL_LINES: usize = 6;

/// Program, arguments and environment of a process.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
}

/// Process that runs or has run.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    launch: Launch,
    log: PathBuf,
    child: Option<Child>,
    state: ProcessState,
}

impl Process {
    /// Makes a process that has not been started.
    pub(super) fn new(name: &str, launch: Launch, log: PathBuf) -> Self {
        Self { name: name.to_owned(), launch, log, child: None, state: ProcessState::Stopped }
    }

    pub(super) fn state(&self) -> &ProcessState {
        &self.state
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Process id, until the process has ended.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the process in a process group of its own, so that Ctrl-C in a terminal reaches only
    /// `up`.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        if self.child.is_some() {
            return Err(Failure::refused(format!("{} is already {}", self.name, self.state)));
        }
        let failed = |what: &str, error: &std::io::Error| {
            Failure::refused(format!("{} can't be started: {what}: {error}", self.name))
        };
        let log = self.open_log().map_err(|error| failed("its log", &error))?;
        let copy = log.try_clone().map_err(|error| failed("its log", &error))?;
        let mut command = Command::new(&self.launch.program);
        // Remove `up`'s MARTLET_* variables, which would override the roles' settings files. Log
        // settings stay, and `launch.environment` adds the variables to pass on.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("MARTLET_") && !text.starts_with("MARTLET_LOG") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(&self.launch.arguments)
            .envs(self.launch.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            .process_group(0)
            .spawn()
            .map_err(|error| failed("the program", &error))?;
        (self.child, self.state) = (Some(child), ProcessState::Running);
        Ok(())
    }

    fn open_log(&self) -> std::io::Result<File> {
        if let Some(folder) = self.log.parent() {
            make_folder(folder)?;
        }
        OpenOptions::new().create(true).append(true).open(&self.log)
    }

    /// Records the end of the process. Returns true if the end is newly noticed.
    pub(super) fn poll_exit(&mut self) -> bool {
        let ended = self.child.as_mut().map(Child::try_wait);
        let Some(Ok(Some(status))) = ended else { return false };
        (self.child, self.state) = (None, ProcessState::Died(describe(status)));
        true
    }

    /// Kills the process, and waits up to 10 s for its end.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        self.signal(Signal::KILL)?;
        self.wait(DEATH).await?;
        self.state = ProcessState::Stopped;
        Ok(())
    }

    /// Sends SIGTERM, and SIGKILL after `patience`. Returns true if the process exited by itself
    /// with code 0.
    pub(super) async fn stop(&mut self, patience: Duration) -> Result<bool, Failure> {
        self.resume_quietly();
        self.signal(Signal::TERM)?;
        let by_itself = self.wait(patience).await.is_ok();
        if !by_itself {
            self.kill().await?;
        }
        let in_order = matches!(&self.state, ProcessState::Died(how) if how == IN_ORDER);
        self.state = ProcessState::Stopped;
        Ok(by_itself && in_order)
    }

    /// Suspends the process (SIGSTOP).
    pub(super) fn pause(&mut self) -> Result<(), Failure> {
        self.signal(Signal::STOP)?;
        self.state = ProcessState::Paused;
        Ok(())
    }

    /// Continues the process (SIGCONT).
    pub(super) fn resume(&mut self) -> Result<(), Failure> {
        self.signal(Signal::CONT)?;
        self.state = ProcessState::Running;
        Ok(())
    }

    /// Continues a suspended process, which could not exit in good order.
    fn resume_quietly(&mut self) {
        if self.state == ProcessState::Paused {
            let _ = self.resume();
        }
    }

    fn signal(&mut self, signal: Signal) -> Result<(), Failure> {
        self.poll_exit();
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let Some(pid) = pid else {
            return Err(Failure::refused(format!("{} is not running ({})", self.name, self.state)));
        };
        kill_process(pid, signal)
            .map_err(|error| Failure::refused(format!("{} (process {pid:?}): {error}", self.name)))
    }

    async fn wait(&mut self, patience: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + patience;
        while self.child.is_some() && !self.poll_exit() {
            if Instant::now() > deadline {
                let sentence = format!("{} did not exit in time", self.name);
                return Err(Failure::refused(sentence));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Last lines of the log, at most 6.
    pub(super) fn last_words(&self) -> String {
        tail(&self.log).unwrap_or_default()
    }
}

const IN_ORDER: &str = "exit code 0";

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut last = VecDeque::new();
    for line in BufReader::new(file).split(b'\n') {
        last.push_back(String::from_utf8_lossy(&line?).into_owned());
        if last.len() > TAIL_LINES {
            last.pop_front();
        }
    }
    let mut shown = String::new();
    for line in last {
        shown += "  │ ";
        shown += &line;
        shown.push('\n');
    }
    Ok(shown)
}

#[cfg(test)]
mod tests;
