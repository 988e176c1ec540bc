//! Threads of a device that send cached bytes of extents to sockets.
//!
//! Each thread waits for all of its sockets at once by `epoll`, and sends 2 MiB at most to one after
//! the other. So no filling of a socket needs a switch of threads. A device has one such thread for
//! each four cores, four at most; each starts with the first send that it gets.
//!
//! Invariants:
//! * A thread sends from pages that were in memory when it looked up one byte of each 256 KiB. If the
//!   kernel dropped a page since, the thread waits for this disk, and with it other sends of the
//!   device. No call of its [`Pool`] waits for them, and a send that took [`SLOW_AFTER`] goes on there.
//! * A thread that hangs has no pulse. Then its sends fail, and the device is suspect.
//! * A send ends after [`SENDS_FOR`], or after [`SILENT_MAX`] without progress.
//! * A thread ends once nothing refers to its [`Senders`]. One that failed is replaced by the next send.

use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::{Errno, read, write};
use tokio::sync::oneshot;

use super::open::OpenExtent;
use crate::device::pool::Pool;
use crate::device::pulse::{DevicePart, Pulse, SENDERS_MAX};

/// Most bytes that a socket gets in its turn.
const SENT_AT_ONCE_MAX: u64 = 2 * 1024 * 1024;
/// Distance of the bytes that are looked up in the page cache.
const PROBE_BYTES: u64 = 256 * 1024;
/// Longest time of a send: its caller counts what was sent.
const SENDS_FOR: Duration = Duration::from_secs(1);
/// Longest time that a send waits for a socket that takes nothing.
const SILENT_MAX: Duration = Duration::from_millis(500);
/// Time of a call that did not find all of its bytes in memory.
const SLOW_AFTER: Duration = Duration::from_millis(20);
/// Cores for each thread.
const CORES_EACH: usize = 4;
/// Most events of one wait; others come with the next one.
const EVENTS_MAX: usize = 256;
/// Key of the descriptor that wakes a thread.
const WAKE: u64 = 0;

/// Sending threads of one device.
pub(super) struct Senders {
    threads: Vec<SenderThread>,
    pool: Arc<Pool>,
}

/// A thread, once it has started, and what callers share with it.
#[derive(Default)]
struct SenderThread(Mutex<Option<Arc<SenderShared>>>);

struct SenderShared {
    /// Readable after a change of `arrived`.
    wake: OwnedFd,
    /// Sends that the thread has not taken; none once the thread has ended, or has to.
    arrived: Mutex<Option<Vec<Sending>>>,
    /// Sends that have not ended.
    count: AtomicUsize,
}

/// End of a call that sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// The socket took all bytes, or a further call returns an error.
    Taken,
    /// The socket takes none now, or the time of the call is up.
    Full,
    /// The call failed after its bytes, and a thread that hangs may send the next ones later. The caller
    /// sends nothing more, and ends the connection.
    Failed,
}

/// Outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedSend {
    /// Number of bytes that the socket took.
    pub(super) bytes: u64,
    /// Reason for the end of the send. None if the next bytes are not in memory.
    pub(super) end: Option<SendEnd>,
    /// Time in which the socket took nothing.
    pub(super) waited: Duration,
}

/// A send that has not ended.
struct Sending {
    extent: Arc<OpenExtent>,
    socket: Arc<OwnedFd>,
    range: Range<u64>,
    /// First byte that the socket has not taken.
    at: u64,
    /// End of the bytes that were looked up.
    probed_to: u64,
    began: Instant,
    took_at: Instant,
    /// Time since which the socket takes nothing.
    waits_since: Option<Instant>,
    /// Earlier times in which the socket took nothing.
    waited: Duration,
    is_watched: bool,
    reply: oneshot::Sender<Result<CachedSend>>,
}

impl Senders {
    /// Creates the senders of a device. No thread starts.
    pub(super) fn new(pool: Arc<Pool>) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let count = cores.div_ceil(CORES_EACH).min(SENDERS_MAX);
        Arc::new(Self { threads: (0..count).map(|_| SenderThread::default()).collect(), pool })
    }

    /// Sends bytes of `range` that are in memory to a socket that doesn't block.
    ///
    /// # Errors
    /// Those before the first byte. `Unavailable` if the device or the thread hangs, the socket is
    /// closed, or no thread can start.
    pub(super) async fn send(
        &self,
        extent: &Arc<OpenExtent>,
        socket: &Arc<OwnedFd>,
        range: Range<u64>,
    ) -> Result<CachedSend> {
        let (reply, outcome) = oneshot::channel();
        let (began, at) = (Instant::now(), range.start);
        let sending = Sending {
            extent: extent.clone(),
            socket: socket.clone(),
            range,
            at,
            probed_to: at,
            began,
            took_at: began,
            waits_since: None,
            waited: Duration::ZERO,
            is_watched: false,
            reply,
        };
        let (thread, shared) = self.least_used()?;
        self.pool.pulse().check(DevicePart::Sends(thread))?;
        shared.hand_over(sending)?;
        let ended = async {
            outcome.await.unwrap_or_else(|_| Err(Error::internal("a thread that sends panicked")))
        };
        self.pool.pulse().wait(ended).await?
    }

    /// Number and state of the thread with the fewest sends, started if need be.
    fn least_used(&self) -> Result<(usize, Arc<SenderShared>)> {
        let count = |(_, thread): &(usize, &SenderThread)| {
            thread.0.lock().as_ref().map_or(0, |shared| shared.count.load(Ordering::Relaxed))
        };
        let threads = self.threads.iter().enumerate();
        let (number, thread) = threads.min_by_key(count).expect("a device has a thread");
        let mut started = thread.0.lock();
        if let Some(shared) = started.as_ref().filter(|shared| !shared.has_ended()) {
            return Ok((number, shared.clone()));
        }
        let part = DevicePart::Sends(number);
        let shared = SenderShared::start(self.pool.name(), self.pool.pulse().clone(), part)?;
        *started = Some(shared.clone());
        Ok((number, shared))
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        for thread in &self.threads {
            if let Some(shared) = thread.0.lock().take() {
                shared.end();
            }
        }
    }
}

impl SenderShared {
    fn start(device: &str, pulse: Arc<Pulse>, part: DevicePart) -> Result<Arc<Self>> {
        let failed = |error: std::io::Error| {
            let message = format!("device {device} has no thread that sends");
            Error::unavailable(message).with_source(error)
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|errno| failed(errno.into()))?;
        let set = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        epoll::add(&set, &wake, EventData::new_u64(WAKE), EventFlags::IN)
            .map_err(|errno| failed(errno.into()))?;
        let shared = Arc::new(Self {
            wake,
            arrived: Mutex::new(Some(Vec::new())),
            count: AtomicUsize::new(0),
        });
        let sender = SenderLoop {
            shared: shared.clone(),
            pulse,
            part,
            set,
            sends: HashMap::new(),
            ready: VecDeque::new(),
            next_key: WAKE + 1,
        };
        let thread = std::thread::Builder::new().name(format!("send-{device}"));
        thread.spawn(move || sender.work()).map_err(failed)?;
        Ok(shared)
    }

    fn has_ended(&self) -> bool {
        self.arrived.lock().is_none()
    }

    fn hand_over(&self, sending: Sending) -> Result<()> {
        match &mut *self.arrived.lock() {
            Some(arrived) => arrived.push(sending),
            None => return Err(Error::unavailable("the thread that sends has ended")),
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.rouse().map_err(|errno| {
            Error::unavailable("a thread that sends can't be woken").with_source(errno)
        })
    }

    fn end(&self) {
        *self.arrived.lock() = None;
        if let Err(error) = self.rouse() {
            tracing::error!(%error, "a thread that sends stays");
        }
    }

    /// Wakes the thread.
    fn rouse(&self) -> rustix::io::Result<()> {
        match write(&self.wake, &1_u64.to_ne_bytes()) {
            // The counter is at its maximum: the thread wakes anyway.
            Err(Errno::AGAIN) => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }
}

/// State of a thread.
struct SenderLoop {
    shared: Arc<SenderShared>,
    pulse: Arc<Pulse>,
    part: DevicePart,
    set: OwnedFd,
    sends: HashMap<u64, Sending>,
    /// Keys of sends whose socket may take bytes.
    ready: VecDeque<u64>,
    next_key: u64,
}

impl SenderLoop {
    fn work(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut looked_at = Instant::now();
        loop {
            if let Err(errno) = self.wait(&mut events) {
                // Callers receive an error as their replies are dropped.
                tracing::error!(error = %errno, "a thread that sends can't wait for its sockets");
                return;
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE if !self.take_arrivals() => return,
                    WAKE => {}
                    key => self.ready.push_back(key),
                }
            }
            for _ in 0..self.ready.len() {
                let key = self.ready.pop_front().expect("the length was read");
                self.go_on(key);
            }
            let now = Instant::now();
            if now - looked_at >= SILENT_MAX {
                looked_at = now;
                self.end_silent(now);
            }
        }
    }

    fn wait(&self, events: &mut Vec<Event>) -> rustix::io::Result<()> {
        let timeout = match (self.ready.is_empty(), self.sends.is_empty()) {
            (false, _) => Some(Duration::ZERO),
            (true, false) => Some(SILENT_MAX),
            (true, true) => None,
        };
        let timeout = timeout.map(|time| Timespec::try_from(time).expect("a second at most"));
        match epoll::wait(&self.set, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Takes new sends. Returns false if the thread has to end.
    fn take_arrivals(&mut self) -> bool {
        // Arrivals after this read wake the thread once more.
        let _ = read(&self.shared.wake, &mut [0; 8]);
        let Some(arrived) = self.shared.arrived.lock().as_mut().map(std::mem::take) else {
            return false;
        };
        for sending in arrived {
            let key = self.next_key;
            self.next_key += 1;
            self.sends.insert(key, sending);
            self.ready.push_back(key);
        }
        true
    }

    /// Gives a socket its turn.
    fn go_on(&mut self, key: u64) {
        // A send that ended may have an event left.
        let Some(sending) = self.sends.get_mut(&key) else { return };
        if sending.reply.is_closed() {
            // The caller has gone.
            return self.end(key, Ok(Some(SendEnd::Full)));
        }
        let turn = {
            let _beat = self.pulse.begin(self.part);
            sending.turn()
        };
        match turn {
            Turn::Again => self.ready.push_back(key),
            Turn::Ends(outcome) => self.end(key, outcome),
            Turn::Waits if sending.is_watched => {}
            Turn::Waits => {
                let flags = EventFlags::OUT | EventFlags::ET;
                sending.is_watched = true;
                let data = EventData::new_u64(key);
                if let Err(errno) = epoll::add(&self.set, &sending.socket, data, flags) {
                    sending.is_watched = false;
                    let error = Error::unavailable("a socket can't be awaited");
                    self.end(key, Err(error.with_source(errno)));
                }
            }
        }
    }

    fn end(&mut self, key: u64, outcome: Result<Option<SendEnd>>) {
        let Some(mut sending) = self.sends.remove(&key) else { return };
        sending.end_wait();
        if sending.is_watched
            && let Err(error) = epoll::delete(&self.set, &sending.socket)
        {
            tracing::error!(%error, "a socket stays watched");
        }
        self.shared.count.fetch_sub(1, Ordering::Relaxed);
        let bytes = sending.at - sending.range.start;
        let outcome = match outcome {
            // A further send meets the error before its first byte.
            Err(_) if bytes > 0 => Ok(Some(SendEnd::Taken)),
            outcome => outcome,
        };
        // The caller may have gone.
        let waited = sending.waited;
        let _ = sending.reply.send(outcome.map(|end| CachedSend { bytes, end, waited }));
    }

    /// Ends sends whose sockets take nothing, or whose callers have gone.
    fn end_silent(&mut self, now: Instant) {
        let is_silent =
            |sending: &Sending| now - sending.took_at >= SILENT_MAX || sending.reply.is_closed();
        let silent = self.sends.iter().filter(|(_, sending)| is_silent(sending));
        for key in silent.map(|(key, _)| *key).collect::<Vec<u64>>() {
            self.end(key, Ok(Some(SendEnd::Full)));
        }
    }
}

impl Drop for SenderLoop {
    /// Lets callers fail, whatever ended the thread.
    fn drop(&mut self) {
        *self.shared.arrived.lock() = None;
    }
}

/// Outcome of a socket's turn.
enum Turn {
    /// The socket may take more.
    Again,
    /// The socket takes none now.
    Waits,
    /// The send ends, for a reason of [`CachedSend`].
    Ends(Result<Option<SendEnd>>),
}

impl Sending {
    /// Adds the time since the socket took nothing. A thread that waited for the disk meanwhile may come late, so no more
    /// than [`SILENT_MAX`] is added.
    fn end_wait(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.waited += since.elapsed().min(SILENT_MAX);
        }
    }

    fn turn(&mut self) -> Turn {
        self.end_wait();
        let end = self.range.end.min(self.at + SENT_AT_ONCE_MAX);
        match self.is_cached(end) {
            Ok(true) => {}
            Ok(false) => return Turn::Ends(Ok(None)),
            Err(error) => return Turn::Ends(Err(error)),
        }
        let length = usize::try_from(end - self.at).expect("a turn has few bytes");
        let began = Instant::now();
        match self.extent.file.send(self.socket.as_fd(), self.extent.base + self.at, length) {
            Ok(None) => {
                self.waits_since = Some(Instant::now());
                Turn::Waits
            }
            Err(error) => Turn::Ends(Err(error)),
            Ok(Some(bytes)) => {
                self.at += bytes as u64;
                self.took_at = Instant::now();
                if self.at == self.range.end {
                    Turn::Ends(Ok(Some(SendEnd::Taken)))
                } else if self.took_at - began >= SLOW_AFTER {
                    Turn::Ends(Ok(None))
                } else if self.took_at - self.began >= SENDS_FOR {
                    Turn::Ends(Ok(Some(SendEnd::Full)))
                } else {
                    Turn::Again
                }
            }
        }
    }

    /// Looks bytes up to `end` up in the page cache, one of each [`PROBE_BYTES`].
    fn is_cached(&mut self, end: u64) -> Result<bool> {
        while self.probed_to < end {
            let mut byte = [0];
            if self.extent.file.read_nowait(&mut byte, self.extent.base + self.probed_to)? == 0 {
                return Ok(false);
            }
            self.probed_to = self.range.end.min(self.probed_to + PROBE_BYTES);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::pulse::STALL_AFTER;

    fn senders() -> Arc<Senders> {
        Senders::new(Arc::new(Pool::new("tested".to_owned(), STALL_AFTER)))
    }

    #[tokio::test]
    async fn a_thread_starts_with_its_first_send_and_ends_with_its_senders() {
        let senders = senders();
        assert!(senders.threads.iter().all(|thread| thread.0.lock().is_none()));
        let (_, shared) = senders.least_used().unwrap();
        assert_eq!(Arc::strong_count(&shared), 3, "the senders, the thread and this test");
        drop(senders);
        while Arc::strong_count(&shared) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(shared.has_ended(), "a send would wait for ever");
    }

    #[tokio::test]
    async fn a_thread_that_ended_early_is_replaced() {
        let senders = senders();
        let (number, first) = senders.least_used().unwrap();
        first.end();
        let (again, second) = senders.least_used().unwrap();
        assert_eq!(again, number);
        assert!(!Arc::ptr_eq(&first, &second) && !second.has_ended());
    }

    #[test]
    fn the_thread_with_the_fewest_sends_is_used() {
        let mut senders = senders();
        let more = Arc::get_mut(&mut senders).unwrap();
        more.threads = (0..3).map(|_| SenderThread::default()).collect();
        for _ in 0..3 {
            senders.least_used().unwrap().1.count.fetch_add(7, Ordering::Relaxed);
        }
        let started = senders.threads.iter().filter_map(|thread| thread.0.lock().clone());
        let counts: Vec<usize> = started.map(|it| it.count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [7, 7, 7]);
    }
}
