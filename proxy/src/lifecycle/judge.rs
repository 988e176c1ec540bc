//! Selection of the due versions of a page. Pure.
//!
//! Versions are in order of key, the latest first. A version became noncurrent when the next newer
//! existing version was written. If that one replaced a version that is gone by now, the older
//! version counts as younger than it is, and stays longer.

use martlet_protocol::lifecycle::{ExpiryCursor, ListedHead, VersionCursor, VersionPosition};

use super::expiration::{ExpirationCandidate, ExpirationRun};
use crate::api::{ListedVersion, VersionPage};

/// Result of a page.
pub(super) struct JudgedPage {
    /// Number of versions judged.
    pub(super) seen: u64,
    pub(super) candidates: Vec<ExpirationCandidate>,
    /// Start of the next page.
    pub(super) next: Option<ExpiryCursor>,
}

/// State between two versions of a key.
struct KeyState {
    key: String,
    newer: u32,
    since_ms: u64,
    head: ListedHead,
}

/// Judges a page that begins after `after`.
pub(super) fn judge(
    page: VersionPage,
    after: Option<&ExpiryCursor>,
    run: &ExpirationRun<'_>,
) -> JudgedPage {
    let mut judged = JudgedPage { seen: 0, candidates: Vec::new(), next: None };
    let mut state = after.and_then(|cursor| {
        let VersionCursor { newer, since_ms, head, .. } = cursor.within?;
        Some(KeyState { key: cursor.key.clone(), newer, since_ms, head })
    });
    let mut versions = page.versions.into_iter().peekable();
    while let Some(version) = versions.next() {
        let is_last = match (versions.peek(), &page.next) {
            (Some(next), _) => next.key != version.key,
            (None, Some((key, Some(_)))) if *key == version.key => {
                if version.is_latest && version.object.is_none() && state.is_some() {
                    // The next page shows if the marker is alone.
                    judged.next = state.map(|state| ExpiryCursor { key: state.key, within: None });
                    return judged;
                }
                false
            }
            _ => true,
        };
        judged.seen += 1;
        let before = state.take().filter(|state| state.key == version.key);
        let position = position(&version, before.as_ref(), is_last);
        let own = ListedHead { version: version.id, modified_ms: version.modified_ms };
        let listed = before.as_ref().filter(|_| !version.is_latest).map(|before| before.head);
        let head = listed.unwrap_or(own);
        let candidate = position.and_then(|position| run.candidate(&version, position, head));
        let stays = u32::from(!version.is_latest && candidate.is_none());
        judged.candidates.extend(candidate);
        state = Some(KeyState {
            newer: before.map_or(0, |state| state.newer) + stays,
            since_ms: version.modified_ms,
            head,
            key: version.key,
        });
    }
    judged.next = page.next.map(|(key, version)| {
        let state = state.filter(|state| state.key == key);
        let within = version.zip(state).map(|(version, state)| {
            let KeyState { newer, since_ms, head, .. } = state;
            VersionCursor { version, newer, since_ms, head }
        });
        ExpiryCursor { key, within }
    });
    judged
}

/// Position of a version for the rules; none for a delete marker in front of other versions.
fn position(
    version: &ListedVersion,
    before: Option<&KeyState>,
    is_last: bool,
) -> Option<VersionPosition> {
    let modified_ms = version.modified_ms;
    match (version.is_latest, &version.object) {
        (true, Some(_)) => Some(VersionPosition::Current { modified_ms }),
        (true, None) => is_last.then_some(VersionPosition::LoneMarker { modified_ms }),
        (false, _) => {
            // Without its newer versions, the time when it became noncurrent is unknown.
            let KeyState { newer, since_ms, .. } = before?;
            Some(VersionPosition::Noncurrent {
                since_ms: (*since_ms).max(modified_ms),
                newer: *newer,
            })
        }
    }
}

#[cfg(test)]
mod tests;
