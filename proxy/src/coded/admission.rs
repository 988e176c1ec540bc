//! Memory budget of writes that wait for their clients, without deadlock.
//!
//! Bytes of bodies count against one budget over all writes, `Shared::buffer`. They are of two
//! kinds:
//!
//! * *Going*: data and finished parity in channels. A device takes them or is given up within
//!   minutes, whatever the client does. So their share always returns.
//! * *Pinned*: unfinished parity; bytes of a body of unknown length, until they suffice for a
//!   coded extent; and copies of at most 1 MiB, which devices gather until they are whole. Their
//!   share returns only after the client has sent more bytes, which need shares of the first kind.
//!
//! Writers with only pinned bytes that wait for each other's shares would deadlock. So:
//!
//! * A writer reserves all pinned bytes of an extent before its first byte, and has no other
//!   extent pinned. So no writer holds pinned bytes while it waits for a reserve.
//! * Pinned bytes take at most half of the budget; further writers wait for a turn. Copies in the
//!   background take at most a quarter, and a single chunk at most another quarter. So a waiting
//!   chunk gets its share once others have gone, and its writer finishes the extent unless its
//!   client stalls.
//! * A client whose extent stands longer than its [`Pace`] allows is given up once a writer waits
//!   for a turn. The latest client is given up first. So slow clients are served while memory is
//!   free, and block no other writer when it is not.
//! * Turns are given in order of arrival. A writer that waits longer than [`TURN_TIME`] fails as
//!   unavailable.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, interval_at, timeout};

use crate::channel::Permit;

/// Longest wait of a write for its turn.
const TURN_TIME: Duration = Duration::from_mins(1);
/// Interval at which a waiting write checks for slow clients.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time that an extent may wait for its client before its first byte counts.
const PACE_GRACE: Duration = Duration::from_secs(5);
/// Additional time until its last byte, in milliseconds. It is shorter than [`TURN_TIME`].
const PACE_MS: u64 = 30_000;

/// Turns for pinned bytes.
pub(crate) struct Admission {
    turns: Arc<Semaphore>,
    pinned_bytes_max: usize,
    pinned: Arc<Mutex<PinnedExtents>>,
}

/// Paces of all extents that stand.
#[derive(Default)]
struct PinnedExtents {
    next: u64,
    paces: HashMap<u64, Arc<Pace>>,
}

/// Reserved pinned bytes of an extent. Their shares move to the data that is sent to devices.
pub(crate) struct Reserve {
    bytes: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
    place: Registration,
}

/// Registration of an extent in [`PinnedExtents`], until it is dropped.
struct Registration {
    pinned: Arc<Mutex<PinnedExtents>>,
    at: u64,
    pace: Arc<Pace>,
}

/// Progress of a client with its pinned extent. Only time counts in which the extent waits for
/// the client, not time in which devices are waited for.
pub(crate) struct Pace {
    /// Maximum length of the extent, in bytes.
    length: u64,
    progress: Mutex<Progress>,
    given_up: watch::Sender<bool>,
}

#[derive(Default)]
struct Progress {
    arrived: u64,
    waited: Duration,
    waits_since: Option<Instant>,
}

impl Admission {
    /// Admission for a store whose writes may hold `buffer_bytes_max` bytes together.
    pub(crate) fn new(buffer_bytes_max: usize) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let pinned_bytes_max = (buffer_bytes_max / 2).clamp(1, most);
        let turns = Arc::new(Semaphore::new(pinned_bytes_max));
        Self { turns, pinned_bytes_max, pinned: Arc::default() }
    }

    /// Waits until `bytes` may stand for an extent of at most `length` bytes. Larger requests are
    /// cut to the limit.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](martlet_protocol::ErrorKind::Unavailable) after [`TURN_TIME`].
    pub(crate) async fn reserve(
        &self,
        buffer: &Arc<Semaphore>,
        bytes: u64,
        length: u64,
    ) -> Result<Reserve> {
        let bytes = usize::try_from(bytes)
            .map_or(self.pinned_bytes_max, |bytes| bytes.clamp(1, self.pinned_bytes_max));
        let share = u32::try_from(bytes).expect("the reserve was clamped to the limit");
        let reserved = async {
            let turn = self.turn(share).await?;
            let bytes = buffer.clone().acquire_many_owned(share).await.ok()?;
            Some(Reserve { bytes, _turn: turn, place: self.place(length) })
        };
        let reserved = timeout(TURN_TIME, reserved).await.ok().flatten();
        reserved.ok_or_else(|| Error::unavailable("too many concurrent uploads: try again"))
    }

    /// Waits for a turn; at each interval gives up at most one slow client.
    async fn turn(&self, share: u32) -> Option<OwnedSemaphorePermit> {
        let mut turn = Box::pin(self.turns.clone().acquire_many_owned(share));
        let mut looks = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => return turn.ok(),
                _ = looks.tick() => self.give_up_slowest(),
            }
        }
    }

    /// Gives up the client that is latest, if any is late.
    fn give_up_slowest(&self) {
        let pinned = self.pinned.lock();
        let late = pinned.paces.values().filter_map(|pace| Some((pace.lateness()?, pace)));
        if let Some((_, slowest)) = late.max_by_key(|(lateness, _)| *lateness) {
            slowest.given_up.send_replace(true);
        }
    }

    fn place(&self, length: u64) -> Registration {
        let pace = Arc::new(Pace {
            length: length.max(1),
            progress: Mutex::default(),
            given_up: watch::Sender::new(false),
        });
        let mut pinned = self.pinned.lock();
        let at = pinned.next;
        pinned.next += 1;
        pinned.paces.insert(at, pace.clone());
        Registration { pinned: self.pinned.clone(), at, pace }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.pinned.lock().paces.remove(&self.at);
    }
}

impl Reserve {
    /// The share of `bytes` that no longer stand.
    pub(crate) fn share(&mut self, bytes: usize) -> Permit {
        self.bytes.split(bytes.min(self.bytes.num_permits())).map(Arc::new)
    }

    /// Progress of the client.
    pub(crate) fn pace(&self) -> &Arc<Pace> {
        &self.place.pace
    }
}

impl Pace {
    /// Counts bytes that arrived for the extent.
    pub(crate) fn arrived(&self, bytes: usize) {
        self.progress.lock().arrived += bytes as u64;
    }

    /// Waits for a client's next bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](martlet_protocol::ErrorKind::Unavailable) if the client is given
    /// up.
    pub(crate) async fn wait_for<F: Future>(&self, client: F) -> Result<F::Output> {
        self.progress.lock().waits_since = Some(Instant::now());
        let mut given_up = self.given_up.subscribe();
        let output = tokio::select! {
            biased;
            output = client => Ok(output),
            _ = given_up.wait_for(|given_up| *given_up) => {
                Err(Error::unavailable("the body arrived too slowly while other uploads waited: \
                                        try again"))
            }
        };
        let mut progress = self.progress.lock();
        let waited = progress.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        progress.waited += waited;
        output
    }

    /// Time by which the client is late for the bytes that arrived. None if the extent isn't
    /// waiting for the client, or if the client was already given up.
    fn lateness(&self) -> Option<Duration> {
        let progress = self.progress.lock();
        let waited = progress.waited + progress.waits_since?.elapsed();
        // No overflow: an extent has at most 64 MiB.
        let earned = PACE_MS * progress.arrived.min(self.length) / self.length;
        let late = waited.checked_sub(PACE_GRACE + Duration::from_millis(earned))?;
        (!*self.given_up.borrow()).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use martlet_protocol::ErrorKind;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_of_the_budget_may_stand_and_a_long_wait_fails() {
        let (buffer, admission) = (Arc::new(Semaphore::new(100)), Admission::new(100));
        let mut first = admission.reserve(&buffer, 30, 60).await.unwrap();
        let _second = admission.reserve(&buffer, 20, 40).await.unwrap();
        let begun = Instant::now();
        let refused = admission.reserve(&buffer, 1, 2).await.err().unwrap();
        assert_eq!((refused.kind(), begun.elapsed()), (ErrorKind::Unavailable, TURN_TIME));
        assert_eq!(buffer.available_permits(), 50);
        let going = first.share(20);
        drop(first);
        assert_eq!(buffer.available_permits(), 60, "what goes keeps its share");
        let _third = admission.reserve(&buffer, 30, 60).await.unwrap();
        drop(going);
        assert_eq!(buffer.available_permits(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_order_and_a_reserve_is_never_more_than_there_is() {
        let (buffer, admission) = (Arc::new(Semaphore::new(100)), Admission::new(100));
        let first = admission.reserve(&buffer, 1_000_000, 1).await.unwrap();
        assert_eq!(first.bytes.num_permits(), 50);
        let mut large = Box::pin(admission.reserve(&buffer, 50, 1));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = Box::pin(admission.reserve(&buffer, 1, 1));
        assert!(small.as_mut().now_or_never().is_none());
        drop(first);
        let large = large.await.unwrap();
        assert!(small.as_mut().now_or_never().is_none(), "it came later");
        drop(large);
        let mut small = small.await.unwrap();
        assert!(small.share(1).is_some());
        assert!(small.share(1).is_none_or(|share| share.num_permits() == 0));
        drop(small);
        assert!(admission.pinned.lock().paces.is_empty());
    }

    /// Sends an extent of 100 bytes over `time`; returns true if it was sent to its end.
    async fn send_over(admission: &Admission, buffer: &Arc<Semaphore>, time: Duration) -> bool {
        let reserve = admission.reserve(buffer, 25, 100).await.unwrap();
        for _ in 0..100 {
            if reserve.pace().wait_for(sleep(time / 100)).await.is_err() {
                return false;
            }
            reserve.pace().arrived(1);
        }
        true
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_given_up_once_another_waits_and_the_slowest_first() {
        let (buffer, admission) = (Arc::new(Semaphore::new(100)), Admission::new(100));
        let slow = Duration::from_hours(1);
        assert!(send_over(&admission, &buffer, slow).await, "nobody waits");
        let stalled = send_over(&admission, &buffer, slow);
        let steady = send_over(&admission, &buffer, Duration::from_millis(PACE_MS));
        let other = async {
            sleep(Duration::from_millis(1)).await;
            let begun = Instant::now();
            drop(admission.reserve(&buffer, 25, 100).await.unwrap());
            begun.elapsed()
        };
        let (stalled, steady, waited) = futures::join!(stalled, steady, other);
        assert_eq!((stalled, steady), (false, true));
        assert!(waited <= PACE_GRACE + 2 * LOOK_EVERY, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_devices_are_waited_for_is_not_the_client_s() {
        let (buffer, admission) = (Arc::new(Semaphore::new(100)), Admission::new(100));
        let reserve = admission.reserve(&buffer, 50, 100).await.unwrap();
        reserve.pace().wait_for(sleep(Duration::from_secs(1))).await.unwrap();
        let refused = admission.reserve(&buffer, 25, 100).await;
        assert!(refused.is_err(), "a device holds all of it");
        reserve.pace().wait_for(sleep(Duration::from_secs(1))).await.unwrap();
    }
}
