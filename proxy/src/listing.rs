//! Listings of objects, folded by delimiter and counted after merging (rule L1).

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::RegisterKind;
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Bucket, Value};
use tokio::time::Instant;

use crate::api::{ListObjects, ObjectPage};
use crate::bucket::{BucketCatalog, again_if_replaced};
use crate::context::RequestContext;
use crate::error::Result;
use crate::index::RegisterClient;
use crate::merge::{folded, successor};
use crate::walk::{Paths, Walk, text};

/// Entries that one call reads before it returns a partial page: a run of tombstones may be long.
pub(crate) const SEEN_MAX: usize = 50_000;

/// Start of a listing after a name; skips a folded prefix that contains the name.
pub(crate) fn start_after(after: Option<&str>, prefix: &[u8], delimiter: &[u8]) -> ListStart {
    let Some(after) = after else { return ListStart::First };
    let fold = folded(after.as_bytes(), prefix, delimiter);
    match fold.and_then(successor) {
        Some(next) => ListStart::At(next),
        None => ListStart::After(Bytes::copy_from_slice(after.as_bytes())),
    }
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

    /// A walk for a page of at most `limit` items.
    pub(crate) fn walk<'a>(
        &'a self,
        context: &'a RequestContext,
        bucket: &Bucket,
        paths: &Paths,
        start: ListStart,
        limit: usize,
    ) -> Result<Walk<'a>> {
        let expected = limit.saturating_add(1);
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
        walk.honour(context.consistency.read_after);
        while let Some((name, entry)) = walk.next().await? {
            let fold = folded(&name, prefix, delimiter).map(|fold| name.slice_ref(fold));
            let Value::Object(object) = entry.value else {
                if walk.seen > SEEN_MAX {
                    // The next page skips a prefix that it begins in, so it begins before this one.
                    page.next = if fold.is_none() { Some(text(name)?) } else { last_of(&page) };
                    if page.next.is_some() {
                        return Ok(page);
                    }
                }
                continue;
            };
            if page.objects.len() + page.prefixes.len() == list.limit {
                page.next = last_of(&page);
                return Ok(page);
            }
            match fold {
                None => page.objects.push((text(name)?, object)),
                Some(fold) => {
                    if let Some(next) = successor(&fold) {
                        walk.skip_to(next);
                    }
                    page.prefixes.push(text(fold)?);
                }
            }
        }
        Ok(page)
    }
}

fn last_of(page: &ObjectPage) -> Option<String> {
    let key = page.objects.last().map(|(key, _)| key);
    key.max(page.prefixes.last()).cloned()
}
