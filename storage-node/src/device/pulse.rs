//! Pulse of a device: the time at which a call to its disk last ended.
//!
//! A disk that hangs returns no error. So each part of a device notes the begin and the end of its
//! disk calls. A part has no pulse if calls run in it and none ends for [`STALL_AFTER`]. The device
//! is suspect until a call ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use tokio::time::timeout;

/// Time without the end of a call after which a device is suspect. The sync of a busy disk takes
/// seconds, and a kernel resets a disk that doesn't answer after 30 s.
pub(crate) const STALL_AFTER: Duration = Duration::from_secs(40);

/// A part of a device that calls the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DevicePart {
    /// The threads for reads, walks and files.
    Calls,
    /// The committer of the index.
    Index,
    /// The committer of packed extents.
    Packed,
    /// The thread that makes names durable.
    Names,
    /// A thread that sends cached bytes, by a number below [`SENDERS_MAX`]. Its calls end without the
    /// disk as long as their bytes are in memory: they are no pulse of other parts.
    Sends(usize),
}

/// Maximum number of threads of a device that send cached bytes.
pub(crate) const SENDERS_MAX: usize = 4;
const PARTS: usize = 4 + SENDERS_MAX;

impl DevicePart {
    fn place(self) -> usize {
        match self {
            Self::Calls => 0,
            Self::Index => 1,
            Self::Packed => 2,
            Self::Names => 3,
            Self::Sends(thread) => 4 + thread,
        }
    }
}

/// The pulse of one device.
#[derive(Debug)]
pub(crate) struct Pulse {
    device: String,
    stall_after: Duration,
    parts: [Mutex<CallTimes>; PARTS],
    /// True if the log reports that the device hangs.
    logged: AtomicBool,
}

#[derive(Debug)]
struct CallTimes {
    running: usize,
    /// Time at which a call last ended, or at which the first of the running calls began.
    last: Instant,
}

impl Pulse {
    /// Creates the pulse of an idle device, named `device` in messages.
    pub(crate) fn new(device: String, stall_after: Duration) -> Self {
        let idle = || Mutex::new(CallTimes { running: 0, last: Instant::now() });
        Self {
            device,
            stall_after,
            parts: std::array::from_fn(|_| idle()),
            logged: AtomicBool::new(false),
        }
    }

    /// Records that a call begins; the call ends when the returned [`RunningCall`] is dropped.
    pub(crate) fn begin(self: &Arc<Self>, part: DevicePart) -> RunningCall {
        let mut beats = self.parts[part.place()].lock();
        if beats.running == 0 {
            beats.last = Instant::now();
        }
        beats.running += 1;
        drop(beats);
        RunningCall { pulse: self.clone(), part }
    }

    /// Returns the reason if the device is suspect because a part has no pulse.
    pub(crate) fn stalled(&self) -> Option<String> {
        let now = Instant::now();
        let longest = self.parts.iter().filter_map(|part| self.stalled_for(part, now)).max();
        let stalled = longest.map(silence);
        if self.logged.swap(stalled.is_some(), Ordering::Relaxed) != stalled.is_some() {
            let device = &self.device;
            if let Some(reason) = &stalled {
                tracing::error!(device, reason, "the device hangs");
            } else {
                tracing::warn!(device, "the device answers again");
            }
        }
        stalled
    }

    /// Waits for a call. Returns `Unavailable` once `stall_after` has passed and the device is
    /// suspect; the call goes on.
    pub(crate) async fn wait<T>(&self, call: impl Future<Output = T>) -> Result<T> {
        let mut call = pin!(call);
        loop {
            if let Ok(outcome) = timeout(self.stall_after, &mut call).await {
                return Ok(outcome);
            }
            if let Some(reason) = self.stalled() {
                return Err(self.suspect(&reason));
            }
        }
    }

    /// Returns `Unavailable` if the part has no pulse.
    pub(crate) fn check(&self, part: DevicePart) -> Result<()> {
        match self.stalled_for(&self.parts[part.place()], Instant::now()) {
            None => Ok(()),
            Some(time) => Err(self.suspect(&silence(time))),
        }
    }

    fn suspect(&self, reason: &str) -> Error {
        Error::unavailable(format!("device {} is suspect: {reason}", self.device))
    }

    fn stalled_for(&self, part: &Mutex<CallTimes>, now: Instant) -> Option<Duration> {
        let beats = part.lock();
        let silent = now.saturating_duration_since(beats.last);
        (beats.running > 0 && silent >= self.stall_after).then_some(silent)
    }
}

fn silence(time: Duration) -> String {
    format!("its disk has not answered for {} s", time.as_secs())
}

/// A running call.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pulse: Arc<Pulse>,
    part: DevicePart,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut beats = self.pulse.parts[self.part.place()].lock();
        beats.running -= 1;
        beats.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pulse: &Pulse, part: DevicePart, seconds: u64) -> Option<Duration> {
        let then = Instant::now() + Duration::from_secs(seconds);
        pulse.stalled_for(&pulse.parts[part.place()], then)
    }

    #[test]
    fn a_part_has_no_pulse_while_calls_run_and_none_ends() {
        let pulse = Arc::new(Pulse::new("d1".to_owned(), STALL_AFTER));
        assert_eq!(at(&pulse, DevicePart::Index, 1000), None, "nothing runs");
        let calls = [pulse.begin(DevicePart::Index), pulse.begin(DevicePart::Index)];
        assert_eq!(at(&pulse, DevicePart::Index, 39), None);
        assert!(at(&pulse, DevicePart::Index, 41).is_some());
        assert_eq!(at(&pulse, DevicePart::Calls, 41), None, "each part by itself");
        drop(calls);
        assert_eq!(at(&pulse, DevicePart::Index, 1000), None, "all have ended");
    }

    #[test]
    fn the_end_of_one_call_is_a_pulse_of_all() {
        let pulse = Arc::new(Pulse::new("d1".to_owned(), Duration::ZERO));
        let hung = pulse.begin(DevicePart::Packed);
        assert!(pulse.stalled().is_some_and(|why| why.contains("has not answered")));
        let error = pulse.check(DevicePart::Packed).unwrap_err();
        assert_eq!(error.kind(), martlet_protocol::ErrorKind::Unavailable, "{error}");
        assert!(pulse.check(DevicePart::Calls).is_ok());
        let before = pulse.parts[DevicePart::Packed.place()].lock().last;
        drop(pulse.begin(DevicePart::Packed));
        assert!(pulse.parts[DevicePart::Packed.place()].lock().last > before);
        drop(hung);
        assert_eq!(pulse.stalled(), None);
    }

    #[test]
    fn sends_from_memory_are_no_pulse_of_a_disk_that_hangs() {
        let pulse = Arc::new(Pulse::new("d1".to_owned(), Duration::ZERO));
        let hung = [pulse.begin(DevicePart::Calls), pulse.begin(DevicePart::Sends(1))];
        for _ in 0..3 {
            drop(pulse.begin(DevicePart::Sends(0)));
        }
        for (part, hangs) in [(0, false), (1, true)] {
            assert_eq!(pulse.check(DevicePart::Sends(part)).is_err(), hangs);
        }
        assert!(pulse.check(DevicePart::Calls).is_err());
        assert!(pulse.stalled().is_some());
        drop(hung);
        assert_eq!(pulse.stalled(), None);
    }

    #[tokio::test]
    async fn calls_to_a_hanging_device_fail_at_once() {
        let pulse = Arc::new(Pulse::new("d1".to_owned(), Duration::from_millis(20)));
        let slow = tokio::time::sleep(Duration::from_millis(100));
        pulse.wait(slow).await.expect("it is slow, and nothing hangs");
        let _hung = pulse.begin(DevicePart::Names);
        let error = pulse.wait(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(error.kind(), martlet_protocol::ErrorKind::Unavailable, "{error}");
    }
}
