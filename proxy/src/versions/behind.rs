//! Position of a noncurrent version behind its head, checked in the ballot of its removal.
//!
//! A page that listed the version may be outdated. A version becomes current only when the head is removed. So while
//! the listed head exists, no version behind it has been current since the page. The direct successor of the version
//! may be gone: a run of lifecycle rules removes many versions of a key at once.

use martlet_protocol::backend::{Detail, ListStart, RowKinds, RowSelection};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::lifecycle::ListedHead;
use martlet_protocol::{Level, VersionId};

use super::beside::{run_of, version_of};
use super::store::VersionStore;
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::Round;
use crate::walk::{Bound, SEEN_MAX, Walk};

/// Condition on a noncurrent version that a page listed.
#[derive(Clone, Copy)]
pub(crate) struct Behind<'a> {
    /// Head of the page.
    pub(crate) head: ListedHead,
    /// Number up to which newer noncurrent versions are counted; at zero, none is read.
    pub(crate) newer_max: u32,
    /// Condition on the entry and on the number of newer noncurrent versions, which is `u32::MAX` before these are
    /// counted.
    pub(crate) fits: &'a (dyn Fn(&Entry, u32) -> bool + Send + Sync),
}

fn is_listed(listed: ListedHead, value: &Value) -> bool {
    let modified_ms = match value {
        Value::Object(object) => object.modified_ms,
        Value::DeleteMarker(marker) => marker.modified_ms,
        _ => return false,
    };
    let is_named = value.version().is_some_and(|it| it.name() == listed.version);
    is_named && modified_ms == listed.modified_ms
}

impl VersionStore {
    /// Returns true if the condition holds of a version beside the head of a ballot.
    pub(super) async fn is_behind(
        &self,
        context: &RequestContext,
        round: Round<'_>,
        entry: &Entry,
        behind: &Behind<'_>,
    ) -> Result<bool> {
        let Behind { head, newer_max, fits } = *behind;
        if !fits(entry, u32::MAX) || !self.exists(context, round, head).await? {
            return Ok(false);
        }
        if newer_max == 0 {
            return Ok(true);
        }
        let newer = self.newer_beside(context, round, entry, newer_max).await?;
        Ok(newer.is_some_and(|newer| fits(entry, newer)))
    }

    /// Returns true if a listed version is the head of a ballot, or lies beside it.
    async fn exists(
        &self,
        context: &RequestContext,
        round: Round<'_>,
        listed: ListedHead,
    ) -> Result<bool> {
        let Some((held, head)) = version_of(round.view.entry.as_ref()) else { return Ok(false) };
        // With a null head, a null version beside it is invisible.
        if is_listed(listed, &head.value) || held.name() == listed.version {
            return Ok(is_listed(listed, &head.value));
        }
        let beside = self.beside(context, round.intent.key, listed.version).await?;
        Ok(beside.is_some_and(|(_, entry)| is_listed(listed, &entry.value)))
    }

    /// Number of noncurrent versions that are newer than a version beside the head, up to `count_max`; none if too
    /// many rows would be read.
    async fn newer_beside(
        &self,
        context: &RequestContext,
        round: Round<'_>,
        entry: &Entry,
        count_max: u32,
    ) -> Result<Option<u32>> {
        let key = round.intent.key;
        let (Some((held, _)), Some(version)) =
            (version_of(round.view.entry.as_ref()), entry.value.version())
        else {
            return Ok(None);
        };
        let expected = usize::try_from(count_max).unwrap_or(usize::MAX).saturating_add(2);
        let start = ListStart::First;
        let mut walk =
            Walk::new(&self.registers, context, &run_of(key), start, expected, Level::Strict)?;
        walk.selection = RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };
        walk.meter.pause_at(Bound::Rows(SEEN_MAX));
        let mut newer = 0;
        while newer < count_max
            && let Some((_, entry)) = walk.next().await?
        {
            // Copies of the head don't count, nor what a null head replaced.
            let Some(found) = entry.value.version().filter(|it| it.name() != held.name()) else {
                continue;
            };
            if found > version {
                newer += 1;
            } else if found.name() != VersionId::Null {
                // The null version comes first, and the others in order.
                return Ok(Some(newer));
            }
        }
        Ok((newer == count_max || walk.paused().is_none()).then_some(newer))
    }
}
