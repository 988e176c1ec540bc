//! Progress of a long command on the standard error: a bar on a terminal, elsewhere a line every ten
//! seconds. A command whose output is JSON shows none.
//!
//! * [`ProgressDisplay`]: the bar or the lines. [`CountedWork`]: those of work that counts items.
//! * [`RateMeter`]: rate of the last half minute, and the time left by it.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Minimum time between two updates of the bar.
const BAR_EVERY: Duration = Duration::from_millis(50);
/// Interval between two lines. The first one comes after it too, so that quick commands print none.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Period over which rates are taken.
const PERIOD: Duration = Duration::from_secs(30);
/// Minimum time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Time before which there is no rate.
const BASIS_MIN: Duration = Duration::from_secs(2);

/// State of a command's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkState {
    pub(crate) done: u64,
    /// All work. None without a bar.
    pub(crate) total: Option<u64>,
    pub(crate) text: String,
}

/// Display of a command's progress.
pub(crate) struct ProgressDisplay {
    name: String,
    form: DisplayForm,
}

enum DisplayForm {
    /// Bar, with the time of the next update.
    Bar(ProgressBar, Instant),
    /// Lines, with the time of the next one.
    Lines(Instant),
    Hidden,
}

impl ProgressDisplay {
    /// Begins to show the command of this name. `json` shows nothing.
    pub(crate) fn begin(name: impl Into<String>, json: bool) -> Self {
        let form = if json {
            DisplayForm::Hidden
        } else if std::io::stderr().is_terminal() {
            DisplayForm::Bar(ProgressBar::new(1), Instant::now())
        } else {
            DisplayForm::Lines(Instant::now() + LINE_EVERY)
        };
        Self { name: name.into(), form }
    }

    /// Shows the state of the work. May be called as often as the work goes on.
    pub(crate) fn show(&mut self, state: &WorkState) {
        if let Some(line) = self.line_at(state, Instant::now()) {
            eprintln!("{line}");
        }
    }

    /// Updates the bar, or returns the line that is due.
    fn line_at(&mut self, state: &WorkState, now: Instant) -> Option<String> {
        match &mut self.form {
            DisplayForm::Hidden => None,
            DisplayForm::Lines(next) if now < *next => None,
            DisplayForm::Lines(next) => {
                *next = now + LINE_EVERY;
                Some(format!("{}: {}", self.name, state.text))
            }
            DisplayForm::Bar(_, next) if now < *next => None,
            DisplayForm::Bar(bar, next) => {
                *next = now + BAR_EVERY;
                let has_bar = state.total.is_some();
                let template = if has_bar { "{bar:30} {msg}" } else { "{spinner} {msg}" };
                let style = ProgressStyle::with_template(template);
                bar.set_style(style.expect("the template is valid"));
                bar.set_length(state.total.unwrap_or_default().max(1));
                bar.set_position(state.done);
                bar.set_message(state.text.clone());
                bar.tick();
                None
            }
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let DisplayForm::Bar(bar, _) = &self.form {
            bar.finish_and_clear();
        }
    }
}

/// Rate of a counter over the last half minute.
#[derive(Debug, Default)]
pub(crate) struct RateMeter(VecDeque<CounterSample>);

#[derive(Clone, Copy, Debug)]
struct CounterSample {
    at: Instant,
    count: u64,
}

impl RateMeter {
    /// Notes the counter. A smaller one than before begins anew.
    pub(crate) fn note(&mut self, at: Instant, count: u64) {
        if self.0.back().is_some_and(|last| count < last.count) {
            self.0.clear();
        }
        let before_last = self.0.len().checked_sub(2).and_then(|place| self.0.get(place));
        if before_last.is_some_and(|sample| at - sample.at < SAMPLE_EVERY) {
            self.0.pop_back();
        }
        self.0.push_back(CounterSample { at, count });
        while self.0.len() > 2 && self.0.front().is_some_and(|first| at - first.at > PERIOD) {
            self.0.pop_front();
        }
    }

    /// Returns the growth in a second. None in the first two seconds, and without growth.
    pub(crate) fn per_second(&self) -> Option<f64> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        let span = last.at - first.at;
        let grown = last.count - first.count;
        #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
        let rate = grown as f64 / span.as_secs_f64();
        (span >= BASIS_MIN && grown > 0).then_some(rate)
    }

    /// Returns the time until the counter reaches `total`. None without a rate, or beyond `total`.
    pub(crate) fn left(&self, total: u64) -> Option<Duration> {
        let left = total.checked_sub(self.0.back()?.count)?;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let seconds = left as f64 / self.per_second()?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Formats rate and time left, as far as they are known: `, 12 records/s, 3 min 5 s left`.
    pub(crate) fn text(&self, unit: &str, total: Option<u64>) -> String {
        let rate = self.per_second().map(|rate| match rate {
            rate if rate < 10.0 => format!(", {rate:.1} {unit}/s"),
            rate => format!(", {rate:.0} {unit}/s"),
        });
        let left = total.and_then(|total| self.left(total));
        rate.unwrap_or_default() + &left.map(left_text).unwrap_or_default()
    }
}

/// Display of work that counts items, with their rate and the time left.
pub(crate) struct CountedWork {
    display: ProgressDisplay,
    meter: RateMeter,
    unit: &'static str,
}

impl CountedWork {
    /// Begins to show the command of this name. `json` shows nothing.
    pub(crate) fn begin(name: impl Into<String>, json: bool) -> Self {
        let display = ProgressDisplay::begin(name, json);
        Self { display, meter: RateMeter::default(), unit: "" }
    }

    /// Shows that `done` items are done, of `total` if that is known. Another unit than before begins
    /// a phase with a rate of its own.
    pub(crate) fn show(&mut self, text: &str, unit: &'static str, done: u64, total: Option<u64>) {
        let state = self.state_at(Instant::now(), text, unit, WorkAmount { done, total });
        self.display.show(&state);
    }

    fn state_at(
        &mut self,
        now: Instant,
        text: &str,
        unit: &'static str,
        WorkAmount { done, total }: WorkAmount,
    ) -> WorkState {
        if unit != self.unit {
            (self.meter, self.unit) = (RateMeter::default(), unit);
        }
        self.meter.note(now, done);
        let text = format!("{text}{}", self.meter.text(unit, total));
        WorkState { done, total: total.map(|total| total.max(done)), text }
    }
}

/// Amount of work.
#[derive(Clone, Copy, Debug)]
struct WorkAmount {
    done: u64,
    total: Option<u64>,
}

/// Formats the time left, behind another text: `, 3 min 5 s left`.
pub(crate) fn left_text(left: Duration) -> String {
    format!(", {} left", span(left))
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
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_rate_needs_two_seconds_and_growth() {
        let (mut meter, began) = (RateMeter::default(), Instant::now());
        assert_eq!((meter.per_second(), meter.left(10)), (None, None));
        meter.note(began, 0);
        meter.note(began + SECOND, 50);
        assert_eq!((meter.per_second(), meter.text("records", Some(100))), (None, String::new()));
        meter.note(began + SECOND * 5, 100);
        assert_eq!(meter.text("records", Some(500)), ", 20 records/s, 20 s left");
        assert_eq!(meter.text("records", None), ", 20 records/s");
        assert_eq!(left_text(SECOND * 90_061), ", 1 d 1 h left");
        assert_eq!(meter.text("records", Some(99)), ", 20 records/s", "the total was too low");
        meter.note(began + SECOND * 100, 100);
        meter.note(began + SECOND * 101, 100);
        meter.note(began + SECOND * 132, 100);
        assert_eq!(meter.text("records", Some(500)), "", "nothing has grown for half a minute");
    }

    #[test]
    fn a_counter_that_falls_begins_a_new_phase() {
        let (mut meter, began) = (RateMeter::default(), Instant::now());
        meter.note(began, 0);
        meter.note(began + SECOND * 4, 400);
        assert_eq!(meter.left(800), Some(SECOND * 4));
        meter.note(began + SECOND * 5, 1);
        assert_eq!(meter.left(800), None);
        meter.note(began + SECOND * 15, 6);
        assert_eq!(meter.text("items", Some(11)), ", 0.5 items/s, 10 s left");
    }

    #[test]
    fn counted_work_has_a_rate_for_each_unit() {
        let (mut work, began) = (CountedWork::begin("test", true), Instant::now());
        let mut at = |seconds: u32, unit: &'static str, done: u64, total: Option<u64>| {
            let amount = WorkAmount { done, total };
            work.state_at(began + SECOND * seconds, "some", unit, amount)
        };
        assert_eq!(at(0, "files", 0, None).text, "some");
        let state = at(4, "files", 200, Some(400));
        assert_eq!(state.text, "some, 50 files/s, 4 s left");
        assert_eq!((state.done, state.total), (200, Some(400)));
        assert_eq!(at(5, "items", 1000, Some(2000)).text, "some", "a new phase has no rate yet");
        assert_eq!(at(9, "items", 1400, Some(2000)).text, "some, 100 items/s, 6 s left");
        assert_eq!(at(10, "items", 2001, Some(2000)).total, Some(2001));
    }

    #[test]
    fn samples_are_bounded() {
        let (mut meter, began) = (RateMeter::default(), Instant::now());
        for ms in 0..60_000 {
            meter.note(began + Duration::from_millis(ms), ms);
        }
        assert!(meter.0.len() <= 310, "{}", meter.0.len());
        assert_eq!(meter.text("items", Some(69_999)), ", 1000 items/s, 10 s left");
    }

    #[test]
    fn lines_are_sparse_and_json_has_none() {
        let state = WorkState { text: "5 seen".into(), ..WorkState::default() };
        let began = Instant::now();
        let form = DisplayForm::Lines(began + LINE_EVERY);
        let mut display = ProgressDisplay { name: "rewrap of b".into(), form };
        let lines: Vec<String> =
            (0..25).filter_map(|at| display.line_at(&state, began + SECOND * at)).collect();
        assert_eq!(lines, ["rewrap of b: 5 seen", "rewrap of b: 5 seen"]);
        let mut json = ProgressDisplay::begin("rewrap", true);
        assert_eq!(json.line_at(&state, began + SECOND * 100), None);
    }
}
