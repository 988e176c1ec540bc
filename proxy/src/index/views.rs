//! Replies to a read, and their comparison. Pure.

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::Body;
use martlet_protocol::{DeviceId, Error, Stamp, WriteId};

use super::replica_set::Role;

/// Reply of one device.
pub(super) struct ReplicaView {
    pub(super) device: DeviceId,
    pub(super) role: Role,
    pub(super) view: RegisterView,
}

pub(super) fn order(view: &RegisterView) -> Stamp {
    view.entry.as_ref().map_or(Stamp::ZERO, |entry| entry.order)
}

/// Returns true if no client-visible entry exists.
pub(super) fn is_absent(view: &RegisterView) -> bool {
    view.entry.as_ref().is_none_or(|entry| entry.value.is_tombstone())
}

pub(super) fn identity(view: &RegisterView) -> Option<(Stamp, WriteId)> {
    view.entry.as_ref().map(|entry| (entry.order, entry.write_id))
}

/// The newest view, preferably with inline bytes.
pub(super) fn newest(views: &[ReplicaView]) -> Option<&ReplicaView> {
    views.iter().max_by_key(|reply| (identity(&reply.view), reply.view.inline.is_some()))
}

/// Of two errors, the more informative one: a device at a later term.
pub(crate) fn weightier(held: Option<Error>, error: Error) -> Error {
    held.filter(|held| held.newer_term().is_some()).unwrap_or(error)
}

/// Returns true if requested inline bytes are missing from a view.
pub(super) fn lacks_bytes(view: &RegisterView, want: Want) -> bool {
    let body = view.entry.as_ref().and_then(|entry| entry.value.body());
    want == Want::EntryAndInline
        && view.inline.is_none()
        && matches!(body, Some(Body::Inline { .. }))
}
