//! Selection of the due versions of a page. Pure.
//!
//! Versions are in order of key, the latest first. A version became noncurrent when the next newer
//! existing version was written. If that one replaced a version that is gone by now, the older
//! version counts as younger than it is, and stays longer.

use martlet_protocol::lifecycle::{ExpiryCursor, VersionCursor, VersionPosition};

use super::expiration::{ExpirationCandidate, Terms};
use crate::api::{ListedVersion, VersionPage};

/// Result of a page.
pub(super) struct Judged {
    /// Number of versions judged.
    pub(super) seen: u64,
    pub(super) doomed: Vec<ExpirationCandidate>,
    /// Start of the next page.
    pub(super) next: Option<ExpiryCursor>,
}

/// State between two versions of a key.
struct Run {
    key: String,
    newer: u32,
    since_ms: u64,
}

/// Judges a page that begins after `after`.
pub(super) fn judge(page: VersionPage, after: Option<&ExpiryCursor>, terms: &Terms<'_>) -> Judged {
    let mut judged = Judged { seen: 0, doomed: Vec::new(), next: None };
    let mut run = after.and_then(|place| {
        let VersionCursor { newer, since_ms, .. } = place.within?;
        Some(Run { key: place.key.clone(), newer, since_ms })
    });
    let mut versions = page.versions.into_iter().peekable();
    while let Some(version) = versions.next() {
        let is_last = match (versions.peek(), &page.next) {
            (Some(next), _) => next.key != version.key,
            (None, Some((key, Some(_)))) if *key == version.key => {
                if version.is_latest && version.object.is_none() && run.is_some() {
                    // The next page shows if the marker is alone.
                    judged.next = run.map(|run| ExpiryCursor { key: run.key, within: None });
                    return judged;
                }
                false
            }
            _ => true,
        };
        judged.seen += 1;
        let before = run.take().filter(|run| run.key == version.key);
        let standing = standing(&version, before.as_ref(), is_last);
        let doomed = standing.and_then(|standing| terms.doom(&version, standing));
        let stays = u32::from(!version.is_latest && doomed.is_none());
        judged.doomed.extend(doomed);
        run = Some(Run {
            newer: before.map_or(0, |run| run.newer) + stays,
            since_ms: version.modified_ms,
            key: version.key,
        });
    }
    judged.next = page.next.map(|(key, version)| {
        let run = run.filter(|run| run.key == key);
        let within = version.zip(run).map(|(version, run)| {
            let Run { newer, since_ms, .. } = run;
            VersionCursor { version, newer, since_ms }
        });
        ExpiryCursor { key, within }
    });
    judged
}

/// State of a version for the rules; none for a delete marker in front of other versions.
fn standing(
    version: &ListedVersion,
    before: Option<&Run>,
    is_last: bool,
) -> Option<VersionPosition> {
    let modified_ms = version.modified_ms;
    match (version.is_latest, &version.object) {
        (true, Some(_)) => Some(VersionPosition::Current { modified_ms }),
        (true, None) => is_last.then_some(VersionPosition::LoneMarker { modified_ms }),
        (false, _) => {
            // Without its newer versions, the time when it became noncurrent is unknown.
            let Run { newer, since_ms, .. } = before?;
            Some(VersionPosition::Noncurrent {
                since_ms: (*since_ms).max(modified_ms),
                newer: *newer,
            })
        }
    }
}

#[cfg(test)]
mod tests;
