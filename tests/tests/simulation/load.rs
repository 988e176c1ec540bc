//! Load of a run: the requests that its clients make, drawn from the seed. Most runs leave some kinds
//! of requests out, because a fault may show only where no other request hides it.

use super::chance::SharedRng;

/// Kinds of requests with their weights; some of them may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load<A>(Vec<(A, u64)>);

/// Requests on objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectAction {
    Put,
    Get,
    Delete,
    Create,
    Replace,
    DeleteFound,
    List,
    Upload,
    Copy,
}

/// Requests on checkpoint sets and their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetAction {
    Save,
    ListView,
    GetView,
    ReadByNumber,
    GetObject,
    ListObjects,
    DeleteObject,
    RemoveOldVersion,
    Publish,
    Withdraw,
    DeleteSet,
    Hold,
}

/// Requests of a run, on objects and on sets.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    pub(crate) objects: Load<ObjectAction>,
    pub(crate) sets: Load<SetAction>,
}

impl Loads {
    /// Draws the loads of a run.
    pub(crate) fn drawn(chance: &SharedRng) -> Self {
        Self { objects: Load::of_objects(chance), sets: Load::of_sets(chance) }
    }
}

impl<A: Copy + PartialEq> Load<A> {
    /// Draws a load. Four runs in ten have all kinds; in the others each kind is there with a
    /// probability of 60 %. Without any kind that writes, the first one is added.
    fn drawn(chance: &SharedRng, all: &[(A, u64)], writes: &[A]) -> Self {
        let mut chosen = all.to_vec();
        if chance.per_mille(600) {
            chosen.retain(|_| chance.per_mille(600));
            if !chosen.iter().any(|(action, _)| writes.contains(action)) {
                chosen.insert(0, all[0]);
            }
        }
        Self(chosen)
    }

    /// Draws one kind of request.
    pub(crate) fn pick(&self, chance: &SharedRng) -> A {
        let mut at = chance.below(self.0.iter().map(|(_, weight)| weight).sum());
        for (action, weight) in &self.0 {
            if at < *weight {
                return *action;
            }
            at -= weight;
        }
        self.0[0].0
    }
}

impl Load<ObjectAction> {
    /// Draws a load of requests on objects.
    pub(crate) fn of_objects(chance: &SharedRng) -> Self {
        use ObjectAction as It;
        let all = [
            (It::Put, 18),
            (It::Get, 26),
            (It::Delete, 8),
            (It::Create, 12),
            (It::Replace, 10),
            (It::DeleteFound, 6),
            (It::List, 8),
            (It::Upload, 6),
            (It::Copy, 6),
        ];
        Self::drawn(chance, &all, &[It::Put, It::Create, It::Upload])
    }
}

impl Load<SetAction> {
    /// Draws a load of requests on checkpoint sets.
    pub(crate) fn of_sets(chance: &SharedRng) -> Self {
        use SetAction as It;
        let all = [
            (It::Save, 28),
            (It::ListView, 14),
            (It::GetView, 12),
            (It::ReadByNumber, 8),
            (It::GetObject, 8),
            (It::ListObjects, 5),
            (It::DeleteObject, 4),
            (It::RemoveOldVersion, 10),
            (It::Publish, 6),
            (It::Withdraw, 2),
            (It::DeleteSet, 1),
            (It::Hold, 2),
        ];
        Self::drawn(chance, &all, &[It::Save, It::Publish])
    }
}

#[test]
fn loads_differ_and_all_of_them_write() {
    let loads: Vec<_> = (0..200).map(|seed| Load::of_objects(&SharedRng::new(seed))).collect();
    let writes = |load: &Load<ObjectAction>| {
        let writing = [ObjectAction::Put, ObjectAction::Create, ObjectAction::Upload];
        load.0.iter().any(|(action, _)| writing.contains(action))
    };
    assert!(loads.iter().all(writes));
    let whole = loads.iter().filter(|load| load.0.len() == 9).count();
    assert!((50..120).contains(&whole), "{whole} of 200 loads have all kinds");
    let without_reads =
        loads.iter().filter(|load| load.0.iter().all(|(action, _)| *action != ObjectAction::Get));
    assert!(without_reads.count() > 20);
}

#[test]
fn a_load_makes_only_its_requests_by_their_weights() {
    let load = Load(vec![('a', 3), ('b', 1)]);
    let chance = SharedRng::new(7);
    let picked: Vec<char> = (0..1000).map(|_| load.pick(&chance)).collect();
    let of_a = picked.iter().filter(|one| **one == 'a').count();
    assert!((700..800).contains(&of_a), "{of_a} of 1000");
    assert!(picked.iter().all(|one| matches!(one, 'a' | 'b')));
}
