//! Observed health of devices, local to this proxy. It decides only the order of requests.
//!
//! A failed device is *shunned* for [`SHUNNED_FOR`]: it is queried only after the others.
//! Afterwards one caller probes it, and the rest keep shunning it until it replies. A device that
//! is repeatedly overtaken and never replies counts as failed. So a stopped node costs a few
//! hedges, not one for each read.
//!
//! Nearly all replies come from devices that answer all the time, so they take no lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use martlet_protocol::DeviceId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which a device is shunned before it is probed.
const SHUNNED_FOR: Duration = Duration::from_secs(10);
/// Times that a device may be overtaken without a reply before it is shunned.
const STRIKES_MAX: u32 = 3;
/// Minimum time without a reply before an overtaken device is shunned.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// Minimum wait of a reader for its first byte before it hedges.
pub(crate) const HEDGE_AFTER_MIN: Duration = Duration::from_millis(30);
/// Maximum wait of a reader for its first byte before it hedges.
const HEDGE_AFTER_MAX: Duration = Duration::from_secs(1);
/// Wait before a hedge, as a multiple of the device's usual time.
const HEDGE_AFTER_FACTOR: u32 = 4;
/// Cap on one sample of a device's lag, so that a single late replica doesn't mark it as slow for
/// long.
const LAG_MAX: Duration = Duration::from_secs(1);
/// Reads per allowed hedge: limits the extra load on a cluster at its limit.
const READS_PER_HEDGE: u32 = 20;
/// Maximum number of saved hedges.
const HEDGES_SAVED_MAX: u32 = 16;
/// Milliseconds in which further answers of a healthy device change nothing.
const ANSWER_MS: u64 = 100;
/// Number of devices whose last answer is found without a lock.
const ANSWERS_MAX: usize = 64;

/// Observed health of all devices.
pub(crate) struct Health {
    devices: Mutex<HashMap<DeviceId, Record>>,
    /// Number of shunned devices.
    shunned: AtomicUsize,
    /// Marks of devices whose last note is an answer, each at its id modulo [`ANSWERS_MAX`].
    answers: [AtomicU64; ANSWERS_MAX],
    began: Instant,
    /// Saved hedges, in units of 1/[`READS_PER_HEDGE`].
    saved: Mutex<u32>,
}

#[derive(Default)]
struct Record {
    shunned_until: Option<Instant>,
    full_until: Option<Instant>,
    strikes: u32,
    answered_at: Option<Instant>,
    /// Usual time to the first byte of a read, smoothed.
    usual: Duration,
    /// Usual lag of its replicas behind enough others, smoothed; none before the first.
    lag: Option<Duration>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            devices: Mutex::default(),
            shunned: AtomicUsize::new(0),
            answers: [const { AtomicU64::new(0) }; ANSWERS_MAX],
            began: Instant::now(),
            saved: Mutex::new(HEDGES_SAVED_MAX * READS_PER_HEDGE),
        }
    }
}

impl Health {
    fn note(&self, device: DeviceId, change: impl FnOnce(&mut Record)) {
        let mut devices = self.devices.lock();
        let record = devices.entry(device).or_default();
        let was_shunned = record.shunned_until.is_some();
        self.last_answer(device).store(0, Ordering::Relaxed);
        change(record);
        let is_shunned = record.shunned_until.is_some();
        if is_shunned && !was_shunned {
            self.shunned.fetch_add(1, Ordering::Relaxed);
        } else if was_shunned && !is_shunned {
            self.shunned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records a successful reply, or a refusal that isn't the device's fault.
    pub(crate) fn answered(&self, device: DeviceId) {
        let (last, mark) = (self.last_answer(device), self.mark(device));
        if last.load(Ordering::Relaxed) == mark {
            return;
        }
        self.note(device, |record| {
            record.answer();
            last.store(mark, Ordering::Relaxed);
        });
    }

    /// Place of the mark of a device's last answer; zero after any other note.
    fn last_answer(&self, device: DeviceId) -> &AtomicU64 {
        &self.answers[device.0 as usize % ANSWERS_MAX]
    }

    /// Mark of an answer now: the device, and the number of the present [`ANSWER_MS`], from 1.
    fn mark(&self, device: DeviceId) -> u64 {
        let time = self.began.elapsed();
        let ended =
            time.as_secs() * (1000 / ANSWER_MS) + u64::from(time.subsec_millis()) / ANSWER_MS;
        ((ended + 1) << 32) | u64::from(device.0)
    }

    /// Returns true if any device is shunned.
    pub(crate) fn has_shunned(&self) -> bool {
        self.shunned.load(Ordering::Relaxed) > 0
    }

    /// Records the first byte of a read after `took`.
    pub(crate) fn first_byte(&self, device: DeviceId, took: Duration) {
        self.note(device, |record| {
            record.answer();
            record.learn(took);
        });
    }

    /// Records a failed or unreachable device.
    pub(crate) fn failed(&self, device: DeviceId) {
        self.note(device, |record| record.shunned_until = Some(Instant::now() + SHUNNED_FOR));
    }

    /// Records that a device accepts no more bytes.
    pub(crate) fn full(&self, device: DeviceId) {
        self.note(device, |record| {
            record.answer();
            record.full_until = Some(Instant::now() + SHUNNED_FOR);
        });
    }

    /// Records that a device had not replied after `waited` while others had, or should have. Its
    /// usual time is unchanged: a missing reply is no measurement.
    pub(crate) fn overtaken(&self, device: DeviceId, waited: Duration) {
        self.note(device, |record| {
            let now = Instant::now();
            record.strikes += 1;
            let answered_at = *record.answered_at.get_or_insert(now - waited.min(SILENCE_MAX));
            if record.strikes >= STRIKES_MAX && now - answered_at >= SILENCE_MAX {
                record.shunned_until = Some(now + SHUNNED_FOR);
            }
        });
    }

    /// Returns true if other devices should be queried first.
    pub(crate) fn is_shunned(&self, device: DeviceId) -> bool {
        self.has_shunned()
            && self.devices.lock().get(&device).is_some_and(|record| record.shunned_until.is_some())
    }

    /// Returns true if other devices should be queried first; for callers that query the device
    /// otherwise. After the shunned time, returns false to one caller, which probes the device.
    pub(crate) fn shuns(&self, device: DeviceId) -> bool {
        if !self.has_shunned() {
            return false;
        }
        let mut devices = self.devices.lock();
        let Some(record) = devices.get_mut(&device) else { return false };
        let Some(until) = record.shunned_until else { return false };
        let now = Instant::now();
        if until <= now {
            record.shunned_until = Some(now + SHUNNED_FOR);
        }
        until > now
    }

    /// Returns true if a device was full within [`SHUNNED_FOR`].
    pub(crate) fn is_full(&self, device: DeviceId) -> bool {
        let devices = self.devices.lock();
        let until = devices.get(&device).and_then(|record| record.full_until);
        until.is_some_and(|until| until > Instant::now())
    }

    /// Wait for the first byte of a device before a hedge.
    pub(crate) fn patience(&self, device: DeviceId) -> Duration {
        let usual = self.devices.lock().get(&device).map_or(Duration::ZERO, |r| r.usual);
        (usual * HEDGE_AFTER_FACTOR).clamp(HEDGE_AFTER_MIN, HEDGE_AFTER_MAX)
    }

    /// Records a replica's lag behind enough others; zero if it was among them.
    pub(crate) fn lagged(&self, device: DeviceId, by: Duration) {
        self.note(device, |record| {
            let by = by.min(LAG_MAX);
            record.lag = Some(record.lag.map_or(by, |lag| (lag * 7 + by) / 8));
        });
    }

    /// Usual lag of a device's replicas behind enough others; none if never observed.
    pub(crate) fn lag(&self, device: DeviceId) -> Option<Duration> {
        self.devices.lock().get(&device).and_then(|record| record.lag)
    }

    /// Counts a read towards the hedging budget.
    pub(crate) fn count_read(&self) {
        let mut saved = self.saved.lock();
        *saved = (*saved + 1).min(HEDGES_SAVED_MAX * READS_PER_HEDGE);
    }

    /// Takes one hedge from the budget; returns false if none is left.
    pub(crate) fn may_hedge(&self) -> bool {
        self.may_hedge_by(1)
    }

    /// Takes a hedge that costs `reads` reads from the budget; returns false if it has too few. A
    /// hedge costs at most half of the maximum budget, or it could never be made.
    pub(crate) fn may_hedge_by(&self, reads: u32) -> bool {
        let mut saved = self.saved.lock();
        let left = saved.checked_sub(reads.min(HEDGES_SAVED_MAX / 2) * READS_PER_HEDGE);
        *saved = left.unwrap_or(*saved);
        left.is_some()
    }
}

impl Record {
    fn answer(&mut self) {
        self.shunned_until = None;
        self.strikes = 0;
        self.answered_at = Some(Instant::now());
    }

    fn learn(&mut self, took: Duration) {
        self.usual = (self.usual * 7 + took) / 8;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const ONE: DeviceId = DeviceId(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_at_a_time_finds_out_whether_a_device_is_back() {
        let health = Health::default();
        assert!(!health.shuns(ONE));
        health.failed(ONE);
        assert!(health.shuns(ONE) && health.is_shunned(ONE));
        advance(SHUNNED_FOR).await;
        assert!(health.is_shunned(ONE), "no caller has queried the device yet");
        assert!(!health.shuns(ONE), "this caller queries the device");
        assert!(health.shuns(ONE), "and the next waits for what comes of that");
        health.answered(ONE);
        assert!(!health.shuns(ONE) && !health.is_shunned(ONE));
    }

    #[tokio::test(start_paused = true)]
    async fn each_device_is_shunned_until_it_answers_itself() {
        let (health, two) = (Health::default(), DeviceId(2));
        assert!(!health.has_shunned());
        for device in [ONE, ONE, two] {
            health.failed(device);
        }
        health.answered(ONE);
        health.answered(ONE);
        assert!(!health.is_shunned(ONE) && health.is_shunned(two) && health.has_shunned());
        assert!(!health.shuns(ONE) && health.shuns(two));
        advance(SHUNNED_FOR).await;
        assert!(!health.shuns(two) && health.has_shunned(), "one caller probes it");
        health.first_byte(two, ms(1));
        assert!(!health.is_shunned(two) && !health.has_shunned());
        health.full(ONE);
        health.failed(ONE);
        assert!(health.is_shunned(ONE) && health.has_shunned());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_shortly_after_one_another_count_too() {
        let (health, same_place) = (Health::default(), DeviceId(ONE.0 + 64));
        health.answered(ONE);
        health.failed(ONE);
        health.answered(ONE);
        assert!(!health.is_shunned(ONE), "the failure came between");
        health.failed(same_place);
        health.answered(ONE);
        assert!(health.is_shunned(same_place), "another device answered");
        for _ in 0..109 {
            advance(ms(10)).await;
            health.answered(ONE);
        }
        for _ in 0..STRIKES_MAX {
            health.overtaken(ONE, ms(30));
        }
        assert!(!health.is_shunned(ONE), "it answered only just now");
        health.answered(ONE);
        advance(SILENCE_MAX).await;
        for _ in 1..STRIKES_MAX {
            health.overtaken(ONE, ms(30));
        }
        assert!(!health.is_shunned(ONE), "the strikes before its answer are over");
        health.overtaken(ONE, ms(30));
        assert!(health.is_shunned(ONE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_that_is_overtaken_and_never_answers_is_shunned() {
        let health = Health::default();
        health.answered(ONE);
        for _ in 0..STRIKES_MAX {
            health.overtaken(ONE, ms(30));
        }
        assert!(!health.is_shunned(ONE), "it answered only just now: it is busy");
        advance(SILENCE_MAX).await;
        health.overtaken(ONE, ms(30));
        assert!(health.is_shunned(ONE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_device_that_answers_is_not_shunned_and_is_waited_for_longer() {
        let health = Health::default();
        assert_eq!(health.patience(ONE), HEDGE_AFTER_MIN);
        for _ in 0..100 {
            health.overtaken(ONE, ms(80));
            advance(ms(100)).await;
            health.first_byte(ONE, ms(100));
            assert!(!health.is_shunned(ONE));
        }
        assert!(health.patience(ONE) > ms(350));
        for _ in 0..100 {
            health.first_byte(ONE, ms(2000));
        }
        assert_eq!(health.patience(ONE), HEDGE_AFTER_MAX);
    }

    #[test]
    fn a_lag_is_learned_and_forgotten() {
        let health = Health::default();
        assert_eq!(health.lag(ONE), None);
        health.lagged(ONE, ms(200));
        assert_eq!(health.lag(ONE), Some(ms(200)));
        (0..40).for_each(|_| health.lagged(ONE, ms(0)));
        assert!(health.lag(ONE).is_some_and(|lag| lag < ms(5)));
        health.lagged(ONE, Duration::from_mins(1));
        assert!(health.lag(ONE).is_some_and(|lag| lag < ms(150)));
    }

    #[test]
    fn hedges_are_a_share_of_the_reads() {
        let health = Health::default();
        while health.may_hedge() {}
        let mut hedges = 0;
        for _ in 0..1000 {
            health.count_read();
            hedges += u32::from(health.may_hedge());
        }
        assert_eq!(hedges, 1000 / READS_PER_HEDGE);
    }

    #[test]
    fn a_hedge_of_many_reads_counts_as_many() {
        for (reads, counted) in [(1, 1), (4, 4), (8, 8), (28, HEDGES_SAVED_MAX / 2)] {
            let health = Health::default();
            let mut hedges = 0;
            while health.may_hedge_by(reads) {
                hedges += 1;
            }
            assert_eq!(hedges, HEDGES_SAVED_MAX / counted, "{reads}");
            (1..counted * READS_PER_HEDGE).for_each(|_| health.count_read());
            assert!(!health.may_hedge_by(reads), "{reads}");
            health.count_read();
            assert!(health.may_hedge_by(reads), "{reads}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_device_is_remembered_for_a_while() {
        let health = Health::default();
        health.full(ONE);
        assert!(health.is_full(ONE) && !health.is_shunned(ONE), "it can still be read");
        advance(SHUNNED_FOR).await;
        assert!(!health.is_full(ONE));
    }
}
