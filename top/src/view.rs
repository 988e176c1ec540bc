//! View: the latest replies, the history of rates, and the user's arrangement of the screens.

use martlet_admin_api::ServerStatus;
use martlet_admin_api::forecast::{Capacity, RingSpread};
use martlet_admin_api::jobs::JobLine;

use ratatui::layout::Size;

use crate::listing::{Listing, Table};
use crate::metrics::{History, Reading};
use crate::schedule::{Part, Schedule, Slot};
use crate::screen::Screen;
use crate::space::Space;
use crate::tables;
use crate::text::escaped;

/// Reply to the request of a part.
#[derive(Debug)]
pub enum Reply {
    /// Reading of the metrics page.
    Metrics(Reading),
    /// Status.
    Status(Box<ServerStatus>),
    /// Capacity.
    Capacity(Box<Capacity>),
    /// Balance and dispersion.
    Spread(Vec<RingSpread>),
    /// Jobs.
    Jobs(Vec<JobLine>),
}

/// Outcome of the request of a part.
#[derive(Debug)]
pub struct Answer {
    /// Part.
    pub part: Part,
    /// Reply, or the reason for the failure.
    pub reply: Result<Reply, String>,
    /// Time of the outcome in milliseconds, by the clock of [`View::tick`].
    pub at_ms: u64,
    /// Duration of the request in milliseconds.
    pub took_ms: u64,
}

/// Effect of a key on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The program goes on.
    Continue,
    /// The user ends the program.
    Quit,
}

/// Meaning of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Keys are commands.
    #[default]
    Commands,
    /// Keys are characters of a filter.
    Filter,
    /// The help covers the screen.
    Help,
}

/// State of the program between two events.
#[derive(Debug, Default)]
pub struct View {
    address: String,
    interval_ms: u64,
    has_colour: bool,
    now_ms: u64,
    size: Size,
    schedule: Schedule,
    history: History,
    status: Option<Box<ServerStatus>>,
    capacity: Option<Box<Capacity>>,
    space: Option<Space>,
    spread: Option<Vec<RingSpread>>,
    listings: [Listing; 6],
    pub(crate) screen: Screen,
    pub(crate) is_paused: bool,
    pub(crate) mode: Mode,
}

impl View {
    /// Makes the view of the process at an address, before the first reply.
    pub fn new(address: &str, interval_ms: u64, has_colour: bool) -> Self {
        Self { address: escaped(address), interval_ms, has_colour, ..Self::default() }
    }

    /// Sets the time in milliseconds. The clock is the caller's and never goes back.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Sets the size of the terminal, by which page keys scroll.
    pub fn resize(&mut self, size: Size) {
        self.size = size;
    }

    /// Returns the parts to request now, in order; none while the view is paused.
    pub fn due(&self) -> Vec<Part> {
        if self.is_paused {
            return Vec::new();
        }
        self.schedule.due(self.screen, self.now_ms, self.interval_ms)
    }

    /// Records that the requests of parts begin.
    pub fn begin(&mut self, parts: &[Part]) {
        for part in parts {
            self.schedule.begin(*part, self.now_ms);
        }
    }

    /// Takes the outcome of a request. The last figures stay after a failure.
    pub fn apply(&mut self, answer: Answer) {
        let Answer { part, reply, at_ms, took_ms } = answer;
        self.now_ms = self.now_ms.max(at_ms);
        let error = match reply {
            Ok(reply) => {
                self.keep(reply);
                None
            }
            Err(reason) => Some(escaped(&reason)),
        };
        self.schedule.end(part, at_ms, took_ms, error);
    }

    fn keep(&mut self, reply: Reply) {
        match reply {
            Reply::Metrics(reading) => self.history.push(reading),
            Reply::Jobs(jobs) => self.replace(Screen::Jobs, tables::jobs(&jobs)),
            Reply::Spread(spread) => {
                self.spread = Some(spread);
                self.make_rings();
            }
            Reply::Capacity(capacity) => {
                self.space = Some(Space::of(&capacity));
                self.capacity = Some(capacity);
                self.make_devices();
            }
            Reply::Status(status) => {
                self.replace(Screen::Nodes, tables::nodes(&status));
                self.replace(Screen::Workers, tables::workers(&status));
                self.status = Some(status);
                self.make_devices();
                self.make_rings();
            }
        }
    }

    fn make_devices(&mut self) {
        let status = self.status.as_deref();
        let warnings = tables::warnings(status, self.capacity.as_deref());
        let devices = self.capacity.as_ref().map(|capacity| tables::devices(status, capacity));
        self.replace(Screen::Overview, warnings);
        if let Some(devices) = devices {
            self.replace(Screen::Devices, devices);
        }
    }

    fn make_rings(&mut self) {
        let rings =
            self.spread.as_ref().map(|spread| tables::rings(self.status.as_deref(), spread));
        if let Some(rings) = rings {
            self.replace(Screen::Rings, rings);
        }
    }

    fn replace(&mut self, screen: Screen, table: Table) {
        self.listings[screen.index()].replace(table);
    }

    /// Stops the requests, or continues them.
    pub(crate) fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        // A rate over the pause would be of no interest.
        self.history.interrupt();
    }

    /// Returns the size of the terminal.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Returns the table of the present screen.
    pub(crate) fn listing(&self) -> &Listing {
        self.listing_of(self.screen)
    }

    /// Returns the table of a screen.
    pub(crate) fn listing_of(&self, screen: Screen) -> &Listing {
        &self.listings[screen.index()]
    }

    /// Returns the table of the present screen, for changes.
    pub(crate) fn listing_mut(&mut self) -> &mut Listing {
        &mut self.listings[self.screen.index()]
    }

    /// Returns the requests of a part.
    pub(crate) fn slot(&self, part: Part) -> &Slot {
        self.schedule.of(part)
    }

    /// Returns the age of the figures of a part in milliseconds.
    pub(crate) fn age_ms(&self, part: Part) -> Option<u64> {
        self.slot(part).answered_ms.map(|at_ms| self.now_ms.saturating_sub(at_ms))
    }

    /// Returns the part that the table of a screen needs most.
    pub(crate) fn part_of(screen: Screen) -> Part {
        match screen {
            Screen::Overview | Screen::Nodes | Screen::Workers => Part::Status,
            Screen::Devices => Part::Capacity,
            Screen::Rings => Part::Spread,
            Screen::Jobs => Part::Jobs,
        }
    }

    /// Returns the address of the queried process, escaped.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns true if the terminal has colours.
    pub(crate) fn has_colour(&self) -> bool {
        self.has_colour
    }

    /// Returns the rates.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the last status.
    pub(crate) fn status(&self) -> Option<&ServerStatus> {
        self.status.as_deref()
    }

    /// Returns the space of all devices.
    pub(crate) fn space(&self) -> Option<&Space> {
        self.space.as_ref()
    }
}
