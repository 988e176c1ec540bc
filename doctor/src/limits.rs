//! Limits of the process and of its control group: files, threads, mappings, memory, processors.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::filesystem::size;
use crate::finding::Finding;
use crate::target::Target;

/// Files that each device's index keeps open at least; half of all files are left to the rest.
const FILES_PER_DEVICE: u64 = 128;
/// Files of a process without clients and devices.
const FILES_MIN: u64 = 1024;
/// Threads of a process: runtime, blocking calls, and those of each device.
const THREADS_MIN: u64 = 128;
const THREADS_PER_DEVICE: u64 = 32;
/// Mappings of a process with large caches. The kernel's default is 65,530.
const MAPPINGS_MIN: u64 = 65_530;
/// Share of a memory limit, in percent, beyond which the setting leaves too little for the rest.
const MEMORY_PERCENT_MAX: u64 = 75;
const NO_LIMIT: u64 = u64::MAX;

/// Observed limits; [`NO_LIMIT`] where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitFacts {
    /// Most open files that the process can have: it raises its limit to this one.
    pub(crate) files: u64,
    pub(crate) threads: u64,
    pub(crate) locked_bytes: u64,
    pub(crate) mappings: Option<u64>,
    /// Limit of memory of the control group.
    pub(crate) group_memory: Option<u64>,
    /// Processors that the control group grants, in thousandths.
    pub(crate) group_milli_processors: Option<u64>,
    /// Mode of transparent huge pages: `always`, `madvise` or `never`.
    pub(crate) huge_pages: Option<String>,
}

impl LimitFacts {
    fn observe() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let hard = |resource| getrlimit(resource).maximum.unwrap_or(NO_LIMIT);
        let groups = read("/proc/self/cgroup").unwrap_or_default();
        let group_file = |name: &str| group_values(Path::new("/sys/fs/cgroup"), &groups, name);
        let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            files: hard(Resource::Nofile),
            threads: hard(Resource::Nproc),
            locked_bytes: hard(Resource::Memlock),
            mappings: read("/proc/sys/vm/max_map_count").and_then(|text| text.trim().parse().ok()),
            group_memory: group_file("memory.max").iter().filter_map(|it| it.parse().ok()).min(),
            group_milli_processors: group_file("cpu.max").iter().filter_map(|it| quota(it)).min(),
            huge_pages: huge.and_then(|text| chosen(&text)),
        }
    }
}

/// Returns the contents of a file of the process's control group and of all groups around it, by
/// the text of `/proc/self/cgroup`.
fn group_values(root: &Path, groups: &str, name: &str) -> Vec<String> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let around = Path::new(group).ancestors().map(|group| root.join(group).join(name));
    around.filter_map(|path| fs::read_to_string(path).ok()).map(|it| it.trim().to_owned()).collect()
}

/// Parses `cpu.max`, such as `150000 100000` for one and a half processors.
fn quota(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    quota.saturating_mul(1000).checked_div(period)
}

/// Returns the chosen word of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, after) = text.split_once('[')?;
    Some(after.split_once(']')?.0.to_owned())
}

/// Examines the limits of this process, which are those of the server if the server's user or unit
/// runs the command.
pub(crate) fn examine(target: &Target) -> Vec<Finding> {
    judge(&LimitFacts::observe(), target)
}

fn judge(facts: &LimitFacts, target: &Target) -> Vec<Finding> {
    let devices = target.devices.len() as u64;
    let mut findings = vec![
        judge_files(facts, target.connections, devices),
        judge_threads(facts, devices),
        Finding::ok(
            "locked memory",
            "memlock",
            format!("{}; Martlet locks none", shown_bytes(facts.locked_bytes)),
        ),
    ];
    findings.extend(facts.mappings.map(judge_mappings));
    findings.extend(facts.group_memory.map(|limit| judge_memory(limit, target.memory_bytes)));
    findings
        .extend(facts.group_milli_processors.map(|limit| judge_processors(limit, target.threads)));
    findings.extend(
        facts.huge_pages.as_ref().map(|mode| {
            Finding::ok("huge pages", "transparent", format!("{mode}; any mode works"))
        }),
    );
    findings
}

fn judge_files(facts: &LimitFacts, connections: u64, devices: u64) -> Finding {
    let needed = FILES_MIN + 2 * connections.max(devices * FILES_PER_DEVICE);
    let seen = format!(
        "at most {}, and {connections} connections with {devices} devices need {needed}",
        shown(facts.files)
    );
    let finding = Finding::ok("open files", "nofile", seen);
    let advice = "raise the hard limit: LimitNOFILE=1048576 in the unit, or ulimit -Hn; or lower \
                  max_connections";
    match facts.files {
        ..FILES_MIN => finding.fail(advice),
        files if files < needed => finding.warn(advice),
        _ => finding,
    }
}

fn judge_threads(facts: &LimitFacts, devices: u64) -> Finding {
    let needed = THREADS_MIN + devices * THREADS_PER_DEVICE;
    let seen = format!("at most {}, and {devices} devices need {needed}", shown(facts.threads));
    let finding = Finding::ok("threads", "nproc", seen);
    if facts.threads < needed {
        return finding
            .fail("raise the limit: LimitNPROC=infinity and TasksMax=infinity in the unit");
    }
    finding
}

fn judge_mappings(mappings: u64) -> Finding {
    let finding = Finding::ok("mappings", "vm.max_map_count", mappings.to_string());
    if mappings < MAPPINGS_MIN {
        return finding
            .warn("set it to at least the kernel's default: sysctl vm.max_map_count=65530");
    }
    finding
}

fn judge_memory(limit: u64, setting: Option<u64>) -> Finding {
    let by = setting.map_or("by default a share of it".to_owned(), |bytes| {
        format!("the setting memory is {}", size(bytes))
    });
    let seen = format!("the control group has {}, and {by}", size(limit));
    let finding = Finding::ok("memory", "control group", seen);
    let advice = "lower the setting memory, or raise the limit of the unit or container: beside \
                  memory, requests and connections take their own";
    match setting {
        Some(bytes) if bytes >= limit => finding.fail(advice),
        Some(bytes) if bytes > limit / 100 * MEMORY_PERCENT_MAX => finding.warn(advice),
        _ => finding,
    }
}

fn judge_processors(milli: u64, threads: Option<u64>) -> Finding {
    let seen = format!("the control group grants {}.{:02}", milli / 1000, milli % 1000 / 10);
    let finding = Finding::ok("processors", "control group", seen);
    if milli < 1000 {
        return finding.warn(
            "grant at least one processor: with less, requests wait for each other's \
            hashes",
        );
    }
    match threads {
        Some(threads) if threads * 1000 > milli * 2 => finding.warn(format!(
            "set max_threads to {}: {threads} threads use the grant up early in each period, and \
             then all wait",
            milli.div_ceil(1000)
        )),
        _ => finding,
    }
}

fn shown(limit: u64) -> String {
    if limit == NO_LIMIT { "no limit".to_owned() } else { limit.to_string() }
}

fn shown_bytes(limit: u64) -> String {
    if limit == NO_LIMIT { "no limit".to_owned() } else { size(limit) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;
    use crate::target::DeviceTarget;

    fn facts() -> LimitFacts {
        LimitFacts {
            files: 1 << 20,
            threads: NO_LIMIT,
            locked_bytes: 64 << 10,
            mappings: Some(65_530),
            group_memory: Some(8 << 30),
            group_milli_processors: Some(4000),
            huge_pages: Some("madvise".into()),
        }
    }

    fn target() -> Target {
        let device = |name: &str| DeviceTarget { name: name.into(), path: name.into() };
        Target { connections: 4096, devices: vec![device("d1"), device("d2")], ..Target::default() }
    }

    fn of(check: &str, facts: &LimitFacts, target: &Target) -> Finding {
        judge(facts, target).into_iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn usual_limits_suffice() {
        for finding in judge(&facts(), &target()) {
            assert_eq!(finding.verdict, Verdict::Ok, "{finding:?}");
        }
    }

    #[test]
    fn files_are_counted_by_connections_and_devices() {
        let files = |files| of("open files", &LimitFacts { files, ..facts() }, &target());
        assert_eq!(files(9216).verdict, Verdict::Ok);
        assert_eq!(files(9215).verdict, Verdict::Warn);
        assert_eq!(files(512).verdict, Verdict::Fail);
        assert!(files(512).advice.unwrap().contains("LimitNOFILE"));
        let few = Target { connections: 100, ..target() };
        assert_eq!(
            of("open files", &LimitFacts { files: 2048, ..facts() }, &few).verdict,
            Verdict::Ok
        );
    }

    #[test]
    fn threads_and_mappings_have_minimums() {
        let few = LimitFacts { threads: 100, mappings: Some(1000), ..facts() };
        assert_eq!(of("threads", &few, &target()).verdict, Verdict::Fail);
        assert_eq!(of("mappings", &few, &target()).verdict, Verdict::Warn);
    }

    #[test]
    fn memory_fits_into_its_group() {
        let memory =
            |bytes| of("memory", &facts(), &Target { memory_bytes: bytes, ..target() }).verdict;
        assert_eq!(memory(None), Verdict::Ok);
        assert_eq!(memory(Some(4 << 30)), Verdict::Ok);
        assert_eq!(memory(Some(7 << 30)), Verdict::Warn);
        assert_eq!(memory(Some(9 << 30)), Verdict::Fail);
    }

    #[test]
    fn processors_suffice_for_the_threads() {
        let processors = |milli, threads| {
            let facts = LimitFacts { group_milli_processors: Some(milli), ..facts() };
            of("processors", &facts, &Target { threads, ..target() }).verdict
        };
        assert_eq!(processors(500, None), Verdict::Warn);
        assert_eq!(processors(2000, Some(4)), Verdict::Ok);
        assert_eq!(processors(2000, Some(64)), Verdict::Warn);
    }

    #[test]
    fn texts_of_the_kernel_are_read() {
        assert_eq!(quota("150000 100000"), Some(1500));
        assert_eq!(quota("max 100000"), None);
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        let values = group_values(root.path(), "1:x:/y\n0::/a/b\n", "memory.max");
        assert_eq!(values, ["max", "4096"]);
        assert!(LimitFacts::observe().files > 0);
    }
}
