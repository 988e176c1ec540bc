//! Supervision, with shells in place of roles and a small server for their admin addresses.

use std::collections::HashSet;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::folder::tests::open;
use super::super::process::Launch;
use super::*;

/// Shell script that ends at SIGTERM and appends its name to the file `ended`.
const LOYAL: &str = "trap 'echo $0 >> ended; exit 0' TERM; while :; do sleep 0.02; done";

/// Cluster whose processes are shells that run `script` with their name as `$0`.
fn stand_in(script: &str) -> (tempfile::TempDir, Supervisor) {
    let place = tempfile::tempdir().unwrap();
    let mut supervisor = Supervisor::new(open(place.path()).unwrap());
    // Shells don't listen.
    supervisor.is_listener = |_, _| true;
    let script = format!("cd {}; {script}", place.path().display());
    for SupervisedProcess { member, process } in &mut supervisor.watched {
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.clone(), member.name.clone()],
            environment: Vec::new(),
        };
        *process = Process::new(&member.name, launch, place.path().join(&member.name).join("log"));
    }
    (place, supervisor)
}

/// Answers 200 at every admin address until it is dropped. The shells themselves don't listen.
async fn answer_for(supervisor: &Supervisor) -> tokio::task::JoinSet<()> {
    let mut answering = tokio::task::JoinSet::new();
    for watched in &supervisor.watched {
        let listener = TcpListener::bind(watched.member.admin_address).await.unwrap();
        answering.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(reply).await;
            }
        });
    }
    answering
}

/// Starts the processes without checking their ports, which the answering server holds.
fn start_each(supervisor: &mut Supervisor) {
    for watched in &mut supervisor.watched {
        watched.process.start().unwrap();
    }
}

fn pids(supervisor: &Supervisor) -> Vec<u32> {
    supervisor.watched.iter().filter_map(|watched| watched.process.pid()).collect()
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn proxies_stop_first_and_nodes_last_and_nothing_stays() {
    let (place, mut supervisor) = stand_in(LOYAL);
    start_each(&mut supervisor);
    let pids = pids(&supervisor);
    assert_eq!(pids.len(), 10);
    // A shell that receives SIGTERM before it has set its trap would not record its end.
    sleep(Duration::from_millis(300)).await;
    assert_eq!(supervisor.stop_all().await, Vec::<String>::new());
    assert!(pids.iter().all(|pid| !is_there(*pid)));
    let ended = std::fs::read_to_string(place.path().join("ended")).unwrap();
    let kinds: Vec<char> = ended.lines().map(|name| name.chars().next().unwrap()).collect();
    assert_eq!(kinds, "pprrrrnnnn".chars().collect::<Vec<_>>(), "{ended}");
}

#[tokio::test]
async fn a_number_names_a_node_and_a_name_a_process() {
    let (_place, mut supervisor) = stand_in(LOYAL);
    start_each(&mut supervisor);
    let lines = supervisor.kill(&TargetSelector::Node(2)).await.unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("n2 (process ") && lines[1].starts_with("r2 (process "),
        "{lines:?}"
    );
    let refusal = supervisor.kill(&TargetSelector::Node(2)).await.unwrap_err().to_string();
    assert_eq!(refusal, "no process of node 2 is running: n2 is stopped, r2 is stopped");
    let lines = supervisor.pause(&TargetSelector::Process("p1".into())).unwrap();
    assert!(lines.len() == 1 && lines[0].ends_with("is paused"), "{lines:?}");
    let refusal =
        supervisor.kill(&TargetSelector::Process("x9".into())).await.unwrap_err().to_string();
    assert!(refusal.starts_with("there is no x9; there are: n1, n2"), "{refusal}");
    assert!(supervisor.kill(&TargetSelector::Node(9)).await.is_err());
    assert_eq!(supervisor.poll_exits(), Vec::<String>::new(), "what was told to end is no news");
    supervisor.kill_all().await;
    assert!(pids(&supervisor).is_empty());
}

#[tokio::test]
async fn a_dead_process_is_reported_and_restarts_by_command() {
    let (_place, mut supervisor) = stand_in("echo alas; exit 7");
    let at = supervisor.positions(|watched| watched.member.name == "r3")[0];
    supervisor.watched[at].process.start().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let text = loop {
        let text = supervisor.poll_exits();
        if !text.is_empty() {
            break text.concat();
        }
        assert!(Instant::now() < deadline);
        sleep(LOOK_EVERY).await;
    };
    for words in ["r3 (process ", "died: exit code 7", "martlet cluster start r3", "│ alas"] {
        assert!(text.contains(words), "{text}");
    }
    // A process that dies before it is ready fails the start.
    let refusal =
        supervisor.start(&TargetSelector::Process("r3".into())).await.unwrap_err().to_string();
    assert!(refusal.contains("exited before it was ready"), "{refusal}");
    assert!(refusal.contains("│ alas"), "{refusal}");
}

#[tokio::test]
async fn a_start_waits_for_all_and_a_second_one_is_refused() {
    let (_place, mut supervisor) = stand_in(LOYAL);
    start_each(&mut supervisor);
    let answering = answer_for(&supervisor).await;
    let all = supervisor.positions(|_| true);
    supervisor.wait_ready(&all).await.unwrap();
    assert_eq!(pids(&supervisor).into_iter().collect::<HashSet<_>>().len(), 10);
    let refusal = supervisor.start(&TargetSelector::Node(1)).await.unwrap_err().to_string();
    assert!(refusal.contains("n1 (process ") && refusal.ends_with("already"), "{refusal}");
    // Another process holds the port of a process that is down.
    supervisor.kill(&TargetSelector::Process("p2".into())).await.unwrap();
    let refusal =
        supervisor.start(&TargetSelector::Process("p2".into())).await.unwrap_err().to_string();
    assert!(refusal.contains("p2 had the address"), "{refusal}");
    drop(answering);
    supervisor.kill_all().await;
}

/// A foreign process that took the admin port while nodes started answers as ready.
#[tokio::test]
async fn the_reply_of_another_process_does_not_make_one_ready() {
    let (_place, mut supervisor) = stand_in("sleep 0.5; echo in use; exit 3");
    supervisor.is_listener = martlet_doctor::is_listener;
    let answering = answer_for(&supervisor).await;
    let proxy = supervisor.positions(|watched| watched.member.name == "p1");
    supervisor.watched[proxy[0]].process.start().unwrap();
    let refusal = supervisor.wait_ready(&proxy).await.unwrap_err().to_string();
    let address = supervisor.watched[proxy[0]].member.admin_address;
    for words in ["p1 exited before it was ready (exit code 3)", "│ in use"] {
        assert!(refusal.contains(words), "{refusal}");
    }
    assert!(refusal.contains(&format!("another process listens at {address}")), "{refusal}");
    drop(answering);
    supervisor.kill_all().await;
}
