//! Progress of an import.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use martlet_importer::{Counters, ProgressSnapshot, size};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::progress::{ProgressDisplay, WorkState, left_text};

/// Interval between two updates.
const TICK: Duration = Duration::from_millis(250);
/// Period over which rates are taken.
const PERIOD: Duration = Duration::from_secs(30);
/// Steps of the bar.
const STEPS: u64 = 10_000;

/// Display beside a run.
pub(super) struct Display {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Display {
    /// Begins to show a run.
    pub(super) fn begin(counters: Arc<Counters>) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, task: tokio::spawn(show(counters, stopped)) }
    }

    /// Ends the display.
    pub(super) async fn end(self) {
        drop(self.stop);
        // The display has no result.
        let _ = self.task.await;
    }
}

async fn show(counters: Arc<Counters>, mut stopped: oneshot::Receiver<()>) {
    let mut display = ProgressDisplay::begin("import", false);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut rates = Rates::default();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            _ = ticks.tick() => {}
        }
        let now = counters.snapshot();
        rates.add(Instant::now(), now);
        let (done, total) = (share(now), Some(STEPS));
        display.show(&WorkState { done, total, text: rates.text(now) });
    }
}

/// Returns the part of the work that is done, in steps of the bar.
fn share(now: ProgressSnapshot) -> u64 {
    let of =
        |done: u64, total: u64| u128::from(done) * u128::from(STEPS) / u128::from(total.max(1));
    if now.is_verifying {
        let share = now.to_compare.map_or(0, |total| of(now.compared, total));
        return u64::try_from(share).unwrap_or(STEPS).min(STEPS);
    }
    let bytes = of(now.done.bytes, now.total.bytes);
    let objects = of(now.done.objects, now.total.objects);
    let share = if now.is_counted { bytes.min(objects) } else { 0 };
    u64::try_from(share).unwrap_or(STEPS).min(STEPS)
}

/// States of the last period.
#[derive(Default)]
struct Rates(VecDeque<TimedSnapshot>);

struct TimedSnapshot {
    at: Instant,
    progress: ProgressSnapshot,
}

impl Rates {
    fn add(&mut self, at: Instant, progress: ProgressSnapshot) {
        // Rates of the copy don't count for the comparison.
        if self.0.back().is_some_and(|last| last.progress.is_verifying != progress.is_verifying) {
            self.0.clear();
        }
        self.0.push_back(TimedSnapshot { at, progress });
        while self.0.len() > 2 && self.0.front().is_some_and(|it| at - it.at > PERIOD) {
            self.0.pop_front();
        }
    }

    /// Returns the growth of a counter in a second.
    fn per_second(&self, counter: impl Fn(&ProgressSnapshot) -> u64) -> f64 {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else { return 0.0 };
        let grown = counter(&last.progress).saturating_sub(counter(&first.progress));
        let seconds = (last.at - first.at).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
        let grown = grown as f64;
        if seconds > 0.0 { grown / seconds } else { 0.0 }
    }

    /// Returns the time left of the pass, once all its objects are counted: the longer one by objects
    /// and by bytes for the copy, the one by objects for the comparison.
    fn left(&self, now: ProgressSnapshot) -> Option<Duration> {
        let by = |done: u64, total: u64, rate: f64| {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let left = total.saturating_sub(done) as f64;
            if left == 0.0 {
                Some(Duration::ZERO)
            } else {
                Duration::try_from_secs_f64(left / rate).ok()
            }
        };
        if now.is_verifying {
            let total = now.to_compare.filter(|total| *total >= now.compared)?;
            return by(now.compared, total, self.per_second(|it| it.compared));
        }
        if !now.is_counted {
            return None;
        }
        let bytes = by(now.done.bytes, now.total.bytes, self.per_second(|it| it.done.bytes))?;
        let objects =
            by(now.done.objects, now.total.objects, self.per_second(|it| it.done.objects))?;
        Some(bytes.max(objects))
    }

    fn text(&self, now: ProgressSnapshot) -> String {
        if now.is_verifying {
            return self.comparison_text(now);
        }
        let more = if now.is_counted { "" } else { "+" };
        let total = if now.total.objects > 0 {
            format!(" of {}{more}", now.total.objects)
        } else {
            String::new()
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is positive and shown with three digits"
        )]
        let rate = self.per_second(|it| it.streamed_bytes) as u64;
        let failed =
            if now.failed > 0 { format!(", {} FAILED", now.failed) } else { String::new() };
        let left = self.left(now).map(left_text).unwrap_or_default();
        format!(
            "{}{total} objects, {}, {}/s{left}{failed}",
            now.done.objects,
            size(now.done.bytes),
            size(rate)
        )
    }

    fn comparison_text(&self, now: ProgressSnapshot) -> String {
        let of = now.to_compare.map(|total| format!(" of {}", total.max(now.compared)));
        let rate = self.per_second(|it| it.compared);
        let left = self.left(now).map(left_text).unwrap_or_default();
        let of = of.unwrap_or_default();
        format!("{}{of} objects compared, {rate:.0}/s{left}", now.compared)
    }
}

#[cfg(test)]
mod tests {
    use martlet_importer::Amount;

    use super::*;

    fn at(objects: u64, bytes: u64, is_counted: bool) -> ProgressSnapshot {
        ProgressSnapshot {
            done: Amount { objects, bytes },
            total: Amount { objects: 100, bytes: 1 << 30 },
            is_counted,
            streamed_bytes: bytes,
            ..ProgressSnapshot::default()
        }
    }

    #[test]
    fn the_time_left_is_that_of_the_slower_measure() {
        let mut rates = Rates::default();
        let begin = Instant::now();
        rates.add(begin, at(0, 0, true));
        let now = at(50, 128 << 20, true);
        rates.add(begin + Duration::from_secs(10), now);
        assert_eq!(rates.text(now), "50 of 100 objects, 128.0 MiB, 12.8 MiB/s, 1 min 10 s left");
        assert_eq!(share(now), STEPS / 8);
        let uncounted = at(50, 128 << 20, false);
        assert_eq!(rates.text(uncounted), "50 of 100+ objects, 128.0 MiB, 12.8 MiB/s");
    }

    #[test]
    fn nothing_is_estimated_without_progress() {
        let mut rates = Rates::default();
        let begin = Instant::now();
        let still = ProgressSnapshot { failed: 2, ..at(1, 1, true) };
        rates.add(begin, still);
        rates.add(begin + Duration::from_secs(1), still);
        assert_eq!(rates.text(still), "1 of 100 objects, 1 B, 0 B/s, 2 FAILED");
    }

    #[test]
    fn a_comparison_has_its_own_total_and_rate() {
        let mut rates = Rates::default();
        let begin = Instant::now();
        rates.add(begin, at(100, 1 << 30, true));
        let verifying = |compared, to_compare| ProgressSnapshot {
            is_verifying: true,
            compared,
            to_compare,
            ..at(100, 1 << 30, true)
        };
        let later = begin + Duration::from_mins(1);
        rates.add(later, verifying(0, None));
        rates.add(later + Duration::from_secs(10), verifying(200, None));
        assert_eq!(rates.text(verifying(200, None)), "200 objects compared, 20/s");
        assert_eq!(share(verifying(200, None)), 0);
        let counted = verifying(200, Some(1000));
        assert_eq!(rates.text(counted), "200 of 1000 objects compared, 20/s, 40 s left");
        assert_eq!(share(counted), STEPS / 5);
        let more = verifying(1100, Some(1000));
        assert_eq!(rates.text(more), "1100 of 1100 objects compared, 20/s");
        assert_eq!(share(more), STEPS);
    }
}
