//! Queue of waiting requests: fair by key, then by connection. Values only.
//!
//! Keys take turns. Within a key, parts and completions of uploads alternate with reads and other
//! requests; new uploads go once no part of the key waits, in the place of parts. Among requests of
//! one key and kind, connections take turns: a request's *round* is the number of requests that its
//! connection had served or has waiting, and a new connection begins at the current round.
//!
//! Each step costs O(log n), and O(keys) where keys are skipped or the last request of a key leaves.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use crate::operation::Operation;

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
    arrivals: u64,
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
    arrival: u64,
}

#[derive(Debug)]
struct KeyQueue<T> {
    lanes: [Lane<T>; 3],
    /// True if a request that is no upload was served last.
    served_other: bool,
}

#[derive(Debug)]
struct Lane<T> {
    requests: BTreeMap<Rank, (usize, T)>,
    connections: HashMap<usize, Line>,
    /// Round of the latest request that was served.
    round: u64,
}

/// Requests of one connection.
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
    /// Adds a request of a key on a connection.
    pub(super) fn push(
        &mut self,
        key: K,
        kind: RequestKind,
        connection: usize,
        request: T,
    ) -> Position<K> {
        let ring = &mut self.ring;
        let queue = self.keys.entry(key).or_insert_with(|| {
            ring.push_back(key);
            KeyQueue::default()
        });
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.waiting[kind.number()] += 1;
        let rank = queue.lanes[kind.number()].push(arrival, connection, request);
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

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { requests: BTreeMap::new(), connections: HashMap::new(), round: 0 }
    }
}

impl<T> Lane<T> {
    fn push(&mut self, arrival: u64, connection: usize, request: T) -> Rank {
        let line = self.connections.entry(connection).or_default();
        let round = line.next_round.max(self.round);
        line.next_round = round + 1;
        line.waiting += 1;
        let rank = Rank { round, arrival };
        self.requests.insert(rank, (connection, request));
        rank
    }

    fn pop(&mut self) -> Option<(Rank, T)> {
        let rank = *self.requests.first_key_value()?.0;
        self.round = rank.round;
        Some((rank, self.remove(rank)?))
    }

    fn remove(&mut self, rank: Rank) -> Option<T> {
        let (connection, request) = self.requests.remove(&rank)?;
        if let Some(line) = self.connections.get_mut(&connection) {
            line.waiting -= 1;
            if line.waiting == 0 {
                self.connections.remove(&connection);
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

    fn drain(queue: &mut Queue) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop(|_, _| true)).collect()
    }

    #[test]
    fn keys_take_turns_however_much_one_of_them_wants() {
        let mut queue = Queue::default();
        for _ in 0..5 {
            queue.push(1, RequestKind::Other, 1, "greedy");
        }
        queue.push(2, RequestKind::Other, 2, "modest");
        queue.push(3, RequestKind::Upload, 3, "third");
        assert_eq!(drain(&mut queue)[..4], ["greedy", "modest", "third", "greedy"]);
        assert!(queue.is_clean());
    }

    #[test]
    fn connections_of_a_key_take_turns_and_newcomers_pass_no_waiting_round() {
        let mut queue = Queue::default();
        for name in ["a1", "a2", "a3"] {
            queue.push(1, RequestKind::Other, 1, name);
        }
        queue.push(1, RequestKind::Other, 2, "b1");
        assert_eq!(queue.pop(|_, _| true), Some("a1"));
        assert_eq!(queue.pop(|_, _| true), Some("b1"));
        assert_eq!(queue.pop(|_, _| true), Some("a2"));
        queue.push(1, RequestKind::Other, 3, "c1");
        queue.push(1, RequestKind::Other, 3, "c2");
        assert_eq!(drain(&mut queue), ["c1", "a3", "c2"]);
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
            queue.push(1, kind, 1, name);
        }
        assert_eq!(RequestKind::ALL.map(|kind| queue.waiting(kind)), [2, 1, 2]);
        assert_eq!(queue.waiting_keys().map(|(_, count)| count).collect::<Vec<_>>(), [5]);
        assert_eq!(drain(&mut queue), ["read", "part", "list", "complete", "upload"]);
    }

    #[test]
    fn keys_that_may_not_are_skipped_and_keep_their_place() {
        let mut queue = Queue::default();
        queue.push(1, RequestKind::Other, 1, "first");
        queue.push(2, RequestKind::Other, 2, "second");
        assert_eq!(queue.pop(|key, _| *key != 1), Some("second"));
        assert_eq!(queue.pop(|key, _| *key != 1), None);
        queue.push(3, RequestKind::Other, 3, "third");
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
            steps in prop::collection::vec((0u8..4, 0usize..3, 0usize..4, 0u8..4), 1..200),
        ) {
            let mut queue: FairQueue<u8, usize> = FairQueue::default();
            let mut waiting = HashMap::new();
            for (number, (key, kind, connection, act)) in steps.into_iter().enumerate() {
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
                        }
                    }
                    _ => {
                        let kind = RequestKind::ALL[kind];
                        waiting.insert(number, queue.push(key, kind, connection, number));
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
