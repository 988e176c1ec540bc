//! `martlet cluster up`: starts all processes, then handles signals, deaths and commands.

use std::path::Path;
use std::time::Duration;

use martlet_admin_api::control::{ControlReply, ControlRequest};
use martlet_notifications::EventSettings;
use martlet_serving::{Failure, Signals};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::args::UpArgs;
use super::control::{self, Control};
use super::folder::ClusterFolder;
use super::ports::Ports;
use super::supervisor::Supervisor;
use super::{join, print, survey};
use crate::process::master_keys;

/// Window in which a further signal counts as a repetition of the first.
const SAME_SIGNAL: Duration = Duration::from_millis(700);

/// Starts a cluster and supervises it until a signal stops it.
pub(super) fn run(args: &UpArgs) -> Result<(), Failure> {
    let shape = args.shape()?;
    EventSettings::of_environment()?;
    let dir = &args.place.data_dir;
    if control::is_watched(dir) {
        return Err(Failure::refused(format!(
            "a cluster runs in {dir} already: see `martlet cluster status --data-dir {dir}`",
            dir = dir.display()
        )));
    }
    let mut ports = Ports::default();
    let folder = ClusterFolder::open(dir, shape.clone(), &mut ports)?;
    if folder.layout.policies != shape.policies && !shape.policies.is_empty() {
        println!(
            "{} keeps its storage policies: add others with `martlet ring` and `martlet admin ring \
             push`",
            dir.display()
        );
    }
    if folder.layout.nodes.len() != shape.nodes && !folder.is_new {
        println!("{} keeps its {} nodes", dir.display(), folder.layout.nodes.len());
    }
    if shape.data_ports && !folder.layout.data_ports {
        println!(
            "{} keeps its nodes without data ports: set data_address in n1/storage-node.toml and so \
             on",
            dir.display()
        );
    }
    // A single thread: the kernel binds children to the thread that starts them.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::refused(format!("the async runtime could not be started: {error}"))
        })?;
    runtime.block_on(watch(folder, ports))
}

async fn watch(folder: ClusterFolder, ports: Ports) -> Result<(), Failure> {
    let untaken = |error| Failure::refused(format!("signal handlers can't be installed: {error}"));
    let mut signals = Signals::take().map_err(untaken)?;
    let mut control = Control::listen(folder.path())?;
    let mut supervisor = Supervisor::new(folder);
    let started = tokio::select! {
        started = supervisor.start_all(ports) => started,
        _ = signals.next() => Err(Failure::refused("stopped before all processes were ready")),
    };
    let outcome = match started {
        Ok(()) => {
            print_welcome(&supervisor).await;
            supervise(&mut supervisor, &mut control, &mut signals).await
        }
        Err(failure) => Err(failure),
    };
    drop(control);
    let unruly = tokio::select! {
        unruly = supervisor.stop_all() => unruly,
        () = insistence(&mut signals) => {
            eprintln!("martlet: killing the remaining processes");
            vec!["the remaining processes".to_owned()]
        }
    };
    supervisor.kill_all().await;
    if outcome.is_ok() && !unruly.is_empty() {
        let sentence = format!("{} did not stop cleanly: see the logs", unruly.join(", "));
        return Err(Failure::refused(sentence));
    }
    outcome
}

/// Waits for a second signal. Signals within 700 ms count as the first: a shell or `timeout` may
/// signal both the process and its group.
async fn insistence(signals: &mut Signals) {
    let begun = Instant::now();
    loop {
        signals.next().await;
        if begun.elapsed() > SAME_SIGNAL {
            return;
        }
    }
}

/// Prints endpoints, credentials and commands.
async fn print_welcome(supervisor: &Supervisor) {
    let status = survey::status(supervisor).await;
    let folder = &supervisor.folder;
    println!("{}", print::endpoints(&status));
    let first = supervisor.watched.iter().find_map(|watched| {
        let is_proxy = watched.member.role == martlet_admin_api::control::ProcessRole::Proxy;
        watched.member.address.filter(|_| is_proxy)
    });
    match first {
        Some(address) if folder.is_new => {
            let endpoint = format!("http://{address}");
            println!("{}", folder.credentials.introduction(&endpoint, &folder.credentials_path()));
        }
        _ => println!("{}", print::how_to(&status, &folder.credentials_path())),
    }
    for file in [master_keys::FILE, master_keys::SSE_FILE] {
        println!("{}", master_keys::reminder(&folder.path().join(file)));
    }
    println!("{}", print::commands(&status));
}

/// Handles commands and reports deaths until a signal arrives.
async fn supervise(
    supervisor: &mut Supervisor,
    control: &mut Control,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let untaken = |error| Failure::refused(format!("signal handlers can't be installed: {error}"));
    let mut deaths = signal(SignalKind::child()).map_err(untaken)?;
    loop {
        for sentence in supervisor.poll_exits() {
            eprint!("martlet: {sentence}");
        }
        tokio::select! {
            signal = signals.next() => {
                println!("{signal}: stopping, proxies first");
                return Ok(());
            }
            _ = deaths.recv() => {}
            (request, reply) = control.next() => {
                let answer = tokio::select! {
                    answer = answer(supervisor, request) => answer,
                    signal = signals.next() => {
                        println!("{signal}: stopping, proxies first");
                        return Ok(());
                    }
                };
                // The client may have disconnected.
                let _ = reply.send(answer);
            }
        }
    }
}

async fn answer(supervisor: &mut Supervisor, request: ControlRequest) -> ControlReply {
    let done = match request {
        ControlRequest::Status => return ControlReply::Status(survey::status(supervisor).await),
        ControlRequest::Kill { which } => supervisor.kill(&which).await,
        ControlRequest::Start { which } => supervisor.start(&which).await,
        ControlRequest::Stop { which } => supervisor.stop(&which).await,
        ControlRequest::Pause { which } => supervisor.pause(&which),
        ControlRequest::Resume { which } => supervisor.resume(&which),
        ControlRequest::AddNode { zone } => join::add_node(supervisor, zone).await,
    };
    match done {
        Ok(lines) => {
            for sentence in &lines {
                println!("{sentence}");
            }
            ControlReply::Done(lines)
        }
        Err(failure) => ControlReply::Refused(failure.to_string()),
    }
}

/// Sends a request to a running cluster and prints its answer.
pub(super) fn run_command(dir: &Path, request: &ControlRequest, json: bool) -> Result<(), Failure> {
    match control::send_command(dir, request)? {
        ControlReply::Status(status) if json => {
            println!("{}", serde_json::to_string(&status).expect("plain data can be encoded"));
        }
        ControlReply::Status(status) => print!("{}", print::status(&status)),
        ControlReply::Done(lines) => {
            for sentence in lines {
                println!("{sentence}");
            }
        }
        ControlReply::Refused(sentence) => return Err(Failure::refused(sentence)),
    }
    Ok(())
}
