//! Counts of calls and errors, and the latency, in a stretch of time.

use std::time::Duration;

use martlet_protocol::consistency::AchievedLevel;

use super::recorder::Recorder;
use crate::checkers::{Operation, Response};

/// Counts of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeriodCounts {
    /// Name of the stretch.
    pub name: &'static str,
    /// Calls that ended.
    pub operations: usize,
    /// Writes and deletes that were acknowledged.
    pub written: usize,
    /// Calls of unknown outcome: 5xx, a lost connection, or a timeout.
    pub errors: usize,
    /// Replies that rest on less than a quorum.
    pub degraded: usize,
    /// Duration of the longest call with a known outcome.
    pub slowest: Duration,
    /// Length of the stretch.
    pub time: Duration,
}

impl PeriodCounts {
    fn of(name: &'static str, operations: &[&Operation], time: Duration) -> Self {
        let count =
            |wanted: fn(&Operation) -> bool| operations.iter().filter(|it| wanted(it)).count();
        let answered = operations.iter().filter(|it| it.outcome != Response::Unknown);
        let slowest = answered.map(|it| it.returned_at - it.invoked_at).max().unwrap_or(0);
        Self {
            name,
            operations: operations.len(),
            written: count(Operation::is_acknowledged_write),
            errors: count(|it| it.outcome == Response::Unknown),
            degraded: count(|it| it.given != AchievedLevel::Quorum),
            slowest: Duration::from_nanos(slowest),
            time,
        }
    }

    /// Asserts that at most `percent_max` percent of the calls failed, and that at least 10 writes
    /// were acknowledged.
    pub fn assert_errors(&self, percent_max: usize) -> &Self {
        let errors_max = self.operations * percent_max / 100;
        assert!(
            self.errors <= errors_max,
            "{} errors, {errors_max} at most: {self:?}",
            self.errors
        );
        assert!(self.written >= 10, "hardly anything was written: {self:?}");
        self
    }
}

impl Recorder {
    /// Counts the operations from number `from` on, which took `time`.
    pub fn tally(&self, name: &'static str, from: usize, time: Duration) -> PeriodCounts {
        let operations = self.operations.lock();
        let stretch: Vec<&Operation> = operations[from..].iter().map(|it| &it.operation).collect();
        let tally = PeriodCounts::of(name, &stretch, time);
        println!("{tally:?}");
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::{Invocation, Value};

    fn operation(call: Invocation, outcome: Response, nanoseconds: u64) -> Operation {
        let (client, key, given) = (1, "k".to_owned(), AchievedLevel::Quorum);
        let (invoked_at, returned_at) = (7, 7 + nanoseconds);
        Operation { client, key, call, invoked_at, returned_at, outcome, given }
    }

    #[test]
    fn errors_and_writes_are_counted() {
        let written = operation(Invocation::Put(Value(1)), Response::Done, 5);
        let unknown = operation(Invocation::Put(Value(2)), Response::Unknown, 90);
        let mut read = operation(Invocation::Get, Response::Read(None), 8);
        read.given = AchievedLevel::Degraded;
        let refused = operation(Invocation::Create(Value(3)), Response::Refused, 6);
        let mut all = vec![&written; 12];
        all.extend([&unknown, &read, &refused]);
        let tally = PeriodCounts::of("all", &all, Duration::from_secs(2));
        let counts = (tally.operations, tally.written, tally.errors, tally.degraded);
        assert_eq!(counts, (15, 12, 1, 1));
        assert_eq!(tally.slowest, Duration::from_nanos(8), "errors may take their time");
        tally.assert_errors(7);
    }

    #[test]
    #[should_panic(expected = "1 errors, 0 at most")]
    fn too_many_errors_fail_the_check() {
        let (written, unknown) = (
            operation(Invocation::Delete, Response::Done, 5),
            operation(Invocation::Get, Response::Unknown, 5),
        );
        let mut all = vec![&written; 12];
        all.push(&unknown);
        PeriodCounts::of("all", &all, Duration::from_secs(1)).assert_errors(7);
    }

    #[test]
    #[should_panic(expected = "hardly anything")]
    fn clients_that_do_nothing_meet_no_errors() {
        PeriodCounts::of("none", &[], Duration::from_secs(1)).assert_errors(100);
    }
}
