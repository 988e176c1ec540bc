//! Parts of a reading: the parts that a screen needs, and the time of the next request of each.

use crate::screen::Screen;

/// Least period of a status, which the process collects from all nodes.
const STATUS_MS: u64 = 5_000;
/// Least period of parts that count rings or collect from all nodes for a figure that moves slowly.
const SLOW_MS: u64 = 15_000;
/// A part rests at least this many times as long as its last request took.
const REST: u64 = 9;

/// Part of a reading: one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Metrics page of the queried process.
    Metrics,
    /// Status of the process and its cluster, with devices and workers.
    Status,
    /// Capacity of all devices, now and after moves.
    Capacity,
    /// Balance and dispersion of the rings.
    Spread,
    /// Jobs of the queried process.
    Jobs,
}

/// Times of the requests of a part, and its last failure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    /// Start of the last request.
    begun_ms: Option<u64>,
    /// Duration of the last request.
    took_ms: u64,
    /// Time of the last good reply.
    pub(crate) answered_ms: Option<u64>,
    /// Reason for the failure of the last request, escaped.
    pub(crate) error: Option<String>,
}

/// Slots of all parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    slots: [Slot; 5],
}

impl Part {
    /// All parts, in the order of their requests.
    pub const ALL: [Self; 5] =
        [Self::Metrics, Self::Status, Self::Capacity, Self::Spread, Self::Jobs];

    /// Returns the name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Status => "status",
            Self::Capacity => "capacity",
            Self::Spread => "dispersion",
            Self::Jobs => "jobs",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Metrics => 0,
            Self::Status => 1,
            Self::Capacity => 2,
            Self::Spread => 3,
            Self::Jobs => 4,
        }
    }

    fn is_needed_on(self, screen: Screen) -> bool {
        match self {
            Self::Metrics | Self::Status => true,
            Self::Capacity => matches!(screen, Screen::Overview | Screen::Devices),
            Self::Spread => screen == Screen::Rings,
            Self::Jobs => screen == Screen::Jobs,
        }
    }

    fn period_ms(self, interval_ms: u64) -> u64 {
        match self {
            Self::Metrics | Self::Jobs => interval_ms,
            Self::Status => interval_ms.max(STATUS_MS),
            Self::Capacity | Self::Spread => interval_ms.max(SLOW_MS),
        }
    }
}

impl Slot {
    fn is_due(&self, now_ms: u64, period_ms: u64) -> bool {
        let rest_ms = self.took_ms.saturating_mul(REST + 1);
        let next_ms = |begun_ms: u64| begun_ms.saturating_add(period_ms.max(rest_ms));
        self.begun_ms.is_none_or(|begun_ms| now_ms >= next_ms(begun_ms))
    }
}

impl Schedule {
    /// Returns the parts that a screen needs and whose time has come.
    pub(crate) fn due(&self, screen: Screen, now_ms: u64, interval_ms: u64) -> Vec<Part> {
        let needed = Part::ALL.into_iter().filter(|part| part.is_needed_on(screen));
        needed.filter(|it| self.of(*it).is_due(now_ms, it.period_ms(interval_ms))).collect()
    }

    /// Returns the slot of a part.
    pub(crate) fn of(&self, part: Part) -> &Slot {
        &self.slots[part.index()]
    }

    /// Records the start of a request.
    pub(crate) fn begin(&mut self, part: Part, now_ms: u64) {
        self.slots[part.index()].begun_ms = Some(now_ms);
    }

    /// Records the end of a request, with the reason if it failed.
    pub(crate) fn end(&mut self, part: Part, at_ms: u64, took_ms: u64, error: Option<String>) {
        let slot = &mut self.slots[part.index()];
        slot.took_ms = took_ms;
        if error.is_none() {
            slot.answered_ms = Some(at_ms);
        }
        slot.error = error;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_MS: u64 = 2_000;

    #[test]
    fn each_screen_requests_its_own_parts_at_their_periods() {
        let mut schedule = Schedule::default();
        let first = schedule.due(Screen::Overview, 0, INTERVAL_MS);
        assert_eq!(first, [Part::Metrics, Part::Status, Part::Capacity]);
        for part in first {
            schedule.begin(part, 0);
            schedule.end(part, 10, 10, None);
        }
        assert_eq!(schedule.due(Screen::Overview, 1_999, INTERVAL_MS), []);
        assert_eq!(schedule.due(Screen::Overview, 2_000, INTERVAL_MS), [Part::Metrics]);
        assert_eq!(schedule.due(Screen::Jobs, 1_000, INTERVAL_MS), [Part::Jobs]);
        assert_eq!(schedule.due(Screen::Rings, 1_000, INTERVAL_MS), [Part::Spread]);
        assert_eq!(schedule.due(Screen::Workers, 1_000, INTERVAL_MS), []);
        assert_eq!(schedule.due(Screen::Nodes, 5_000, INTERVAL_MS), [Part::Metrics, Part::Status]);
        assert_eq!(schedule.due(Screen::Nodes, 15_000, 60_000), []);
    }

    #[test]
    fn slow_replies_are_requested_seldom() {
        let mut schedule = Schedule::default();
        schedule.begin(Part::Status, 0);
        schedule.end(Part::Status, 4_000, 4_000, Some("timeout".into()));
        let due = |now_ms| schedule.due(Screen::Nodes, now_ms, INTERVAL_MS).contains(&Part::Status);
        assert!(!due(39_999) && due(40_000));
        assert_eq!(schedule.of(Part::Status).answered_ms, None);
    }
}
