//! One reader's bytes of an extent or fragment: read alone, or window by window in company.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use martlet_protocol::Result;

use super::cache::{Flight, Lookup, Outcome, Windows};
use super::readers::Seat;
use super::source::StoredBytes;
use super::table::{PIECE_BYTES, WINDOW_BYTES};

/// Windows that are fetched ahead of a reader.
const AHEAD: u64 = 3;
/// Shortest rest for which a running stream is given up to share windows.
const SWITCH_BYTES_MIN: u64 = 2 * WINDOW_BYTES;
/// Windows in a row that a reader finds dropped before it reads alone.
const MISSES_MAX: u32 = 3;

/// Bytes of a range.
pub(crate) struct SharedStream<S: StoredBytes> {
    windows: Arc<Windows>,
    source: S,
    /// Range not yielded yet.
    range: Range<u64>,
    /// None if the range is never shared.
    seat: Option<Seat>,
    state: State<S::Stream>,
}

enum State<T> {
    Opening(BoxFuture<'static, Result<T>>),
    Alone(T),
    InCompany(Company),
    Ended,
}

/// State of a reader that takes shared windows.
struct Company {
    /// True until a window was dropped, or the second one is taken.
    is_first: bool,
    /// Next bytes.
    next: Option<Bytes>,
    /// Index of the current window, and its bytes while they are kept for all readers.
    window: Option<(u64, Weak<[Bytes]>)>,
    waiting: Option<BoxFuture<'static, Outcome>>,
    /// Offset up to which windows were requested ahead.
    requested: u64,
    /// Fetches ahead, which end without readers.
    ahead: VecDeque<(u64, Flight)>,
    misses: u32,
}

impl<S: StoredBytes> SharedStream<S> {
    /// Opens a non-empty range. `is_in_company` is true if its reader met others in the extent
    /// before. The first bytes have arrived when this returns.
    pub(crate) async fn open(
        windows: &Arc<Windows>,
        source: S,
        range: Range<u64>,
        is_in_company: bool,
    ) -> Result<Self> {
        let seat = windows.sit(source.id(), source.length(), &range);
        let state = match &seat {
            Some(seat) if is_in_company || seat.met() => State::InCompany(Company::default()),
            _ => State::Opening(source.open(range.clone())),
        };
        let mut stream = Self { windows: windows.clone(), source, range, seat, state };
        poll_fn(|context| stream.poll_ready(context)).await?;
        Ok(stream)
    }

    /// Bytes not yielded yet.
    pub(crate) fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns true if other readers read the same bytes meanwhile.
    pub(crate) fn has_met(&self) -> bool {
        self.seat.as_ref().is_some_and(Seat::met)
    }

    /// Notes that other readers of the body need the same bytes.
    pub(crate) fn meet(&self) {
        if let Some(seat) = &self.seat {
            seat.meet();
        }
    }

    /// Reads the rest from nodes. It isn't shared any more.
    fn go_alone(&mut self) {
        self.seat = None;
        self.state = State::Opening(self.source.open(self.range.clone()));
    }

    /// Waits until the next bytes are there, or the end.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            match &mut self.state {
                State::Ended => return Poll::Ready(Ok(())),
                State::Alone(_) => {
                    if !self.has_met() || self.left() < SWITCH_BYTES_MIN {
                        return Poll::Ready(Ok(()));
                    }
                    self.state = State::InCompany(Company::default());
                }
                State::Opening(opening) => match ready!(opening.poll_unpin(context)) {
                    Ok(stream) => {
                        self.state = State::Alone(stream);
                        return Poll::Ready(Ok(()));
                    }
                    Err(error) => {
                        self.state = State::Ended;
                        return Poll::Ready(Err(error));
                    }
                },
                State::InCompany(company) => {
                    if company.next.is_some() || self.range.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    if !ready!(company.poll_arrived(context)) || !self.take_piece() {
                        self.go_alone();
                    }
                }
            }
        }
    }

    /// Takes the next piece of a window, or waits for the window's fetch. Returns false if neither
    /// is possible.
    fn take_piece(&mut self) -> bool {
        let State::InCompany(company) = &mut self.state else { return true };
        let offset = self.range.start;
        let index = offset / WINDOW_BYTES;
        if let Some((_, window)) = company.window.as_ref().filter(|(of, _)| *of == index) {
            company.next = window.upgrade().map(|window| piece(&window, &self.range));
            // A reader that is too slow for the others reads the rest by itself. The first window
            // is taken early, when the reader is still in the extent before: it comes once more.
            if company.next.is_some() || !std::mem::take(&mut company.is_first) {
                return company.next.is_some();
            }
            company.window = None;
        }
        match self.windows.look_up(&self.source, offset) {
            Lookup::Kept(window) => {
                company.misses = 0;
                company.is_first &= company.window.is_none();
                company.next = Some(piece(&window, &self.range));
                company.window = Some((index, Arc::downgrade(&window)));
                self.windows.count_served();
            }
            Lookup::Awaited(flight) if company.misses < MISSES_MAX => {
                company.misses += 1;
                company.waiting = Some(flight.end().boxed());
            }
            Lookup::Awaited(_) | Lookup::Full => return false,
        }
        company.fetch_ahead(&self.windows, &self.source, &self.range);
        true
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        match &mut self.state {
            State::Alone(stream) => {
                let next = ready!(stream.poll_next_unpin(context));
                if let Some(Ok(bytes)) = &next {
                    self.windows.count_read(bytes.len());
                }
                Poll::Ready(next)
            }
            State::InCompany(company) => Poll::Ready(company.next.take().map(Ok)),
            State::Opening(_) | State::Ended => Poll::Ready(None),
        }
    }
}

impl Default for Company {
    fn default() -> Self {
        let (window, waiting, ahead) = (None, None, VecDeque::new());
        Self { is_first: true, next: None, window, waiting, requested: 0, ahead, misses: 0 }
    }
}

impl Company {
    /// Waits for the fetch of the next window, if any. Returns false if it failed.
    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(true) };
        let outcome = ready!(waiting.poll_unpin(context));
        self.waiting = None;
        Poll::Ready(outcome == Outcome::Kept)
    }

    /// Requests the windows behind the first one of `range`, each once.
    fn fetch_ahead<S: StoredBytes>(
        &mut self,
        windows: &Arc<Windows>,
        source: &S,
        range: &Range<u64>,
    ) {
        let next = (range.start / WINDOW_BYTES + 1) * WINDOW_BYTES;
        self.ahead.retain(|(offset, _)| *offset >= next);
        let mut offset = next.max(self.requested);
        while offset < range.end.min(next + AHEAD * WINDOW_BYTES) {
            match windows.look_up(source, offset) {
                Lookup::Awaited(flight) => self.ahead.push_back((offset, flight)),
                Lookup::Kept(_) => {}
                Lookup::Full => break,
            }
            offset += WINDOW_BYTES;
        }
        self.requested = offset;
    }
}

/// Returns the first bytes of `range` in their window, up to the end of a piece.
fn piece(window: &[Bytes], range: &Range<u64>) -> Bytes {
    let at = |offset: u64| usize::try_from(offset).expect("a window fits in memory");
    let within = at(range.start % WINDOW_BYTES);
    let piece = &window[within / PIECE_BYTES];
    let from = within % PIECE_BYTES;
    let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    piece.slice(from..piece.len().min(from.saturating_add(left)))
}

impl<S: StoredBytes> Unpin for SharedStream<S> {}

impl<S: StoredBytes> Stream for SharedStream<S> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(error) = ready!(self.poll_ready(context)) {
            return Poll::Ready(Some(Err(error)));
        }
        let next = ready!(self.poll_bytes(context));
        match &next {
            Some(Ok(bytes)) => self.range.start += bytes.len() as u64,
            Some(Err(_)) | None => self.state = State::Ended,
        }
        Poll::Ready(next)
    }
}
