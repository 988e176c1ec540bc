//! Listings of objects, folded by delimiter and counted after merging (rule L1).
//!
//! A page ends after a bounded number of rows, so it may be short or empty and still have a next
//! page. If it ends among deleted names of a prefix that isn't on it, the next page must begin within
//! that prefix. Such a position ends with NUL, which no key contains. Any other position skips the
//! folded prefix that it begins with.

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::RegisterKind;
use martlet_protocol::backend::{ListStart, RowKinds, RowSelection};
use martlet_protocol::entry::{Bucket, Value};
use tokio::time::Instant;

use crate::api::{ListObjects, ObjectPage};
use crate::bucket::{BucketCatalog, again_if_replaced};
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::RegisterClient;
use crate::merge::{folded, successor};
use crate::walk::{Paths, Walk, text};

/// End of a position within a folded prefix.
const WITHIN: char = '\0';

/// Returns true for a position of a listing that is no key and no folded prefix: it lies within a
/// folded prefix, and ends with NUL.
pub fn is_within_prefix(position: &str) -> bool {
    position.ends_with(WITHIN)
}

/// Start of a listing after a position; skips a folded prefix that contains the name, unless the
/// position lies within it.
pub(crate) fn start_after(after: Option<&str>, prefix: &[u8], delimiter: &[u8]) -> ListStart {
    let Some(after) = after else { return ListStart::First };
    if let Some(name) = after.strip_suffix(WITHIN) {
        return ListStart::After(Bytes::copy_from_slice(name.as_bytes()));
    }
    let fold = folded(after.as_bytes(), prefix, delimiter);
    match fold.and_then(successor) {
        Some(next) => ListStart::At(next),
        None => ListStart::After(Bytes::copy_from_slice(after.as_bytes())),
    }
}

/// Position at which a walk paused, for [`start_after`]. None if the walk paused where the last item
/// of the page ends.
pub(crate) fn position_of(
    paused: ListStart,
    prefix: &[u8],
    delimiter: &[u8],
) -> Result<Option<String>> {
    let ListStart::After(name) = paused else { return Ok(None) };
    let is_within = folded(&name, prefix, delimiter).is_some();
    let mut position = text(name)?;
    if is_within {
        position.push(WITHIN);
    }
    Ok(Some(position))
}

/// Listings of a bucket's objects, versions and uploads.
pub(crate) struct Listings {
    pub(crate) registers: Arc<RegisterClient>,
    pub(crate) catalog: Arc<BucketCatalog>,
}

impl Listings {
    /// Lists a page of the objects of a bucket.
    pub(crate) async fn list(
        &self,
        context: &RequestContext,
        bucket: &str,
        list: ListObjects,
    ) -> Result<ObjectPage> {
        let list = &list;
        again_if_replaced(|| async move {
            let began = Instant::now();
            let found = self.catalog.bucket(context, bucket).await?;
            let page = self.list_once(context, &found, list).await?;
            if page.objects.is_empty() && page.prefixes.is_empty() {
                self.catalog.check_not_replaced(context, bucket, &found, began).await?;
            }
            Ok(page)
        })
        .await
    }

    /// A walk for a page of at most `limit` items. It pauses at the bound of a page.
    pub(crate) fn walk<'a>(
        &'a self,
        context: &'a RequestContext,
        bucket: &Bucket,
        paths: &Paths,
        start: ListStart,
        limit: usize,
    ) -> Result<Walk<'a>> {
        let mut walk = self.walk_whole(context, bucket, paths, start, limit)?;
        walk.meter.pause_as_page();
        Ok(walk)
    }

    /// A walk to the end of its names, of which about `expected` follow.
    pub(crate) fn walk_whole<'a>(
        &'a self,
        context: &'a RequestContext,
        bucket: &Bucket,
        paths: &Paths,
        start: ListStart,
        expected: usize,
    ) -> Result<Walk<'a>> {
        let expected = expected.saturating_add(1);
        let level = context.level(bucket);
        Ok(Walk::new(&self.registers, context, paths, start, expected, level)?)
    }

    async fn list_once(
        &self,
        context: &RequestContext,
        bucket: &Bucket,
        list: &ListObjects,
    ) -> Result<ObjectPage> {
        let mut page = ObjectPage::default();
        if list.limit == 0 {
            return Ok(page);
        }
        let (prefix, delimiter) =
            (list.prefix.as_bytes(), list.delimiter.as_deref().unwrap_or_default().as_bytes());
        let mut paths = Paths::all(bucket, RegisterKind::Object).below(prefix);
        paths.fold = Some(Bytes::copy_from_slice(delimiter)).filter(|fold| !fold.is_empty());
        let start = start_after(list.after.as_deref(), prefix, delimiter);
        let mut walk = self.walk(context, bucket, &paths, start, list.limit)?;
        walk.selection = RowSelection { detail: list.detail, kinds: RowKinds::Objects };
        walk.honour(context.consistency.read_after);
        while let Some((name, entry)) = walk.next().await? {
            let Value::Object(object) = entry.value else { continue };
            if page.objects.len() + page.prefixes.len() == list.limit {
                page.next = last_of(&page);
                return Ok(page);
            }
            match folded(&name, prefix, delimiter).map(|fold| name.slice_ref(fold)) {
                None => page.objects.push((text(name)?, object)),
                Some(fold) => {
                    if let Some(next) = successor(&fold) {
                        walk.skip_to(next);
                    }
                    page.prefixes.push(text(fold)?);
                }
            }
            walk.meter.has_found();
        }
        if let Some(paused) = walk.paused() {
            page.next = position_of(paused, prefix, delimiter)?.or_else(|| last_of(&page));
        }
        Ok(page)
    }
}

fn last_of(page: &ObjectPage) -> Option<String> {
    let key = page.objects.last().map(|(key, _)| key);
    key.max(page.prefixes.last()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_within_a_prefix_skips_no_name_of_it() {
        let start =
            |after: &str, delimiter: &str| start_after(Some(after), b"", delimiter.as_bytes());
        let after = |name: &'static str| ListStart::After(Bytes::from_static(name.as_bytes()));
        assert_eq!(start("p/a", "/"), ListStart::At(Bytes::from_static(b"p0")));
        assert_eq!(start("p/a\0", "/"), after("p/a"));
        assert_eq!(start("p/a", ""), after("p/a"));
        assert!(is_within_prefix("p/a\0") && !is_within_prefix("p/"));
        for (paused, delimiter, position) in [
            (after("p/a"), "/", Some("p/a\0")),
            (after("p/a"), "", Some("p/a")),
            (after("p"), "/", Some("p")),
            (ListStart::At(Bytes::from_static(b"p0")), "/", None),
        ] {
            let found = position_of(paused.clone(), b"", delimiter.as_bytes()).unwrap();
            assert_eq!(found.as_deref(), position);
            if let Some(found) = found {
                assert_eq!(start(&found, delimiter), paused, "the next page begins there");
            }
        }
    }
}
