//! Requests of `martlet top`: one part after the other, on a thread of their own.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use martlet_admin_api as wire;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::jobs::{JOBS, JobLine};
use martlet_serving::Failure;
use martlet_top::metrics::Reading;
use martlet_top::{Answer, Part, Reply, escaped};

use super::event::{Event, Fetched};
use crate::admin::{AdminEndpoint, PollFailure};

/// Timeout of a request. The status of a large cluster takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);
const METRICS: &str = "/metrics";

/// Queried process, with the clock of the view.
pub(super) struct Source {
    endpoint: AdminEndpoint,
    begun: Instant,
}

/// Thread that requests sets of parts.
pub(super) struct Fetcher {
    sets: Sender<Vec<Part>>,
    thread: JoinHandle<()>,
}

impl Source {
    /// Makes the source of a process. The clock starts at zero.
    pub(super) fn new(endpoint: AdminEndpoint) -> Self {
        Self { endpoint: endpoint.patient(PATIENCE), begun: Instant::now() }
    }

    /// Returns the address of the process.
    pub(super) fn address(&self) -> String {
        self.endpoint.address().to_string()
    }

    /// Returns the start of the clock.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits until the clock reaches a time.
    pub(super) fn wait_until(&self, time: Duration) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let left = time.saturating_sub(self.begun.elapsed());
        runtime?.block_on(async { tokio::time::sleep(left).await });
        Ok(())
    }

    /// Requests a part.
    pub(super) fn fetch(&self, part: Part) -> Fetched {
        let begun = Instant::now();
        let reply = match self.reply(part) {
            Ok(reply) => Ok(reply),
            Err(PollFailure::Credential(failure)) => {
                return Fetched::Refused(Failure::refused(escaped(&failure.to_string())));
            }
            Err(PollFailure::Passing(failure)) => Err(failure.to_string()),
        };
        let (at_ms, took_ms) = (ms(self.begun.elapsed()), ms(begun.elapsed()));
        Fetched::Answer(Answer { part, reply, at_ms, took_ms })
    }

    fn reply(&self, part: Part) -> Result<Reply, PollFailure> {
        let endpoint = &self.endpoint;
        Ok(match part {
            Part::Metrics => {
                let page = endpoint.poll_text(METRICS)?;
                Reply::Metrics(Reading::parse(&page, ms(self.begun.elapsed())))
            }
            Part::Status => Reply::Status(endpoint.poll(wire::STATUS)?),
            Part::Capacity => Reply::Capacity(endpoint.poll(wire::CAPACITY)?),
            Part::Spread => Reply::Spread(endpoint.poll(wire::DISPERSION)?),
            Part::Jobs => Reply::Jobs(endpoint.poll::<ListPage<JobLine>>(JOBS)?.items),
        })
    }
}

impl Fetcher {
    /// Starts the thread. It ends with the receiver of the events.
    pub(super) fn start(source: Source, events: SyncSender<Event>) -> Self {
        let (sets, received) = channel();
        let thread = thread::spawn(move || serve(&source, &received, &events));
        Self { sets, thread }
    }

    /// Requests a set of parts. The caller waits for [`Event::SetDone`] before the next set.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) fn request(&self, set: Vec<Part>) -> Result<(), Failure> {
        self.sets.send(set).map_err(|_| ended())
    }

    /// Checks that the thread runs.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.thread.is_finished() { Err(ended()) } else { Ok(()) }
    }
}

fn ended() -> Failure {
    Failure::refused("the requests ended by a fault of this program: start it again, and report it")
}

fn serve(source: &Source, sets: &Receiver<Vec<Part>>, events: &SyncSender<Event>) {
    for set in sets {
        for part in set {
            if events.send(Event::Fetched(source.fetch(part))).is_err() {
                return;
            }
        }
        if events.send(Event::SetDone).is_err() {
            return;
        }
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
