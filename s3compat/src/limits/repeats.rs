//! Requests that left the queue without a turn, remembered until their clients repeat them.
//!
//! Without it a request that waited for its whole time begins anew behind all others, and under load
//! uses up its client's attempts. A repetition is recognised by its signer, kind and name. Equal
//! requests, such as those of ranks that read one object, come back to one place each.
//!
//! Each step costs O(1), on average.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::fair_queue::{Arrival, RequestKind};

/// Longest time between the end of a wait and the repetition: pauses of clients are shorter.
pub(super) const REPEATED_MAX: Duration = Duration::from_secs(30);

/// A request, as its repetition shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestId {
    /// Identity of its meters.
    pub(super) whose: usize,
    pub(super) kind: RequestKind,
    /// Hash of its name.
    pub(super) id: u64,
}

/// Requests that left, at most so many.
#[derive(Debug)]
pub(super) struct Repeats {
    /// Places of equal requests, in the order in which they left.
    known: HashMap<RequestId, VecDeque<(Arrival, Instant)>>,
    /// Requests in the order in which they left. Those that came again are in here too, until they
    /// would have been forgotten.
    order: VecDeque<(RequestId, Instant)>,
    most: usize,
}

impl Repeats {
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), order: VecDeque::new(), most }
    }

    /// Remembers a request that leaves at `now`.
    pub(super) fn remember(&mut self, id: RequestId, arrival: Arrival, now: Instant) {
        if self.most == 0 {
            return;
        }
        self.forget(now, 1);
        self.known.entry(id).or_default().push_back((arrival, now));
        self.order.push_back((id, now));
    }

    /// Arrival of the request before, if this one repeats it.
    pub(super) fn take(&mut self, id: &RequestId, now: Instant) -> Option<Arrival> {
        if self.known.is_empty() {
            return None;
        }
        self.forget(now, 0);
        let (arrival, left) = self.known.get_mut(id)?.pop_front()?;
        self.drop_empty(id);
        debug_assert!(now.duration_since(left) <= REPEATED_MAX);
        Some(arrival)
    }

    /// Forgets what is too old, and what leaves no room for so many requests.
    fn forget(&mut self, now: Instant, room: usize) {
        while let Some(&(id, left)) = self.order.front()
            && (self.order.len() + room > self.most || now.duration_since(left) > REPEATED_MAX)
        {
            self.order.pop_front();
            // The request may have come again since.
            let places = self.known.get_mut(&id);
            if let Some(places) = places.filter(|it| it.front().is_some_and(|it| it.1 == left)) {
                places.pop_front();
                self.drop_empty(&id);
            }
        }
    }

    fn drop_empty(&mut self, id: &RequestId) {
        if self.known.get(id).is_some_and(VecDeque::is_empty) {
            self.known.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: u64) -> RequestId {
        RequestId { whose: 1, kind: RequestKind::Part, id }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_is_known_once_and_for_some_time() {
        let (mut repeats, begun) = (Repeats::new(10), Instant::now());
        repeats.remember(id(1), 7, begun);
        repeats.remember(id(2), 8, begun);
        assert_eq!(repeats.take(&id(1), begun + REPEATED_MAX), Some(7));
        assert_eq!(repeats.take(&id(1), begun + REPEATED_MAX), None);
        let other = RequestId { kind: RequestKind::Other, ..id(2) };
        assert_eq!(repeats.take(&other, begun), None);
        assert_eq!(repeats.take(&id(2), begun + REPEATED_MAX + Duration::from_secs(1)), None);
        assert!(repeats.known.is_empty() && repeats.order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_again_is_remembered_anew() {
        let (mut repeats, begun) = (Repeats::new(10), Instant::now());
        let later = begun + Duration::from_secs(20);
        repeats.remember(id(1), 7, begun);
        assert_eq!(repeats.take(&id(1), begun), Some(7));
        repeats.remember(id(1), 7, later);
        assert_eq!(repeats.take(&id(1), later + REPEATED_MAX), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_remembered_than_may_be() {
        let (mut repeats, now) = (Repeats::new(3), Instant::now());
        for number in 0..1000 {
            repeats.remember(id(number), number, now);
            assert!(repeats.known.len() <= 3 && repeats.order.len() <= 3);
        }
        assert_eq!(repeats.take(&id(5), now), None);
        assert_eq!(repeats.take(&id(999), now), Some(999));
        let mut none = Repeats::new(0);
        none.remember(id(1), 1, now);
        assert!(none.known.is_empty() && none.order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn equal_requests_have_a_place_each() {
        let (mut repeats, begun) = (Repeats::new(10), Instant::now());
        let later = begun + Duration::from_secs(20);
        repeats.remember(id(1), 7, begun);
        repeats.remember(id(1), 8, later);
        repeats.remember(id(1), 9, later);
        assert_eq!(repeats.take(&id(1), later), Some(7));
        assert_eq!(repeats.take(&id(1), later + REPEATED_MAX), Some(8));
        // The first one was taken before, so its time forgets none of the others.
        assert_eq!(repeats.take(&id(1), later + REPEATED_MAX), Some(9));
        assert!(repeats.known.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_is_known_while_as_many_are_remembered_as_may_be() {
        let (mut repeats, now) = (Repeats::new(3), Instant::now());
        (1..=3).for_each(|number| repeats.remember(id(number), number, now));
        assert_eq!(repeats.take(&id(1), now), Some(1));
        let mut one = Repeats::new(1);
        one.remember(id(1), 1, now);
        assert_eq!(one.take(&id(1), now), Some(1));
    }
}
