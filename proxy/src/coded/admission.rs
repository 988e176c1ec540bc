//! What coded writes may hold of memory before it can go to devices, and why nobody waits for ever.
//!
//! Bytes of bodies count against one budget over all writes, `Shared::buffer`. There are two kinds:
//!
//! * *Going*: data and finished parity in pipes. A device takes them, or is given up within minutes,
//!   whatever their writer does: what is going comes back by itself.
//! * *Standing*: parity that is being added up, and bytes of a body whose length nobody knows, until
//!   they are enough for an extent. They go when their writer has got more bytes, for which it needs
//!   shares of the first kind.
//!
//! Writers that all stand and wait for each other's shares would wait for ever. So:
//!
//! * A writer takes all that an extent will have standing at once, before the extent's first byte, and
//!   has no other extent standing. So nobody stands and waits for a reserve.
//! * All that stands is at most half of the budget: who wants to stand waits for a turn first. Copies
//!   behind their writes have a quarter at most, and no single piece of data takes more than another
//!   quarter. So a piece that waits gets its share once others have gone, and the writer that pushes it
//!   comes to the end of its extent, unless its client doesn't.
//! * Turns come in the order in which they were asked for. Who has waited for one for long, because
//!   clients are slow, is told to come back later.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::pipe::Permit;

/// How long a write waits for its turn.
const TURN_TIME: Duration = Duration::from_mins(1);

/// Whose turn it is to have bytes standing.
pub(crate) struct Admission {
    turns: Arc<Semaphore>,
    standing_bytes_max: usize,
}

/// What an extent may have standing. Shares of it go along with what goes to devices.
pub(crate) struct Reserve {
    bytes: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
}

impl Admission {
    /// For a store whose writes may hold `buffer_bytes_max` together.
    pub(crate) fn new(buffer_bytes_max: usize) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let standing_bytes_max = (buffer_bytes_max / 2).clamp(1, most);
        Self { turns: Arc::new(Semaphore::new(standing_bytes_max)), standing_bytes_max }
    }

    /// Waits until `bytes` may stand. Who wants more than can ever be gets all there is.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](martlet_protocol::ErrorKind::Unavailable) when that takes too long.
    pub(crate) async fn reserve(&self, buffer: &Arc<Semaphore>, bytes: u64) -> Result<Reserve> {
        let bytes = usize::try_from(bytes)
            .map_or(self.standing_bytes_max, |bytes| bytes.clamp(1, self.standing_bytes_max));
        let share = u32::try_from(bytes).expect("what may stand was clamped to it");
        let reserved = async {
            let turn = self.turns.clone().acquire_many_owned(share).await.ok()?;
            let bytes = buffer.clone().acquire_many_owned(share).await.ok()?;
            Some(Reserve { bytes, _turn: turn })
        };
        let reserved = timeout(TURN_TIME, reserved).await.ok().flatten();
        reserved.ok_or_else(|| Error::unavailable("too many bodies are on their way: try again"))
    }
}

impl Reserve {
    /// The share of bytes that stand no longer.
    pub(crate) fn share(&mut self, bytes: usize) -> Permit {
        self.bytes.split(bytes.min(self.bytes.num_permits())).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use martlet_protocol::ErrorKind;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_of_the_budget_may_stand_and_who_waits_too_long_is_told() {
        let (buffer, admission) = (Arc::new(Semaphore::new(100)), Admission::new(100));
        let mut first = admission.reserve(&buffer, 30).await.unwrap();
        let _second = admission.reserve(&buffer, 20).await.unwrap();
        let begun = Instant::now();
        let refused = admission.reserve(&buffer, 1).await.err().unwrap();
        assert_eq!((refused.kind(), begun.elapsed()), (ErrorKind::Unavailable, TURN_TIME));
        assert_eq!(buffer.available_permits(), 50);
        let going = first.share(20);
        drop(first);
        assert_eq!(buffer.available_permits(), 60, "what goes keeps its share");
        let _third = admission.reserve(&buffer, 30).await.unwrap();
        drop(going);
        assert_eq!(buffer.available_permits(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_order_and_a_reserve_is_never_more_than_there_is() {
        let (buffer, admission) = (Arc::new(Semaphore::new(100)), Admission::new(100));
        let first = admission.reserve(&buffer, 1_000_000).await.unwrap();
        assert_eq!(first.bytes.num_permits(), 50);
        let mut large = Box::pin(admission.reserve(&buffer, 50));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = Box::pin(admission.reserve(&buffer, 1));
        assert!(small.as_mut().now_or_never().is_none());
        drop(first);
        let large = large.await.unwrap();
        assert!(small.as_mut().now_or_never().is_none(), "it came later");
        drop(large);
        let mut small = small.await.unwrap();
        assert!(small.share(1).is_some());
        assert!(small.share(1).is_none_or(|share| share.num_permits() == 0));
    }
}
