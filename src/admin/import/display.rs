//! Progress of an import: a bar on a terminal, elsewhere a line every ten seconds.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use martlet_importer::{Counters, ProgressSnapshot, size};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// Interval between two updates of the bar.
const TICK: Duration = Duration::from_millis(250);
/// Interval between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
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
    let is_terminal = std::io::stderr().is_terminal();
    let bar = if is_terminal { ProgressBar::new(STEPS) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{bar:30} {msg}").expect("the template is valid"));
    let mut ticks = interval(if is_terminal { TICK } else { LINE_EVERY });
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
        let text = rates.text(now);
        if is_terminal {
            bar.set_position(share(now));
            bar.set_message(text);
        } else {
            eprintln!("import: {text}");
        }
    }
    bar.finish_and_clear();
}

/// Returns the part of the work that is done, in steps of the bar.
fn share(now: ProgressSnapshot) -> u64 {
    let of =
        |done: u64, total: u64| u128::from(done) * u128::from(STEPS) / u128::from(total.max(1));
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

    /// Returns the time left, once all objects are counted: the longer one by objects and by bytes.
    fn left(&self, now: ProgressSnapshot) -> Option<Duration> {
        if !now.is_counted || now.is_verifying {
            return None;
        }
        let by = |done: u64, total: u64, rate: f64| {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let left = total.saturating_sub(done) as f64;
            if left == 0.0 {
                Some(Duration::ZERO)
            } else {
                Duration::try_from_secs_f64(left / rate).ok()
            }
        };
        let bytes = by(now.done.bytes, now.total.bytes, self.per_second(|it| it.done.bytes))?;
        let objects =
            by(now.done.objects, now.total.objects, self.per_second(|it| it.done.objects))?;
        Some(bytes.max(objects))
    }

    fn text(&self, now: ProgressSnapshot) -> String {
        if now.is_verifying {
            return format!("{} objects compared", now.compared);
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
        let left = self.left(now).map(|left| format!(", {} left", span(left))).unwrap_or_default();
        format!(
            "{}{total} objects, {}, {}/s{left}{failed}",
            now.done.objects,
            size(now.done.bytes),
            size(rate)
        )
    }
}

/// Formats a time span by its two largest units.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
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
        assert_eq!(span(Duration::from_secs(90_061)), "1 d 1 h");
    }
}
