//! Choice among the bodies of a key: which ones may come back without an operator's word.

use martlet_protocol::entry::{Entry, Value};

use super::plan::{LostBody, NotRebuilt};

/// Keeps the bodies that were born after the entry of the key; returns their number. A tombstone stays,
/// and so does an entry that was written since the hold: a client has changed what is there.
pub(super) fn take_newer(head: &Entry, bodies: &mut Vec<LostBody>, held_since_ms: u64) -> u64 {
    let Value::Object(object) = &head.value else { return 0 };
    if head.order.time_ms() >= held_since_ms {
        return 0;
    }
    bodies.retain(|body| body.born_ms > object.modified_ms);
    bodies.iter().filter(|body| body.refusal.is_none()).count() as u64
}

/// Refuses versions of a key whose place is not certain: all of them if the order of one is not certain,
/// and those that are older than one that stays away. The last version that comes back is the current
/// one. A version alone has a place.
pub(super) fn refuse_without_order(bodies: &mut [LostBody], has_head: bool) {
    let is_refused = |body: &LostBody| body.refusal.is_some();
    let lacks_order = |body: &LostBody| !is_refused(body) && !body.has_order;
    let count = bodies.len() + usize::from(has_head);
    let up_to = if count > 1 && bodies.iter().any(lacks_order) {
        bodies.len()
    } else {
        bodies.iter().rposition(is_refused).unwrap_or(0)
    };
    for body in &mut bodies[..up_to] {
        body.refusal = body.refusal.or(Some(NotRebuilt::Several));
    }
}

/// Removes bodies that a later one replaced; returns their number. A later body that was perhaps
/// never committed replaces none: the bytes of a replaced object are deleted some minutes after.
/// Births don't tell the order of overlapping writes, and a silent device keeps the bytes of replaced
/// objects for longer, so one of several bodies needs the operator's word.
pub(super) fn keep_current(bodies: &mut Vec<LostBody>, takes_latest: bool) -> u64 {
    let may_be_uncommitted = |body: &LostBody| {
        let doubts = [NotRebuilt::Incomplete, NotRebuilt::Upload, NotRebuilt::Pieces];
        body.refusal.is_some_and(|refusal| doubts.contains(&refusal))
    };
    let Some(current) = bodies.iter().rposition(|body| !may_be_uncommitted(body)) else { return 0 };
    let older = bodies[..current].iter().filter(|body| !may_be_uncommitted(body)).count();
    let is_last = current + 1 == bodies.len();
    if (older > 0 || !is_last) && !takes_latest {
        for body in bodies.iter_mut() {
            body.refusal = body.refusal.or(Some(NotRebuilt::Several));
        }
        return 0;
    }
    let mut at = 0;
    bodies.retain(|body| {
        at += 1;
        at > current || may_be_uncommitted(body)
    });
    older as u64
}
