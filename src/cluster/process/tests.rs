//! Process control, with a shell in place of a role.

use super::*;
use std::fs;

const PATIENCE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> (tempfile::TempDir, Process) {
    let place = tempfile::tempdir().unwrap();
    let launch = Launch {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("WORD".into(), "hello".into())],
    };
    let process = Process::new("n1", launch, place.path().join("n1/log"));
    (place, process)
}

const LOYAL: &str = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done";

async fn started(script: &str) -> (tempfile::TempDir, Process) {
    let (place, mut process) = shell(script);
    process.start().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !process.last_words().contains("up") {
        assert!(Instant::now() < deadline, "it does not begin: {}", process.last_words());
        sleep(LOOK_EVERY).await;
    }
    (place, process)
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn it_ends_in_good_order_and_starts_again() {
    let (_place, mut process) = started(LOYAL).await;
    let pid = process.pid().unwrap();
    assert_eq!(process.state(), &ProcessState::Running);
    assert!(process.start().unwrap_err().to_string().contains("already running"));
    assert!(process.stop(PATIENCE).await.unwrap(), "it was killed");
    assert_eq!((process.state(), process.pid()), (&ProcessState::Stopped, None));
    assert!(!is_there(pid));
    assert!(process.last_words().contains("bye"), "{}", process.last_words());
    process.start().unwrap();
    assert_ne!(process.pid(), Some(pid));
    process.kill().await.unwrap();
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed() {
    let (_place, mut process) =
        started("trap '' TERM; echo up; while :; do sleep 0.02; done").await;
    let pid = process.pid().unwrap();
    assert!(!process.stop(Duration::from_millis(200)).await.unwrap());
    assert!(!is_there(pid));
}

#[tokio::test]
async fn a_kill_is_at_once_and_a_second_one_is_refused() {
    let (_place, mut process) = started(LOYAL).await;
    let pid = process.pid().unwrap();
    process.kill().await.unwrap();
    assert!(!is_there(pid));
    assert!(!process.last_words().contains("bye"));
    let refusal = process.kill().await.unwrap_err().to_string();
    assert_eq!(refusal, "n1 is not running (stopped)");
}

#[tokio::test]
async fn a_death_is_reported_once_with_the_last_log_lines() {
    let (_place, mut process) = shell("echo \"$WORD\" world; echo so it ends >&2; exit 3");
    process.start().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !process.poll_exit() {
        assert!(Instant::now() < deadline);
        sleep(LOOK_EVERY).await;
    }
    assert!(!process.poll_exit());
    assert_eq!(process.state(), &ProcessState::Died("exit code 3".into()));
    assert_eq!(process.last_words(), "  │ hello world\n  │ so it ends\n");
    // The kernel may have reused the process id, so no signal is sent.
    assert!(
        process.pause().unwrap_err().to_string().contains("is not running (died: exit code 3)")
    );
}

#[tokio::test]
async fn a_paused_process_resumes_by_command_and_can_be_stopped() {
    let (_place, mut process) = started(LOYAL).await;
    let pid = process.pid().unwrap();
    let letter = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim().chars().next().unwrap()
    };
    process.pause().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while letter() != 'T' {
        assert!(Instant::now() < deadline);
        sleep(LOOK_EVERY).await;
    }
    assert_eq!(process.state(), &ProcessState::Paused);
    process.resume().unwrap();
    assert_eq!(process.state(), &ProcessState::Running);
    process.pause().unwrap();
    assert!(process.stop(PATIENCE).await.unwrap(), "what hung was not stopped in good order");
}

#[tokio::test]
async fn settings_of_the_watcher_do_not_reach_it() {
    let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    println!("{} variables here", names.len());
    let (_place, mut process) = shell("env; echo up");
    process.start().unwrap();
    process.wait(PATIENCE).await.unwrap();
    let seen = fs::read_to_string(process.log()).unwrap();
    assert!(seen.contains("WORD=hello"), "{seen}");
    assert!(!seen.contains("MARTLET_"), "{seen}");
}

#[test]
fn a_long_log_is_shown_by_its_end() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    let lines: Vec<String> = (0..5000).map(|line| format!("line {line}")).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    let shown = tail(&path).unwrap();
    assert_eq!(shown.lines().count(), TAIL_LINES);
    assert!(shown.ends_with("line 4999\n"), "{shown}");
}
