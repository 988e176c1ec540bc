//! CPU seconds of processes, as the kernel counts them.

use std::collections::BTreeMap;
use std::fs;
use std::str::FromStr;

use super::error::{BenchError, BenchResult};

/// Clock ticks per second. The kernel reports 100 on every architecture that the server is built
/// for.
const TICKS_PER_S: f64 = 100.0;

/// Process to measure, and the role that its seconds count for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeasuredProcess {
    role: String,
    pid: u32,
}

impl MeasuredProcess {
    /// Returns this process.
    pub(super) fn oneself() -> Self {
        Self { role: "server".to_owned(), pid: std::process::id() }
    }
}

impl FromStr for MeasuredProcess {
    type Err = String;

    /// Parses `1234` or `proxy=1234`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (role, pid) = text.split_once('=').unwrap_or(("server", text));
        let pid = pid
            .parse()
            .map_err(|_| format!("\"{pid}\" is not a process id: write 12 or proxy=12"))?;
        Ok(Self { role: role.to_owned(), pid })
    }
}

/// Returns the CPU seconds of each role's processes since their start, in user and kernel mode
/// together.
pub(super) fn seconds(watched: &[MeasuredProcess]) -> BenchResult<BTreeMap<String, f64>> {
    let mut sums = BTreeMap::new();
    for MeasuredProcess { role, pid } in watched {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path)
            .map_err(|error| BenchError::new(format_args!("process {pid}: {error}")))?;
        *sums.entry(role.clone()).or_insert(0.0) += parse(&stat)
            .ok_or_else(|| BenchError::new(format_args!("{path} has an unexpected format")))?;
    }
    Ok(sums)
}

/// Returns the CPU seconds of the calling thread since its start, in user and kernel mode together.
pub(super) fn seconds_of_this_thread() -> BenchResult<f64> {
    let path = "/proc/thread-self/stat";
    let stat = fs::read_to_string(path)
        .map_err(|error| BenchError::new(format_args!("{path}: {error}")))?;
    parse(&stat).ok_or_else(|| BenchError::new(format_args!("{path} has an unexpected format")))
}

/// Returns the CPU seconds of each role since `before` was measured.
pub(super) fn seconds_since(
    before: &BTreeMap<String, f64>,
    watched: &[MeasuredProcess],
) -> BenchResult<BTreeMap<String, f64>> {
    let mut spent = seconds(watched)?;
    for (role, seconds) in &mut spent {
        *seconds -= before.get(role).copied().unwrap_or_default();
    }
    Ok(spent)
}

/// Parses `/proc/PID/stat`. The name in parentheses may contain blanks and parentheses, so parsing
/// begins after the last one: state, then fields from 4 on. Fields 14 and 15 are user and kernel
/// ticks.
#[expect(clippy::cast_precision_loss, reason = "ticks stay far below 2^52")]
fn parse(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut ticks = rest.split_ascii_whitespace().skip(11);
    let user: u64 = ticks.next()?.parse().ok()?;
    let kernel: u64 = ticks.next()?.parse().ok()?;
    Some((user + kernel) as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 99 0 0 0 250 50 0 0 20 0 4 0 12 34 56";
        assert_eq!(parse(stat), Some(3.0));
        assert_eq!(parse("7 (a S 1"), None);
        assert_eq!(parse("7 (a) S 1 2 3"), None);
    }

    #[test]
    fn our_own_time_can_be_read() {
        let watched = |text: String| text.parse::<MeasuredProcess>().unwrap();
        let mine = std::process::id();
        let both = [watched(format!("proxy={mine}")), watched(format!("{mine}"))];
        let seconds = seconds(&both).unwrap();
        assert_eq!(seconds.keys().collect::<Vec<_>>(), ["proxy", "server"]);
        assert!(seconds.values().all(|seconds| *seconds >= 0.0));
        assert!(super::seconds(&[watched(u32::MAX.to_string())]).is_err());
        assert!(seconds_of_this_thread().unwrap() >= 0.0);
        assert!("proxy=x".parse::<MeasuredProcess>().is_err());
    }
}
