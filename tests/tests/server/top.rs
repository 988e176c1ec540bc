//! `martlet top`: one reading as text, and the screen on a pseudo-terminal of `script`.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use martlet_tests::Setup;
use martlet_tests::s3::SECRET_KEY;
use martlet_tests::server::{binary, finished, martlet};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Sequence that leaves the alternate screen.
const LEAVE: &str = "\u{1b}[?1049l";

/// Returns the command for one reading of a process.
fn once(address: SocketAddr) -> Command {
    let address = address.to_string();
    let arguments = ["top", "--once", "--interval", "500ms", "--admin-address", &address];
    let mut command = martlet(&arguments);
    command.env("MARTLET_ROOT_SECRET_KEY", SECRET_KEY).stdout(Stdio::piped());
    command
}

/// Returns the standard error of a command that must fail with an exit code.
fn refusal(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test]
async fn one_reading_of_a_server_under_load_is_text() {
    let server = Setup::new().start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    let mut process = once(server.admin_address).spawn().unwrap();
    let begun = Instant::now();
    while process.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "it does not end");
        assert_eq!(client.put("/box/a", vec![7; 4096].into()).await.unwrap().status, 200);
    }
    let output = process.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for words in [
        "READY: server, release ",
        "latency   p50 ≤ ",
        "operation PutObject ",
        "errors 0/s",
        "space ",
        "Warnings: ",
        "Devices: 1\n",
        "Nodes: 1\n",
        "Rings: 2\n",
        "Workers: ",
        "Jobs: 0\n",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains("Workers: 0") && !text.contains(" failed: "), "{text}");
    assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
}

#[tokio::test]
async fn a_reading_without_a_terminal_credential_or_server_is_refused() {
    let mut server = Setup::new().start().await;
    let without_terminal = refusal(&finished(&mut martlet(&["top"])), 2);
    assert!(without_terminal.contains("martlet top --once"), "{without_terminal}");
    let too_often = refusal(&finished(&mut martlet(&["top", "--interval", "100ms"])), 2);
    assert!(too_often.contains("from 500ms to 1m"), "{too_often}");
    let mut wrong = once(server.admin_address);
    let sentence = refusal(&finished(wrong.env("MARTLET_ROOT_SECRET_KEY", "wrong secret")), 1);
    assert!(sentence.contains("the secret is wrong"), "{sentence}");
    server.kill();
    let silent = refusal(&finished(&mut once(server.admin_address)), 1);
    assert!(silent.contains("no server answers at"), "{silent}");
}

/// `martlet top` on a pseudo-terminal of 80×24, with the terminal's modes before and after.
struct Screen {
    process: Child,
    keys: Option<ChildStdin>,
    shown: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    setup: Setup,
}

/// Shell commands of a session: `top` runs between two looks at the terminal's modes.
const SESSION: &str = "stty rows 24 cols 80; stty -a > before; \
    sh -c 'echo $$ > pid; exec \"$MARTLET_BIN\" top --interval 500ms'; \
    echo $? > code; stty -a > after";

impl Screen {
    /// Starts the program. `None` where `script` is missing.
    fn start(address: SocketAddr, secret: &str) -> Option<Self> {
        let setup = Setup::new();
        fs::create_dir_all(setup.data_dir()).unwrap();
        let mut process = Command::new("script")
            .args(["-q", "-e", "-c", SESSION, "/dev/null"])
            .current_dir(setup.data_dir())
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .env("MARTLET_BIN", binary())
            .env("MARTLET_ADMIN_ADDRESS", address.to_string())
            .env("MARTLET_ROOT_SECRET_KEY", secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .inspect_err(|error| println!("SKIPPED: no pseudo-terminal of script: {error}"))
            .ok()?;
        let keys = process.stdin.take();
        let mut output = process.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let kept = shown.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                kept.lock().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Some(Self { process, keys, shown, reader: Some(reader), setup })
    }

    async fn wait_for(&self, words: &str) {
        let begun = Instant::now();
        while !self.shown.lock().contains(words) {
            assert!(begun.elapsed() < PATIENCE, "no {words:?} in {:?}", self.shown.lock());
            sleep(LOOK_EVERY).await;
        }
    }

    fn press(&mut self, keys: &str) {
        let pipe = self.keys.as_mut().unwrap();
        pipe.write_all(keys.as_bytes()).unwrap();
        pipe.flush().unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.setup.data_dir().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap().trim().to_owned()
    }

    /// Waits for the end. Checks the exit code, and that the terminal is as before.
    async fn assert_restored(&mut self, code: &str) {
        let begun = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "it does not end: {:?}", self.shown.lock());
            sleep(LOOK_EVERY).await;
        }
        self.reader.take().unwrap().join().unwrap();
        assert_eq!(self.read("code"), code);
        let (before, after) = (self.read("before"), self.read("after"));
        assert!(before.contains("icanon") && !before.contains("-icanon"), "{before}");
        assert_eq!(before, after);
        let shown = self.shown.lock();
        assert!(shown.contains(LEAVE), "the alternate screen stays: {shown:?}");
        assert!(shown.rfind("\u{1b}[?25h") > shown.rfind("\u{1b}[?25l"), "no cursor: {shown:?}");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn keys_change_the_screen_until_q_restores_the_terminal() {
    let mut server = Setup::new().start().await;
    let Some(mut screen) = Screen::start(server.admin_address, SECRET_KEY) else { return };
    screen.wait_for("[1 Overview]").await;
    screen.wait_for("READY").await;
    screen.press("2");
    screen.wait_for("[2 Devices]").await;
    screen.press("?");
    screen.wait_for("choose a screen").await;
    screen.press("x\t");
    screen.wait_for("[3 Nodes]").await;
    server.kill();
    screen.wait_for("OLD FIGURES").await;
    screen.press("q");
    screen.assert_restored("0").await;
}

#[tokio::test]
async fn a_signal_restores_the_terminal() {
    let server = Setup::new().start().await;
    for signal in [Signal::TERM, Signal::INT] {
        let Some(mut screen) = Screen::start(server.admin_address, SECRET_KEY) else { return };
        screen.wait_for("READY").await;
        let pid = screen.read("pid").parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        screen.assert_restored("0").await;
    }
}

#[tokio::test]
async fn a_refused_credential_restores_the_terminal_and_names_the_remedy() {
    let server = Setup::new().start().await;
    let Some(mut screen) = Screen::start(server.admin_address, "wrong secret") else { return };
    screen.wait_for("martlet: the secret is wrong").await;
    screen.assert_restored("1").await;
}
