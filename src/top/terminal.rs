//! Terminal of `martlet top`: raw mode, which ends in any case, and the loop of events.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use martlet_serving::Failure;
use martlet_top::{Flow, View, draw};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input};

use super::event::{Event, Fetched};
use super::fetch::{Fetcher, Source};
use super::signals;

/// Events that wait for the screen thread at most. Senders wait beyond.
const EVENTS_MAX: usize = 64;
/// Longest wait for an event, after which due parts are requested.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time after which the screen is drawn without an event, because ages change.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// Terminal in raw mode, on its alternate screen. Dropping restores it; so does a panic.
struct RawTerminal(DefaultTerminal);

impl RawTerminal {
    fn open() -> Result<Self, Failure> {
        ratatui::try_init().map(Self).map_err(|error| {
            let _ = ratatui::try_restore();
            unusable(&error)
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // The hook of a panic has restored the terminal before its message.
        if !thread::panicking() {
            let _ = ratatui::try_restore();
        }
    }
}

fn unusable(error: &io::Error) -> Failure {
    Failure::refused(format!(
        "the terminal can't be used: {error}; print one reading with martlet top --once"
    ))
}

/// Shows the view until the user quits or a signal arrives.
pub(super) fn run(source: Source, view: View) -> Result<(), Failure> {
    let (events, received) = sync_channel(EVENTS_MAX);
    signals::watch(events.clone())?;
    let begun = source.begun();
    let fetcher = Fetcher::start(source, events.clone());
    let mut terminal = RawTerminal::open()?;
    thread::spawn(move || read_input(&events));
    let mut screen = ScreenLoop { view, fetcher, begun, is_requesting: false };
    screen.run(&mut terminal.0, &received)
}

fn read_input(events: &SyncSender<Event>) {
    loop {
        let event = event::read().map_or_else(Event::InputLost, Event::Input);
        let is_last = matches!(event, Event::InputLost(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// State of the screen thread.
struct ScreenLoop {
    view: View,
    fetcher: Fetcher,
    begun: Instant,
    /// True while a set of requests is under way.
    is_requesting: bool,
}

impl ScreenLoop {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        events: &Receiver<Event>,
    ) -> Result<(), Failure> {
        loop {
            self.request()?;
            let size = terminal.size().map_err(|error| unusable(&error))?;
            self.view.resize(size);
            terminal.draw(|frame| draw(frame, &self.view)).map_err(|error| unusable(&error))?;
            if self.wait(events)? == Flow::Quit {
                return Ok(());
            }
        }
    }

    /// Requests the parts that are due, unless a set is under way.
    fn request(&mut self) -> Result<(), Failure> {
        self.fetcher.check()?;
        let now_ms = self.begun.elapsed().as_millis();
        self.view.tick(u64::try_from(now_ms).unwrap_or(u64::MAX));
        let due = if self.is_requesting { Vec::new() } else { self.view.due() };
        if !due.is_empty() {
            self.view.begin(&due);
            self.fetcher.request(due)?;
            self.is_requesting = true;
        }
        Ok(())
    }

    /// Takes events until the screen must be drawn anew. Events that wait already are taken too, up
    /// to the length of the queue.
    fn wait(&mut self, events: &Receiver<Event>) -> Result<Flow, Failure> {
        let begun = Instant::now();
        while begun.elapsed() < DRAW_EVERY {
            match events.recv_timeout(LOOK_EVERY) {
                Err(RecvTimeoutError::Timeout) => self.request()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(Flow::Quit),
                Ok(first) => {
                    for event in std::iter::once(first).chain(events.try_iter().take(EVENTS_MAX)) {
                        if self.take(event)? == Flow::Quit {
                            return Ok(Flow::Quit);
                        }
                    }
                    break;
                }
            }
        }
        Ok(Flow::Continue)
    }

    fn take(&mut self, event: Event) -> Result<Flow, Failure> {
        match event {
            Event::Stop => return Ok(Flow::Quit),
            Event::Input(Input::Key(key)) => return Ok(self.view.press(key)),
            Event::Input(_) => {}
            Event::InputLost(error) => return Err(unusable(&error)),
            Event::SetDone => self.is_requesting = false,
            Event::Fetched(Fetched::Answer(answer)) => self.view.apply(answer),
            Event::Fetched(Fetched::Refused(failure)) => return Err(failure),
        }
        Ok(Flow::Continue)
    }
}
