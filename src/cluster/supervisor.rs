//! The processes of a cluster, and what is done with them.
//!
//! * They start from the bottom up, nodes before replicators before proxies, and stop the other way:
//!   clients are sent away before the bytes go.
//! * What dies is told and stays dead until somebody says `start`: a cluster for trying things out
//!   shows what a failure does.
//! * A command that names a node means all its processes, as a machine that fails.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::folder::ClusterFolder;
use super::layout::{Member, Role};
use super::ports::{Ports, check_free};
use super::probe::{self, Readiness};
use super::process::Process;
use super::wire::{State, Which};
use crate::failure::Failure;

/// How long a process may take to be ready; machines that do other things too are slow.
const READY: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a process may take to stop: a little longer than requests under way may.
const STOP: Duration = Duration::from_secs(45);

/// A member, and its process.
pub(super) struct Watched {
    pub(super) member: Member,
    pub(super) process: Process,
}

/// All processes of a cluster.
pub(super) struct Supervisor {
    pub(super) folder: ClusterFolder,
    pub(super) watched: Vec<Watched>,
}

impl Supervisor {
    /// The processes of a folder; none is started yet.
    pub(super) fn new(folder: ClusterFolder) -> Self {
        let mut supervisor = Self { watched: Vec::new(), folder };
        for member in supervisor.folder.layout.members() {
            supervisor.watch(member);
        }
        supervisor
    }

    /// Takes in a member that isn't started yet.
    pub(super) fn watch(&mut self, member: Member) {
        let launch = self.folder.launch(&member);
        let process = Process::new(&member.name, launch, self.folder.log(&member));
        self.watched.push(Watched { member, process });
        self.watched.sort_by_key(|watched| watched.member.role);
    }

    /// Starts all of them, and waits until all are ready.
    pub(super) async fn start_all(&mut self, ports: Ports) -> Result<(), Failure> {
        drop(ports);
        for watched in &self.watched {
            check_free(&watched.member)?;
        }
        for role in [Role::StorageNode, Role::Replicator, Role::Proxy] {
            let chosen = self.positions(|watched| watched.member.role == role);
            for at in &chosen {
                self.watched[*at].process.start()?;
            }
            // Proxies and replicators ask the nodes.
            if role != Role::Replicator {
                self.wait_ready(&chosen).await?;
            }
        }
        let all = self.positions(|_| true);
        self.wait_ready(&all).await
    }

    fn positions(&self, wanted: impl Fn(&Watched) -> bool) -> Vec<usize> {
        let chosen = self.watched.iter().enumerate().filter(|(_, watched)| wanted(watched));
        chosen.map(|(at, _)| at).collect()
    }

    /// Waits until these are ready, or one of them has died.
    async fn wait_ready(&mut self, chosen: &[usize]) -> Result<(), Failure> {
        let deadline = Instant::now() + READY;
        for at in chosen {
            loop {
                let watched = &mut self.watched[*at];
                let Member { name, admin_address, .. } = &watched.member;
                watched.process.look();
                if let State::Died(how) = watched.process.state() {
                    return Err(Failure::refused(format!(
                        "{name} ended instead of becoming ready ({how}); the end of {}:\n{}",
                        watched.process.log().display(),
                        watched.process.last_words()
                    )));
                }
                let Readiness { ready, reason } = probe::readiness(*admin_address).await;
                if ready {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(Failure::refused(format!(
                        "{name} does not become ready ({reason}); the end of {}:\n{}",
                        watched.process.log().display(),
                        watched.process.last_words()
                    )));
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    /// Notices who has died since the last look; a sentence for each.
    pub(super) fn look(&mut self) -> Vec<String> {
        let dead = self.watched.iter_mut().filter_map(|watched| {
            let pid = watched.process.pid()?;
            watched.process.look().then_some((pid, watched))
        });
        dead.map(|(pid, Watched { member, process })| {
            let name = &member.name;
            format!(
                "{name} (process {pid}) {}; `martlet cluster start {name}` starts it again, and {} \
                 may say why:\n{}",
                process.state(),
                process.log().display(),
                process.last_words()
            )
        })
        .collect()
    }

    fn named(&self, which: &Which) -> Result<Vec<usize>, Failure> {
        let chosen = match which {
            Which::Node(number) => {
                let node = Some(format!("n{number}"));
                self.positions(|watched| watched.member.node == node)
            }
            Which::Process(name) => self.positions(|watched| watched.member.name == *name),
        };
        if chosen.is_empty() {
            let names: Vec<&str> = self.watched.iter().map(|it| it.member.name.as_str()).collect();
            let sentence = format!("there is no {which}; there are: {}", names.join(", "));
            return Err(Failure::refused(sentence));
        }
        Ok(chosen)
    }

    /// Those named that run, which there must be.
    fn running(&self, which: &Which) -> Result<Vec<usize>, Failure> {
        let mut chosen = self.named(which)?;
        let states: Vec<String> = chosen.iter().map(|at| self.told(*at)).collect();
        chosen.retain(|at| self.watched[*at].process.pid().is_some());
        if chosen.is_empty() {
            let sentence = format!("nothing of {which} runs: {}", states.join(", "));
            return Err(Failure::refused(sentence));
        }
        Ok(chosen)
    }

    fn told(&self, at: usize) -> String {
        let Watched { member, process } = &self.watched[at];
        match process.pid() {
            Some(pid) => format!("{} (process {pid}) is {}", member.name, process.state()),
            None => format!("{} is {}", member.name, process.state()),
        }
    }

    /// Kills what is named.
    pub(super) async fn kill(&mut self, which: &Which) -> Result<Vec<String>, Failure> {
        let mut said = Vec::new();
        for at in self.running(which)? {
            let Watched { member, process } = &mut self.watched[at];
            let pid = process.pid().unwrap_or_default();
            process.kill().await?;
            said.push(format!("{} (process {pid}) was killed", member.name));
        }
        Ok(said)
    }

    /// Starts what is named and doesn't run, and waits until it is ready.
    pub(super) async fn start(&mut self, which: &Which) -> Result<Vec<String>, Failure> {
        let mut chosen = self.named(which)?;
        let states: Vec<String> = chosen.iter().map(|at| self.told(*at)).collect();
        chosen.retain(|at| self.watched[*at].process.pid().is_none());
        if chosen.is_empty() {
            return Err(Failure::refused(states.join(", ") + " already"));
        }
        for at in &chosen {
            check_free(&self.watched[*at].member)?;
            self.watched[*at].process.start()?;
        }
        self.wait_ready(&chosen).await?;
        Ok(chosen.iter().map(|at| self.told(*at) + " and ready").collect())
    }

    /// Stops what is named, in good order.
    pub(super) async fn stop(&mut self, which: &Which) -> Result<Vec<String>, Failure> {
        let mut chosen = self.running(which)?;
        chosen.reverse();
        let mut said = Vec::new();
        for at in chosen {
            let Watched { member, process } = &mut self.watched[at];
            let in_order = process.stop(STOP).await?;
            let how = if in_order { "stopped" } else { "did not stop in good order; see its log" };
            said.push(format!("{} {how}", member.name));
        }
        Ok(said)
    }

    /// Lets what is named hang.
    pub(super) fn pause(&mut self, which: &Which) -> Result<Vec<String>, Failure> {
        self.each(which, Process::pause)
    }

    /// Lets what is named go on.
    pub(super) fn resume(&mut self, which: &Which) -> Result<Vec<String>, Failure> {
        self.each(which, Process::resume)
    }

    fn each(
        &mut self,
        which: &Which,
        act: impl Fn(&mut Process) -> Result<(), Failure>,
    ) -> Result<Vec<String>, Failure> {
        let chosen = self.running(which)?;
        for at in &chosen {
            act(&mut self.watched[*at].process)?;
        }
        Ok(chosen.iter().map(|at| self.told(*at)).collect())
    }

    /// Stops everything, role by role: proxies, replicators, nodes. Who did not stop in good order.
    pub(super) async fn stop_all(&mut self) -> Vec<String> {
        let mut unruly = Vec::new();
        for role in [Role::Proxy, Role::Replicator, Role::StorageNode] {
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

    /// Kills everything that runs.
    pub(super) async fn kill_all(&mut self) {
        let running = self.watched.iter_mut().filter(|watched| watched.process.pid().is_some());
        let kills = running.map(|watched| watched.process.kill());
        futures::future::join_all(kills).await;
    }
}

#[cfg(test)]
mod tests;
