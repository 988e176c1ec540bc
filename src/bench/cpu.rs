//! CPU seconds that processes have spent, as the kernel counts them.

use std::collections::BTreeMap;
use std::fs;
use std::str::FromStr;

use super::{BenchError, Result};

/// Ticks in a second: the kernel's interface to programs has used 100 on every architecture
/// that the server is built for.
const TICKS_PER_S: f64 = 100.0;

/// A process that is watched, and the role under which its seconds are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    role: String,
    pid: u32,
}

impl Watched {
    /// This process itself.
    pub(super) fn oneself() -> Self {
        Self { role: "server".to_owned(), pid: std::process::id() }
    }
}

impl FromStr for Watched {
    type Err = String;

    /// `1234`, or `proxy=1234`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (role, pid) = text.split_once('=').unwrap_or(("server", text));
        let pid =
            pid.parse().map_err(|_| format!("\"{pid}\" is no process id: write 12 or proxy=12"))?;
        Ok(Self { role: role.to_owned(), pid })
    }
}

/// CPU seconds, in user and kernel mode together, that the processes of each role have spent since
/// they began.
pub(super) fn seconds(watched: &[Watched]) -> Result<BTreeMap<String, f64>> {
    let mut sums = BTreeMap::new();
    for Watched { role, pid } in watched {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path)
            .map_err(|error| BenchError::new(format_args!("process {pid}: {error}")))?;
        *sums.entry(role.clone()).or_insert(0.0) += parse(&stat)
            .ok_or_else(|| BenchError::new(format_args!("{path} is not as it should be")))?;
    }
    Ok(sums)
}

/// CPU seconds that they have spent since `before` was measured.
pub(super) fn seconds_since(
    before: &BTreeMap<String, f64>,
    watched: &[Watched],
) -> Result<BTreeMap<String, f64>> {
    let mut spent = seconds(watched)?;
    for (role, seconds) in &mut spent {
        *seconds -= before.get(role).copied().unwrap_or_default();
    }
    Ok(spent)
}

/// The name in parentheses may hold anything, blanks and parentheses too; what follows the last
/// one is numbers: state, then fields 4, 5 … of which 14 and 15 are user and kernel ticks.
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
        let watched = |text: String| text.parse::<Watched>().unwrap();
        let mine = std::process::id();
        let both = [watched(format!("proxy={mine}")), watched(format!("{mine}"))];
        let seconds = seconds(&both).unwrap();
        assert_eq!(seconds.keys().collect::<Vec<_>>(), ["proxy", "server"]);
        assert!(seconds.values().all(|seconds| *seconds >= 0.0));
        assert!(super::seconds(&[watched(u32::MAX.to_string())]).is_err());
        assert!("proxy=x".parse::<Watched>().is_err());
    }
}
