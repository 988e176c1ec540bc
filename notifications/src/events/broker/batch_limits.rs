//! Limits on the messages of a batch, for brokers that are too slow for a whole read of the spool,
//! or that refuse a batch for one of its messages.
//!
//! A batch that ends without an acknowledgement is sent again as a whole, so a broker that stores it
//! after the time of the attempt gets copies without end. Halved batches end that.
//!
//! Invariant: a limit is kept only for parts that have failed or have a batch under way.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Limit that no read of the spool reaches.
const COUNT_MAX: usize = 1 << 16;

/// End of a batch that a broker has answered, or whose connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchEnd {
    /// All messages were acknowledged: a batch of the full limit doubles it.
    Acknowledged,
    /// The broker had too little time: the limit is halved.
    Slow,
    /// The broker refused the batch for one of its messages: the next one has one message.
    Refused,
    /// The number of messages is not at fault.
    Failed,
}

/// Limit of one part of a lane.
#[derive(Debug)]
struct PartLimit {
    count_max: usize,
    /// Messages of the batch under way.
    under_way: Option<usize>,
}

/// Limits of a lane's parts: its partitions in Kafka, and one part elsewhere.
#[derive(Debug, Default)]
pub(super) struct BatchLimits {
    parts: Mutex<BTreeMap<i32, PartLimit>>,
}

impl BatchLimits {
    /// Begins a batch of the first of `count` messages. Returns the number of its messages, which is
    /// zero only if `count` is. If the part's last batch did not end, its time was over, and the
    /// limit is halved.
    pub(super) fn begin(&self, part: i32, count: usize) -> usize {
        let mut parts = self.parts.lock();
        let limit =
            parts.entry(part).or_insert(PartLimit { count_max: COUNT_MAX, under_way: None });
        if let Some(under_way) = limit.under_way {
            limit.count_max = half(under_way);
        }
        let count = count.min(limit.count_max);
        limit.under_way = Some(count);
        count
    }

    /// Ends the batch of a part.
    pub(super) fn end(&self, part: i32, end: BatchEnd) {
        let mut parts = self.parts.lock();
        let Some(limit) = parts.get_mut(&part) else { return };
        let Some(count) = limit.under_way.take() else { return };
        match end {
            BatchEnd::Acknowledged if count >= limit.count_max => limit.count_max *= 2,
            BatchEnd::Acknowledged | BatchEnd::Failed => {}
            BatchEnd::Slow => limit.count_max = half(count),
            BatchEnd::Refused => limit.count_max = 1,
        }
        if limit.count_max >= COUNT_MAX {
            parts.remove(&part);
        }
    }
}

fn half(count: usize) -> usize {
    (count / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_shrink_while_they_are_slow_and_grow_again() {
        let limits = BatchLimits::default();
        assert_eq!(limits.begin(0, 26_000), 26_000);
        // The time of the attempt was over: no end.
        assert_eq!(limits.begin(0, 26_000), 13_000);
        limits.end(0, BatchEnd::Slow);
        assert_eq!(limits.begin(0, 26_000), 6500);
        limits.end(0, BatchEnd::Failed);
        assert_eq!(limits.begin(0, 26_000), 6500);
        limits.end(0, BatchEnd::Acknowledged);
        assert_eq!(limits.begin(0, 26_000), 13_000);
        limits.end(0, BatchEnd::Refused);
        for _ in 0..3 {
            assert_eq!(limits.begin(0, 5), 1, "a batch has one message at least");
        }
        let mut count = 1;
        while count < 26_000 {
            limits.end(0, BatchEnd::Acknowledged);
            count *= 2;
            assert_eq!(limits.begin(0, 26_000), count.min(26_000));
        }
    }

    #[test]
    fn parts_without_failures_are_forgotten() {
        let limits = BatchLimits::default();
        for part in 0..100 {
            assert_eq!(limits.begin(part, 3), 3);
        }
        for part in 0..100 {
            limits.end(part, if part == 7 { BatchEnd::Slow } else { BatchEnd::Acknowledged });
        }
        assert_eq!(limits.parts.lock().keys().copied().collect::<Vec<_>>(), [7]);
        assert_eq!((limits.begin(7, 3), limits.begin(8, 3)), (1, 3));
        limits.end(9, BatchEnd::Slow);
        assert_eq!(limits.begin(9, 3), 3, "no batch was under way");
    }
}
