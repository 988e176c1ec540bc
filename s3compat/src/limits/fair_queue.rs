//! Queue of waiting requests: fair by key, then by flow. Values only.
//!
//! Keys take turns. Within a key, parts and completions of uploads alternate with reads and other
//! requests; new uploads go once no part of the key waits, in the place of parts. Among requests of
//! one key and kind, *flows* take turns: requests of one client for one object. A request's *round*
//! is one above that of the request of its flow before, and a new flow begins at the current round.
//! Each fourth turn goes to the oldest request, so that many new flows keep no other out.
//!
//! Each step costs O(log n), and O(keys) where keys are skipped or the last request of a key leaves.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use crate::operation::Operation;

/// One of so many turns of a key and kind goes to the oldest request.
const OLDEST_EACH: u8 = 4;

/// Kinds of requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A part or the completion of an upload.
    Part,
    /// A new upload: a body that begins, or a multipart upload.
    Upload,
    /// A read, a listing, or any other request.
    Other,
}

impl RequestKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Part, Self::Upload, Self::Other];

    /// Kind of an operation's requests.
    pub(crate) const fn of(operation: Operation) -> Self {
        match operation {
            Operation::UploadPart
            | Operation::UploadPartCopy
            | Operation::CompleteMultipartUpload => Self::Part,
            Operation::PutObject
            | Operation::PostObject
            | Operation::CopyObject
            | Operation::CreateMultipartUpload => Self::Upload,
            _ => Self::Other,
        }
    }

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Part => "part",
            Self::Upload => "upload",
            Self::Other => "other",
        }
    }

    const fn number(self) -> usize {
        self as usize
    }
}

/// Waiting requests.
#[derive(Debug)]
pub(super) struct FairQueue<K, T> {
    keys: HashMap<K, KeyQueue<T>>,
    /// Keys with requests, in the order of their turns.
    ring: VecDeque<K>,
    waiting: [usize; 3],
    arrivals: Arrival,
}

/// Place of a request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position<K> {
    key: K,
    kind: RequestKind,
    rank: Rank,
}

/// Order among requests of a key and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    round: u64,
    arrival: Arrival,
}

/// Number of a request in the order of arrivals.
pub(super) type Arrival = u64;

/// A request that is to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRequest {
    pub(super) kind: RequestKind,
    /// Client and object of the request.
    pub(super) flow: u64,
    /// Arrival of the same request before, if it is a repetition.
    pub(super) since: Option<Arrival>,
}

#[derive(Debug)]
struct KeyQueue<T> {
    lanes: [Lane<T>; 3],
    /// True if a request that is no upload was served last.
    served_other: bool,
}

#[derive(Debug)]
struct Lane<T> {
    requests: BTreeMap<Rank, (u64, T)>,
    /// Arrival and round of each request.
    oldest: BTreeSet<(Arrival, u64)>,
    flows: HashMap<u64, Line>,
    /// Round of the latest request that was served in order of rounds.
    round: u64,
    /// Turns since the oldest request had one.
    since_oldest: u8,
}

/// Requests of one flow.
#[derive(Debug, Default)]
struct Line {
    waiting: usize,
    next_round: u64,
}

impl<K: Copy + Eq + Hash, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        let (keys, ring) = (HashMap::new(), VecDeque::new());
        Self { keys, ring, waiting: [0; 3], arrivals: 0 }
    }
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    /// Adds a request of a key. A repetition is as old as the request that it repeats, which must
    /// have left the queue, and is of the current round: it was there before the rest of its flow.
    pub(super) fn push(&mut self, key: K, new: NewRequest, request: T) -> Position<K> {
        let NewRequest { kind, flow, since } = new;
        let ring = &mut self.ring;
        let queue = self.keys.entry(key).or_insert_with(|| {
            ring.push_back(key);
            KeyQueue::default()
        });
        let lane = &mut queue.lanes[kind.number()];
        self.waiting[kind.number()] += 1;
        let rank = if let Some(arrival) = since {
            Rank { round: lane.round, arrival }
        } else {
            self.arrivals += 1;
            Rank { round: lane.next_round(flow), arrival: self.arrivals }
        };
        lane.insert(rank, flow, request);
        Position { key, kind, rank }
    }

    /// Takes a request out, wherever it stands. None if it was popped.
    pub(super) fn remove(&mut self, position: &Position<K>) -> Option<T> {
        let Position { key, kind, rank } = position;
        let queue = self.keys.get_mut(key)?;
        let removed = queue.lanes[kind.number()].remove(*rank)?;
        self.waiting[kind.number()] -= 1;
        if queue.is_empty() {
            self.keys.remove(key);
            self.ring.retain(|other| other != key);
        }
        Some(removed)
    }

    /// Takes the next request whose key may have a turn. `may_have` is given one of the key's
    /// requests.
    pub(super) fn pop(&mut self, may_have: impl Fn(&K, &T) -> bool) -> Option<T> {
        let keys = &self.keys;
        let is_next =
            |key: &K| keys.get(key).and_then(KeyQueue::any).is_some_and(|it| may_have(key, it));
        let at = self.ring.iter().position(is_next)?;
        let key = self.ring.remove(at)?;
        let queue = self.keys.get_mut(&key)?;
        let kind = queue.next_kind()?;
        let (_, request) = queue.lanes[kind.number()].pop()?;
        queue.served_other = kind == RequestKind::Other;
        self.waiting[kind.number()] -= 1;
        if queue.is_empty() {
            self.keys.remove(&key);
        } else {
            self.ring.push_back(key);
        }
        Some(request)
    }

    /// Keys that wait, each with one of its requests and their number.
    pub(super) fn waiting_keys(&self) -> impl Iterator<Item = (&T, usize)> {
        self.keys.values().filter_map(|queue| Some((queue.any()?, queue.len())))
    }

    /// Number of waiting requests of a kind.
    pub(super) fn waiting(&self, kind: RequestKind) -> usize {
        self.waiting[kind.number()]
    }

    #[cfg(test)]
    fn is_clean(&self) -> bool {
        self.keys.is_empty() && self.ring.is_empty() && self.waiting == [0; 3]
    }
}

impl<T> Default for KeyQueue<T> {
    fn default() -> Self {
        Self { lanes: [Lane::default(), Lane::default(), Lane::default()], served_other: false }
    }
}

impl<T> KeyQueue<T> {
    fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.requests.is_empty())
    }

    fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.requests.len()).sum()
    }

    fn any(&self) -> Option<&T> {
        let mut requests = self.lanes.iter().filter_map(|lane| lane.requests.first_key_value());
        requests.next().map(|(_, (_, request))| request)
    }

    /// Kind of the request that is next.
    fn next_kind(&self) -> Option<RequestKind> {
        use RequestKind::{Other, Part, Upload};
        let order = if self.served_other { [Part, Upload, Other] } else { [Other, Part, Upload] };
        order.into_iter().find(|kind| !self.lanes[kind.number()].requests.is_empty())
    }
}

impl<K> Position<K> {
    /// Arrival of the request.
    pub(super) const fn arrival(&self) -> Arrival {
        self.rank.arrival
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        let (requests, oldest, flows) = (BTreeMap::new(), BTreeSet::new(), HashMap::new());
        Self { requests, oldest, flows, round: 0, since_oldest: 0 }
    }
}

impl<T> Lane<T> {
    /// Round of a flow's next request.
    fn next_round(&mut self, flow: u64) -> u64 {
        let line = self.flows.entry(flow).or_default();
        let round = line.next_round.max(self.round);
        line.next_round = round + 1;
        round
    }

    fn insert(&mut self, rank: Rank, flow: u64, request: T) {
        self.flows.entry(flow).or_default().waiting += 1;
        self.requests.insert(rank, (flow, request));
        self.oldest.insert((rank.arrival, rank.round));
    }

    fn pop(&mut self) -> Option<(Rank, T)> {
        let rank = if self.since_oldest + 1 == OLDEST_EACH {
            let (arrival, round) = *self.oldest.first()?;
            self.since_oldest = 0;
            Rank { round, arrival }
        } else {
            let rank = *self.requests.first_key_value()?.0;
            self.since_oldest += 1;
            self.round = rank.round;
            rank
        };
        Some((rank, self.remove(rank)?))
    }

    fn remove(&mut self, rank: Rank) -> Option<T> {
        let (flow, request) = self.requests.remove(&rank)?;
        self.oldest.remove(&(rank.arrival, rank.round));
        if let Some(line) = self.flows.get_mut(&flow) {
            line.waiting -= 1;
            if line.waiting == 0 {
                self.flows.remove(&flow);
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Queue = FairQueue<u8, &'static str>;

    fn of(kind: RequestKind, flow: u64) -> NewRequest {
        NewRequest { kind, flow, since: None }
    }

    fn drain(queue: &mut Queue) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop(|_, _| true)).collect()
    }

    #[test]
    fn keys_take_turns_despite_a_greedy_one() {
        let mut queue = Queue::default();
        for _ in 0..5 {
            queue.push(1, of(RequestKind::Other, 1), "greedy");
        }
        queue.push(2, of(RequestKind::Other, 2), "modest");
        queue.push(3, of(RequestKind::Upload, 3), "third");
        assert_eq!(drain(&mut queue)[..4], ["greedy", "modest", "third", "greedy"]);
        assert!(queue.is_clean());
    }

    #[test]
    fn flows_of_a_key_take_turns_and_newcomers_pass_no_waiting_round() {
        let mut queue = Queue::default();
        for name in ["a1", "a2", "a3", "a4", "a5", "a6"] {
            queue.push(1, of(RequestKind::Other, 1), name);
        }
        queue.push(1, of(RequestKind::Other, 2), "b1");
        let first: Vec<_> = (0..4).filter_map(|_| queue.pop(|_, _| true)).collect();
        assert_eq!(first, ["a1", "b1", "a2", "a3"], "the last as the oldest");
        for name in ["c1", "c2", "c3"] {
            queue.push(1, of(RequestKind::Other, 3), name);
        }
        assert_eq!(drain(&mut queue), ["c1", "c2", "a4", "a5", "c3", "a6"]);
        assert!(queue.is_clean());
    }

    #[test]
    fn the_oldest_request_passes_all_new_flows_at_each_fourth_turn() {
        let mut queue = Queue::default();
        for name in ["old 1", "old 2", "old 3", "old 4"] {
            queue.push(1, of(RequestKind::Other, 1), name);
        }
        let mut popped = Vec::new();
        for flow in 2..14 {
            queue.push(1, of(RequestKind::Other, flow), "new");
            popped.extend(queue.pop(|_, _| true));
        }
        let old: Vec<_> = popped.iter().copied().filter(|it| *it != "new").collect();
        assert_eq!(old, ["old 1", "old 2", "old 3", "old 4"], "{popped:?}");
        drain(&mut queue);
        assert!(queue.is_clean());
    }

    #[test]
    fn repetitions_are_as_old_as_what_they_repeat() {
        let mut queue = Queue::default();
        let first = queue.push(1, of(RequestKind::Part, 1), "first");
        for flow in 2..8 {
            queue.push(1, of(RequestKind::Part, flow), "other");
        }
        assert_eq!(queue.remove(&first), Some("first"), "its time is over");
        let since = Some(first.arrival());
        queue.push(1, NewRequest { since, ..of(RequestKind::Part, 2) }, "again");
        assert_eq!(queue.pop(|_, _| true), Some("again"));
        assert_eq!(drain(&mut queue), ["other"; 6]);
        assert!(queue.is_clean());
    }

    #[test]
    fn parts_go_before_new_uploads_and_neither_keeps_reads_out() {
        let mut queue = Queue::default();
        for (kind, name) in [
            (RequestKind::Upload, "upload"),
            (RequestKind::Part, "part"),
            (RequestKind::Other, "read"),
            (RequestKind::Part, "complete"),
            (RequestKind::Other, "list"),
        ] {
            queue.push(1, of(kind, 1), name);
        }
        assert_eq!(RequestKind::ALL.map(|kind| queue.waiting(kind)), [2, 1, 2]);
        assert_eq!(queue.waiting_keys().map(|(_, count)| count).collect::<Vec<_>>(), [5]);
        assert_eq!(drain(&mut queue), ["read", "part", "list", "complete", "upload"]);
    }

    #[test]
    fn keys_that_may_not_are_skipped_and_keep_their_place() {
        let mut queue = Queue::default();
        queue.push(1, of(RequestKind::Other, 1), "first");
        queue.push(2, of(RequestKind::Other, 2), "second");
        assert_eq!(queue.pop(|key, _| *key != 1), Some("second"));
        assert_eq!(queue.pop(|key, _| *key != 1), None);
        queue.push(3, of(RequestKind::Other, 3), "third");
        assert_eq!(drain(&mut queue), ["first", "third"]);
    }

    #[test]
    fn operations_have_kinds() {
        assert_eq!(RequestKind::of(Operation::UploadPart), RequestKind::Part);
        assert_eq!(RequestKind::of(Operation::CompleteMultipartUpload), RequestKind::Part);
        assert_eq!(RequestKind::of(Operation::CreateMultipartUpload), RequestKind::Upload);
        assert_eq!(RequestKind::of(Operation::PutObject), RequestKind::Upload);
        assert_eq!(RequestKind::of(Operation::GetObject), RequestKind::Other);
        assert_eq!(RequestKind::ALL.map(RequestKind::number), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn each_request_leaves_once_and_nothing_is_left_behind(
            steps in prop::collection::vec((0u8..4, 0usize..3, 0u64..4, 0u8..5), 1..200),
        ) {
            let mut queue: FairQueue<u8, usize> = FairQueue::default();
            let mut waiting = HashMap::new();
            // Arrivals of requests that left without a turn.
            let mut left_early = Vec::new();
            for (number, (key, kind, flow, act)) in steps.into_iter().enumerate() {
                match act {
                    0 => {
                        let popped = queue.pop(|other, _| *other != key);
                        let could = waiting.values().any(|it: &Position<u8>| it.key != key);
                        prop_assert_eq!(popped.is_some(), could);
                        if let Some(popped) = popped {
                            let position = waiting.remove(&popped).expect("it waited");
                            prop_assert!(position.key != key && queue.remove(&position).is_none());
                        }
                    }
                    1 => {
                        if let Some(&left) = waiting.keys().min() {
                            let position = waiting.remove(&left).expect("it waits");
                            prop_assert_eq!(queue.remove(&position), Some(left));
                            left_early.push(position.arrival());
                        }
                    }
                    _ => {
                        let since = if act == 2 { left_early.pop() } else { None };
                        let new = NewRequest { since, ..of(RequestKind::ALL[kind], flow) };
                        waiting.insert(number, queue.push(key, new, number));
                    }
                }
                let counted: usize = RequestKind::ALL.iter().map(|it| queue.waiting(*it)).sum();
                prop_assert_eq!(counted, waiting.len());
            }
            while let Some(popped) = queue.pop(|_, _| true) {
                prop_assert!(waiting.remove(&popped).is_some());
            }
            prop_assert!(waiting.is_empty() && queue.is_clean());
        }
    }
}
