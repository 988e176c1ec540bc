//! Parts of a bundle, from processes and from a machine.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use martlet_admin_api::forecast::{Capacity, RingSpread};
use martlet_admin_api::{self as wire, ProcessWorkers, ServerStatus, SettingsReply, WorkerLine};
use martlet_replicator::CensusReport;
use martlet_serving::disclosure::HIDDEN;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::archive::Archive;
use super::directory::{ListedProcess, Replier, processes};
use super::metrics;
use crate::admin::address::AdminAddress;

/// Default bound on the bytes of all parts before compression.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
/// Default bound on the time in which parts are requested.
pub(crate) const TIME_MAX: Duration = Duration::from_mins(2);
/// Processes that are asked at once.
const AT_ONCE: usize = 8;
/// Time for one reply of a process.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const OUT_OF_TIME: &str = "the time of --timeout was over";

/// Progress of a collection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BundleProgress {
    /// Step whose amount is unknown.
    Step(&'static str),
    Processes(AskedProcesses),
}

/// Processes that have been asked, and those of them without a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedProcesses {
    pub(crate) done: u64,
    silent: u64,
    pub(crate) all: u64,
}

impl AskedProcesses {
    fn note(&mut self, parts: &ProcessParts) {
        self.done += 1;
        self.silent += u64::from(parts.settings.is_err());
    }

    pub(crate) fn text(self) -> String {
        let Self { done, silent, all } = self;
        let silent = if silent > 0 { format!(", {silent} without a reply") } else { String::new() };
        format!("{done} of {all} processes asked{silent}")
    }
}

/// Part that a source adds by itself, or the reason for its absence.
pub(crate) struct SourcePart<T> {
    /// Origin of the part.
    pub(crate) source: String,
    /// Contents of the part.
    pub(crate) content: Result<T, String>,
}

/// Source of the parts of a bundle.
pub(crate) trait BundleSource: Sync {
    /// Returns the process whose view of the cluster is used.
    fn replier(&self) -> Replier<'_>;

    /// Sends a GET request to a process, in at most this time.
    ///
    /// # Errors
    /// A sentence: the process doesn't answer in time, or refuses.
    fn request(
        &self,
        address: &AdminAddress,
        path: &str,
        patience: Duration,
    ) -> Result<Vec<u8>, String>;

    /// Returns the findings of doctor on this machine.
    fn doctor(&self) -> SourcePart<Value>;

    /// Returns the last census.
    fn census(&self) -> SourcePart<CensusReport>;

    /// Returns the ends of logs; none if their place is unknown.
    fn logs(&self) -> Vec<SourcePart<Vec<u8>>>;

    /// Notes that the reply of a process is in the archive, or was left out.
    fn added(&self) {}

    /// Shows the progress, if the source has a display.
    fn show(&self, _progress: BundleProgress) {}
}

/// Replies of a process.
struct ProcessParts {
    name: String,
    /// None for a process that can't be reached.
    address: Option<AdminAddress>,
    settings: Result<SettingsReply, String>,
    metrics: Result<String, String>,
}

impl ProcessParts {
    /// Returns the parts of a process that isn't queried, for a reason.
    fn missing(name: String, address: Option<AdminAddress>, reason: &str) -> Self {
        let reason = || reason.to_owned();
        Self { name, address, settings: Err(reason()), metrics: Err(reason()) }
    }

    fn add_to(self, archive: &mut Archive) {
        let Self { name, address, settings, metrics } = self;
        let address = address.map_or("unknown".to_owned(), |address| address.to_string());
        let source = format!("admin address {address}");
        archive.add_json(&format!("processes/{name}/settings.json"), &source, settings);
        let metrics = metrics.map(String::into_bytes);
        archive.add(&format!("processes/{name}/metrics.txt"), &source, metrics);
    }
}

/// Adds all parts that can be had, and the reasons for the others.
pub(crate) fn collect(source: &dyn BundleSource, archive: &mut Archive) {
    Collector { source }.collect(archive);
}

struct Collector<'a> {
    source: &'a dyn BundleSource,
}

impl Collector<'_> {
    fn collect(&self, archive: &mut Archive) {
        self.source.show(BundleProgress::Step("asking for the state of the cluster"));
        let status = self.ask(archive, "status.json", wire::STATUS, |status: &mut ServerStatus| {
            let nodes = status.nodes.iter_mut().filter_map(|node| node.report.as_mut());
            let members = status.members.iter_mut().map(|member| &mut member.report);
            let reports = std::iter::once(&mut status.own).chain(nodes).chain(members);
            reports.for_each(|report| hide_errors(&mut report.workers));
        });
        self.ask(archive, "workers.json", wire::WORKERS, |processes: &mut Vec<ProcessWorkers>| {
            for process in processes {
                hide_errors(&mut process.workers);
            }
        });
        let as_it_is = |_: &mut Capacity| ();
        self.ask(archive, "capacity.json", wire::CAPACITY, as_it_is);
        let as_they_are = |_: &mut Vec<RingSpread>| ();
        self.ask(archive, "rings.json", wire::DISPERSION, as_they_are);
        self.add_processes(archive, status.as_ref());
        self.source.show(BundleProgress::Step("checking this machine"));
        self.add_doctor(archive);
        let SourcePart { source, content } = self.source.census();
        archive.add_json("census.json", &source, content);
        self.add_logs(archive);
    }

    /// Asks the process at the admin address, and adds its reply, decoded and encoded again. `hide`
    /// removes texts that may name data of customers.
    fn ask<T: Serialize + DeserializeOwned>(
        &self,
        archive: &mut Archive,
        name: &str,
        path: &str,
        hide: impl FnOnce(&mut T),
    ) -> Option<T> {
        let reply: Result<T, String> = match archive.left() {
            None => Err(OUT_OF_TIME.to_owned()),
            Some(left) => self.request(self.source.replier().address, path, left.min(PATIENCE)),
        };
        let source = format!("admin address {}", self.source.replier().address);
        match reply {
            Ok(mut reply) => {
                hide(&mut reply);
                archive.add_json(name, &source, Ok(&reply));
                Some(reply)
            }
            Err(error) => {
                archive.add(name, &source, Err(error));
                None
            }
        }
    }

    /// Asks all processes of a status, some at once, and adds the reply of each as it comes. So the replies in
    /// memory are those of [`AT_ONCE`] processes beside the archive, which bounds its parts.
    fn add_processes(&self, archive: &mut Archive, status: Option<&ServerStatus>) {
        let processes = status.map(|status| processes(status, self.source.replier()));
        let end = Instant::now() + archive.left().unwrap_or_default();
        let waiting = VecDeque::from(processes.unwrap_or_default());
        let all = waiting.len() as u64;
        let asked = Mutex::new(AskedProcesses { all, ..AskedProcesses::default() });
        let before = archive.mark();
        let (waiting, adding) = (Mutex::new(waiting), Mutex::new(&mut *archive));
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    loop {
                        let next = waiting.lock().ok().and_then(|mut queue| queue.pop_front());
                        let Some(process) = next else { return };
                        let parts = self.query_process(process, end);
                        if let Ok(mut asked) = asked.lock() {
                            asked.note(&parts);
                            self.source.show(BundleProgress::Processes(*asked));
                        }
                        if let Ok(mut archive) = adding.lock() {
                            parts.add_to(&mut archive);
                            self.source.added();
                        }
                    }
                });
            }
        });
        archive.sort_from(before);
    }

    fn query_process(&self, process: ListedProcess, end: Instant) -> ProcessParts {
        let name = file_name(&process.name);
        let address = match process.address {
            Ok(address) => address,
            Err(reason) => return ProcessParts::missing(name, None, &reason),
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return ProcessParts::missing(name, Some(address), OUT_OF_TIME);
        }
        let patience = left.min(PATIENCE);
        let settings = self.request(&address, wire::SETTINGS, patience);
        let metrics = match &settings {
            // An address that doesn't answer isn't waited for twice.
            Err(error) => Err(error.clone()),
            Ok(_) => self
                .source
                .request(&address, "/metrics", patience)
                .map(|bytes| metrics::filter(&String::from_utf8_lossy(&bytes))),
        };
        ProcessParts { name, address: Some(address), settings, metrics }
    }

    /// Requests a value of a process.
    fn request<T: DeserializeOwned>(
        &self,
        address: &AdminAddress,
        path: &str,
        patience: Duration,
    ) -> Result<T, String> {
        let bytes = self.source.request(address, path, patience)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            format!("{address} does not answer as a Martlet of this version: {error}")
        })
    }

    fn add_doctor(&self, archive: &mut Archive) {
        let SourcePart { source, content } = match archive.left() {
            Some(_) => self.source.doctor(),
            None => SourcePart {
                source: "this machine".to_owned(),
                content: Err(OUT_OF_TIME.to_owned()),
            },
        };
        archive.add_json("doctor.json", &source, content);
    }

    fn add_logs(&self, archive: &mut Archive) {
        let logs = self.source.logs();
        if logs.is_empty() {
            let reason = "processes log to standard error, which the service manager keeps: name a \
                          file with --log, such as the output of journalctl -u martlet";
            archive.add("logs", "--log", Err(reason.to_owned()));
        }
        for (number, SourcePart { source, content }) in logs.into_iter().enumerate() {
            archive.add(&format!("logs/{}.log", number + 1), &source, content);
        }
    }
}

/// Hides the errors of workers, which may name objects.
fn hide_errors(workers: &mut [WorkerLine]) {
    for error in workers.iter_mut().filter_map(|worker| worker.error.as_mut()) {
        HIDDEN.clone_into(error);
    }
}

/// Returns a role and name as the name of a folder.
fn file_name(role: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = role.chars().map(plain).collect();
    if name.is_empty() { "process".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    use martlet_admin_api::{NodeLine, ProcessReport};

    use super::*;

    fn report(role: &str, address: &str) -> ProcessReport {
        ProcessReport { admin_address: address.parse().ok(), ..ProcessReport::of(role) }
    }

    #[test]
    fn each_process_gets_one_request_and_others_a_reason() {
        let node = |role: &str, address: &str| NodeLine {
            report: Some(report(role, address)),
            ..NodeLine::default()
        };
        let status = ServerStatus {
            own: report("proxy p1", "127.0.0.1:9001"),
            nodes: vec![node("storage node n1", "10.0.0.1:6201"), node("storage node n2", "")],
            ..ServerStatus::default()
        };
        let address = "10.0.0.9:9001".parse().unwrap();
        let (begun, added, most) = Default::default();
        let source = LargeReplies { address, begun, added, most };
        let mut archive = Archive::new(BYTES_MAX, Duration::from_mins(1));
        Collector { source: &source }.add_processes(&mut archive, Some(&status));
        let names: Vec<&str> = archive.names().collect();
        let of = |name: &str| {
            ["metrics.txt", "settings.json"].map(|it| format!("processes/{name}/{it}"))
        };
        let expected: Vec<String> =
            ["proxy-p1", "storage-node-n1", "storage-node-n2"].map(of).concat();
        assert_eq!(names, expected);
        assert_eq!((archive.count(), archive.missing()), (4, 2));
        assert_eq!(source.begun.load(SeqCst), 2);
    }

    /// Processes with 4 MiB of metrics each. Counts the replies that were returned, and are in no archive yet.
    struct LargeReplies {
        address: AdminAddress,
        begun: AtomicU64,
        added: AtomicU64,
        most: AtomicU64,
    }

    const LARGE: usize = 4 << 20;
    const PROCESSES: u64 = 64;

    impl BundleSource for LargeReplies {
        fn replier(&self) -> Replier<'_> {
            Replier { address: &self.address, is_here: true }
        }

        fn request(&self, _: &AdminAddress, path: &str, _: Duration) -> Result<Vec<u8>, String> {
            if path == wire::STATUS {
                let node = |at: u64| NodeLine {
                    report: Some(report(
                        &format!("node {at:02}"),
                        &format!("10.0.0.1:{}", 1000 + at),
                    )),
                    ..NodeLine::default()
                };
                let nodes = (1..PROCESSES).map(node).collect();
                let own = report("proxy p1", "127.0.0.1:9001");
                let status = ServerStatus { own, nodes, ..ServerStatus::default() };
                return Ok(serde_json::to_vec(&status).unwrap());
            }
            if path == wire::SETTINGS {
                return Ok(serde_json::to_vec(&SettingsReply::default()).unwrap());
            }
            if path != "/metrics" {
                return Err("not asked for here".to_owned());
            }
            let held = 1 + self.begun.fetch_add(1, SeqCst) - self.added.load(SeqCst);
            self.most.fetch_max(held, SeqCst);
            Ok(format!("martlet_x {}\n", "1".repeat(LARGE)).into_bytes())
        }

        fn doctor(&self) -> SourcePart<Value> {
            SourcePart { source: "none".to_owned(), content: Err("not here".to_owned()) }
        }

        fn census(&self) -> SourcePart<CensusReport> {
            SourcePart { source: "none".to_owned(), content: Err("not here".to_owned()) }
        }

        fn logs(&self) -> Vec<SourcePart<Vec<u8>>> {
            Vec::new()
        }

        fn added(&self) {
            self.added.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn replies_are_added_as_they_come_and_the_bound_counts_meanwhile() {
        let counter = AtomicU64::default;
        let source = LargeReplies {
            address: "127.0.0.1:9001".parse().unwrap(),
            begun: counter(),
            added: counter(),
            most: counter(),
        };
        let mut archive = Archive::new(8 * LARGE as u64, Duration::from_mins(1));
        collect(&source, &mut archive);
        let most = source.most.load(SeqCst);
        assert!(most <= AT_ONCE as u64, "{most} replies were held beside the archive");
        assert_eq!(source.begun.load(SeqCst), PROCESSES);
        let names: Vec<&str> = archive.names().filter(|it| it.starts_with("processes/")).collect();
        assert!(names.is_sorted() && names.len() == 2 * 64, "{names:?}");
        let left_out = archive.missing();
        assert!(left_out >= 64 - 8, "{left_out} parts exceed the bound");
        assert!(archive.count() >= 64, "all settings are there");
    }

    #[test]
    fn processes_without_a_reply_are_counted_among_those_asked() {
        let mut asked = AskedProcesses { all: 3, ..AskedProcesses::default() };
        assert_eq!(asked.text(), "0 of 3 processes asked");
        let parts = |settings| ProcessParts {
            name: "n".into(),
            address: "10.0.0.9:9001".parse().ok(),
            settings,
            metrics: Err(String::new()),
        };
        asked.note(&parts(Ok(SettingsReply::default())));
        asked.note(&parts(Err("silent".into())));
        assert_eq!(asked.text(), "2 of 3 processes asked, 1 without a reply");
    }
}
