//! Supervision of all processes of a cluster.
//!
//! * Processes start in the order nodes, replicators, proxies and stop in the reverse order:
//!   clients are refused before bytes become unavailable.
//! * A process that dies is reported and stays down until `start`, so that a trial shows the
//!   effects of a failure.
//! * A command that names a node applies to all its processes, like a failing machine.

use std::net::SocketAddr;
use std::time::Duration;

use martlet_admin_api::control::{ProcessRole, ProcessState, TargetSelector};
use martlet_serving::Failure;
use tokio::time::{Instant, sleep};

use super::folder::ClusterFolder;
use super::layout::ClusterProcess;
use super::ports::{Ports, check_free, held_address};
use super::probe::{self, Readiness};
use super::process::Process;

/// Timeout for a process to become ready, ample for busy machines.
const READY: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Timeout for a process to stop, slightly longer than its limit for running requests.
const STOP: Duration = Duration::from_secs(45);

/// Member and its process.
pub(super) struct SupervisedProcess {
    pub(super) member: ClusterProcess,
    pub(super) process: Process,
}

/// All processes of a cluster.
pub(super) struct Supervisor {
    pub(super) folder: ClusterFolder,
    pub(super) watched: Vec<SupervisedProcess>,
    /// Returns false if a process, by its id, doesn't listen on an address.
    is_listener: fn(u32, SocketAddr) -> bool,
}

impl Supervisor {
    /// Makes the processes of a folder, without starting them.
    pub(super) fn new(folder: ClusterFolder) -> Self {
        let mut supervisor =
            Self { watched: Vec::new(), folder, is_listener: martlet_doctor::is_listener };
        for member in supervisor.folder.layout.members() {
            supervisor.watch(member);
        }
        supervisor
    }

    /// Adds a member, without starting it.
    pub(super) fn watch(&mut self, member: ClusterProcess) {
        let launch = self.folder.launch(&member);
        let process = Process::new(&member.name, launch, self.folder.log(&member));
        self.watched.push(SupervisedProcess { member, process });
        self.watched.sort_by_key(|watched| watched.member.role);
    }

    /// Starts all processes, and waits until all are ready.
    pub(super) async fn start_all(&mut self, ports: Ports) -> Result<(), Failure> {
        drop(ports);
        for watched in &self.watched {
            check_free(&watched.member.name, watched.member.addresses())?;
        }
        for role in [ProcessRole::StorageNode, ProcessRole::Replicator, ProcessRole::Proxy] {
            let chosen = self.positions(|watched| watched.member.role == role);
            for at in &chosen {
                let SupervisedProcess { member, process } = &mut self.watched[*at];
                check_free(&member.name, member.addresses())?;
                process.start()?;
            }
            // Proxies and replicators need ready nodes.
            if role != ProcessRole::Replicator {
                self.wait_ready(&chosen).await?;
            }
        }
        let all = self.positions(|_| true);
        self.wait_ready(&all).await
    }

    fn positions(&self, wanted: impl Fn(&SupervisedProcess) -> bool) -> Vec<usize> {
        let chosen = self.watched.iter().enumerate().filter(|(_, watched)| wanted(watched));
        chosen.map(|(at, _)| at).collect()
    }

    /// Waits until these processes are ready. The death of one is an error, and so is the timeout
    /// [`READY`]. A reply from its admin address counts if the process itself listens there.
    async fn wait_ready(&mut self, chosen: &[usize]) -> Result<(), Failure> {
        let (deadline, is_listener) = (Instant::now() + READY, self.is_listener);
        for at in chosen {
            loop {
                let watched = &mut self.watched[*at];
                let ClusterProcess { name, admin_address, .. } = &watched.member;
                watched.process.poll_exit();
                if let ProcessState::Died(how) = watched.process.state() {
                    let held = held_address(watched.member.addresses());
                    let held = held.map_or_else(String::new, |address| {
                        format!(": another process listens at {address}; stop it and start again")
                    });
                    return Err(Failure::refused(format!(
                        "{name} exited before it was ready ({how}){held}; end of {}:\n{}",
                        watched.process.log().display(),
                        watched.process.last_words()
                    )));
                }
                let Readiness { ready, mut reason } = probe::readiness(*admin_address).await;
                if ready {
                    let pid = watched.process.pid();
                    if pid.is_some_and(|pid| is_listener(pid, *admin_address)) {
                        break;
                    }
                    reason = format!("another process answers at {admin_address}");
                }
                if Instant::now() > deadline {
                    return Err(Failure::refused(format!(
                        "{name} is not ready in time ({reason}); end of {}:\n{}",
                        watched.process.log().display(),
                        watched.process.last_words()
                    )));
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    /// Detects processes that died since the last call. Returns a sentence for each.
    pub(super) fn poll_exits(&mut self) -> Vec<String> {
        let dead = self.watched.iter_mut().filter_map(|watched| {
            let pid = watched.process.pid()?;
            watched.process.poll_exit().then_some((pid, watched))
        });
        dead.map(|(pid, SupervisedProcess { member, process })| {
            let name = &member.name;
            format!(
                "{name} (process {pid}) {}; restart it with `martlet cluster start {name}`; end of \
                 {}:\n{}",
                process.state(),
                process.log().display(),
                process.last_words()
            )
        })
        .collect()
    }

    fn named(&self, which: &TargetSelector) -> Result<Vec<usize>, Failure> {
        let chosen = match which {
            TargetSelector::Node(number) => {
                let node = Some(format!("n{number}"));
                self.positions(|watched| watched.member.node == node)
            }
            TargetSelector::Process(name) => self.positions(|watched| watched.member.name == *name),
        };
        if chosen.is_empty() {
            let names: Vec<&str> = self.watched.iter().map(|it| it.member.name.as_str()).collect();
            let sentence = format!("there is no {which}; there are: {}", names.join(", "));
            return Err(Failure::refused(sentence));
        }
        Ok(chosen)
    }

    /// Returns the named processes that run. It is an error if none of them runs.
    fn running(&self, which: &TargetSelector) -> Result<Vec<usize>, Failure> {
        let mut chosen = self.named(which)?;
        let states: Vec<String> = chosen.iter().map(|at| self.describe(*at)).collect();
        chosen.retain(|at| self.watched[*at].process.pid().is_some());
        if chosen.is_empty() {
            let sentence = format!("no process of {which} is running: {}", states.join(", "));
            return Err(Failure::refused(sentence));
        }
        Ok(chosen)
    }

    fn describe(&self, at: usize) -> String {
        let SupervisedProcess { member, process } = &self.watched[at];
        match process.pid() {
            Some(pid) => format!("{} (process {pid}) is {}", member.name, process.state()),
            None => format!("{} is {}", member.name, process.state()),
        }
    }

    /// Kills the named processes.
    pub(super) async fn kill(&mut self, which: &TargetSelector) -> Result<Vec<String>, Failure> {
        let mut lines = Vec::new();
        for at in self.running(which)? {
            let SupervisedProcess { member, process } = &mut self.watched[at];
            let pid = process.pid().unwrap_or_default();
            process.kill().await?;
            lines.push(format!("{} (process {pid}) was killed", member.name));
        }
        Ok(lines)
    }

    /// Starts the named processes that don't run, and waits until they are ready.
    pub(super) async fn start(&mut self, which: &TargetSelector) -> Result<Vec<String>, Failure> {
        let mut chosen = self.named(which)?;
        let states: Vec<String> = chosen.iter().map(|at| self.describe(*at)).collect();
        chosen.retain(|at| self.watched[*at].process.pid().is_none());
        if chosen.is_empty() {
            return Err(Failure::refused(states.join(", ") + " already"));
        }
        for at in &chosen {
            let member = &self.watched[*at].member;
            check_free(&member.name, member.addresses())?;
            self.watched[*at].process.start()?;
        }
        self.wait_ready(&chosen).await?;
        Ok(chosen.iter().map(|at| self.describe(*at) + " and ready").collect())
    }

    /// Stops the named processes in good order.
    pub(super) async fn stop(&mut self, which: &TargetSelector) -> Result<Vec<String>, Failure> {
        let mut chosen = self.running(which)?;
        chosen.reverse();
        let mut lines = Vec::new();
        for at in chosen {
            let SupervisedProcess { member, process } = &mut self.watched[at];
            let in_order = process.stop(STOP).await?;
            let how = if in_order { "stopped" } else { "did not stop cleanly; see its log" };
            lines.push(format!("{} {how}", member.name));
        }
        Ok(lines)
    }

    /// Suspends the named processes.
    pub(super) fn pause(&mut self, which: &TargetSelector) -> Result<Vec<String>, Failure> {
        self.each(which, Process::pause)
    }

    /// Continues the named processes.
    pub(super) fn resume(&mut self, which: &TargetSelector) -> Result<Vec<String>, Failure> {
        self.each(which, Process::resume)
    }

    fn each(
        &mut self,
        which: &TargetSelector,
        act: impl Fn(&mut Process) -> Result<(), Failure>,
    ) -> Result<Vec<String>, Failure> {
        let chosen = self.running(which)?;
        for at in &chosen {
            act(&mut self.watched[*at].process)?;
        }
        Ok(chosen.iter().map(|at| self.describe(*at)).collect())
    }

    /// Stops all processes by role: proxies, replicators, nodes. Returns the names of processes
    /// that did not stop in good order.
    pub(super) async fn stop_all(&mut self) -> Vec<String> {
        let mut unruly = Vec::new();
        for role in [ProcessRole::Proxy, ProcessRole::Replicator, ProcessRole::StorageNode] {
            let running = self
                .watched
                .iter_mut()
                .filter(|watched| watched.member.role == role && watched.process.pid().is_some());
            let stops = running.map(|watched| async {
                let in_order = watched.process.stop(STOP).await;
                (!matches!(in_order, Ok(true))).then(|| watched.member.name.clone())
            });
            unruly.extend(futures::future::join_all(stops).await.into_iter().flatten());
        }
        unruly
    }

    /// Kills all running processes.
    pub(super) async fn kill_all(&mut self) {
        let running = self.watched.iter_mut().filter(|watched| watched.process.pid().is_some());
        let kills = running.map(|watched| watched.process.kill());
        futures::future::join_all(kills).await;
    }
}

#[cfg(test)]
mod tests;
