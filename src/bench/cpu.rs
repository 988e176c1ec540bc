//! CPU seconds that processes have spent, as the kernel counts them.

use std::fs;

use super::{BenchError, Result};

/// Ticks in a second: the kernel's interface to programs has used 100 on every architecture
/// that the server is built for.
const TICKS_PER_S: f64 = 100.0;

/// CPU seconds, in user and kernel mode together, that the processes have spent since they began.
pub(super) fn seconds(pids: &[u32]) -> Result<f64> {
    let mut sum = 0.0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path)
            .map_err(|error| BenchError::new(format_args!("process {pid}: {error}")))?;
        sum += parse(&stat)
            .ok_or_else(|| BenchError::new(format_args!("{path} is not as it should be")))?;
    }
    Ok(sum)
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
        assert!(seconds(&[std::process::id()]).unwrap() >= 0.0);
        assert!(seconds(&[u32::MAX]).is_err());
    }
}
