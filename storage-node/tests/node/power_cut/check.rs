//! Checks of a device after a power cut: what was acknowledged is there, and nothing is left over.

use std::collections::HashSet;

use futures::TryStreamExt;
use martlet_protocol::backend::{Backend, RegisterView, Want};
use martlet_protocol::entry::{Body, Object, Value};
use martlet_protocol::{BackendExt, ExtentId, PolicyId, Result, Term};
use martlet_storage_node::StorageNode;

use super::load::{Contents, History, State, Target, extents_of, reclaim_page};
use crate::support::*;

const PAGE: usize = 1000;

/// Requires an admissible state of every name, whole bytes, sums that fit, and no extent without a
/// reason. Removes extents of writes that were cut off, as `sweep` does.
pub(super) async fn check(target: &Target, names: &mut [Vec<History>], cut_ms: u64) {
    let Target { node, extents_on } = target;
    let mut referenced = HashSet::new();
    let mut cut_off = HashSet::new();
    for history in names.iter_mut().flatten() {
        let (found, extents) = match found(target, history, cut_ms).await {
            Ok(found) => found,
            Err(error) => panic!("{}: {error} after {:?}", history.name, history.states),
        };
        referenced.extend(extents);
        cut_off.extend(history.states.iter().flat_map(|state| state.extents.iter().copied()));
        history.settle(found);
    }
    check_sums(node).await;
    referenced.extend(garbage_extents(node).await);
    let mut after = None;
    let mut left = Vec::new();
    loop {
        let page = node.list_extents(*extents_on, after, PAGE).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.extent.id);
        left.extend(page.into_iter().filter(|record| !referenced.contains(&record.extent.id)));
    }
    for record in &left {
        assert!(cut_off.contains(&record.extent.id), "{record:?} has lost its reference");
    }
    let left: Vec<_> = left.into_iter().map(|record| record.extent.id).collect();
    node.delete_extents(*extents_on, &left).await.unwrap();
    // Rounds without reclaim leave what they replaced.
    while reclaim_page(target).await.unwrap() > 0 {}
}

/// Returns the state in which a name was found, and the extents of its object.
async fn found(target: &Target, history: &History, cut_ms: u64) -> Result<(State, Vec<ExtentId>)> {
    let (node, register) = (&target.node, key(&history.name));
    let view = if history.is_hint {
        node.read_hint(DEVICE, &register, Want::EntryAndInline).await?
    } else {
        node.read(DEVICE, &register, Want::EntryAndInline, Term::ANY).await?
    };
    let RegisterView { entry, inline, .. } = view;
    let object = entry.and_then(|entry| match entry.value {
        Value::Object(object) => Some(*object),
        _ => None,
    });
    let extents = object.as_ref().map_or_else(Vec::new, |it| extents_of(&it.body));
    let parts = match &object {
        None => Vec::new(),
        Some(object) => parts(target, object, inline).await?,
    };
    let admissible = history.admissible(cut_ms);
    let is_found = |state: &&State| is_of(history, state, object.as_ref(), &parts);
    let Some(state) = admissible.iter().rev().find(is_found) else {
        let lengths: Vec<_> = parts.iter().map(Vec::len).collect();
        panic!(
            "{} has parts of {lengths:?} bytes, which are none of {admissible:?}; \
             before: {:?}; cut at {cut_ms}",
            history.name, history.states
        );
    };
    Ok((state.clone(), extents))
}

/// Reads the bytes of an object: of each extent or fragment, or its inline bytes.
async fn parts(
    Target { node, extents_on }: &Target,
    object: &Object,
    inline: Option<bytes::Bytes>,
) -> Result<Vec<Vec<u8>>> {
    if matches!(object.body, Body::Inline { .. }) {
        return Ok(inline.into_iter().map(|bytes| bytes.to_vec()).collect());
    }
    let mut parts = Vec::new();
    for id in extents_of(&object.body) {
        let length = u64::from(node.stat_extent(*extents_on, id).await?.record.extent.length);
        let stream = node.read_extent(*extents_on, id, 0..length).await?;
        parts.push(stream.try_collect::<Vec<_>>().await?.concat());
    }
    Ok(parts)
}

/// Returns true if an object and its bytes are those of a state.
fn is_of(history: &History, state: &State, object: Option<&Object>, parts: &[Vec<u8>]) -> bool {
    let are_whole = || {
        parts.iter().enumerate().all(|(number, part)| {
            pattern(&history.bytes_name(state.version, number), part.len()) == part[..]
        })
    };
    let lengths = || parts.iter().map(Vec::len);
    match (&state.contents, object.map(|object| &object.body)) {
        (Contents::Absent, None) => true,
        (Contents::Inline, Some(Body::Inline { .. })) => parts.len() == 1 && are_whole(),
        (Contents::Extents(wanted), Some(Body::Extents(manifest))) => {
            manifest.policy == PolicyId(0) && lengths().eq(wanted.iter().copied()) && are_whole()
        }
        (Contents::Coded, Some(Body::Extents(manifest))) => {
            manifest.policy == PolicyId(1) && are_whole()
        }
        _ => false,
    }
}

/// Checks that sums and entries were cut off at one point (rule H1).
async fn check_sums(node: &StorageNode) {
    let mut after = None;
    loop {
        let audited = node.audit_registers(DEVICE, after).await.unwrap();
        assert_eq!(audited.corrupt, []);
        after = audited.next;
        if after.is_none() {
            return;
        }
    }
}

/// Returns the extents that records of garbage name.
async fn garbage_extents(node: &StorageNode) -> Vec<ExtentId> {
    let mut extents = Vec::new();
    let mut after = None;
    loop {
        let page = node.garbage_after(DEVICE, after, u64::MAX, PAGE).await.unwrap();
        let Some(last) = page.last() else { return extents };
        after = Some(last.id.clone());
        extents.extend(page.iter().flat_map(|record| extents_of(&record.body)));
    }
}
