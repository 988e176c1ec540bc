//! Listings of a bucket's open uploads, in order of key and start, and of an upload's parts.

use bytes::Bytes;
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Bucket, Upload, UploadState, Value};
use martlet_protocol::limits::PARTS_MAX;
use martlet_protocol::{RegisterKey, RegisterKind, UploadId};
use tokio::time::Instant;

use super::part::PartWalk;
use super::requests::Uploads;
use super::upload_target::{UploadName, info};
use crate::api::{ListUploads, PartPage, UploadPage};
use crate::bucket::again_if_replaced;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::merge::{folded, successor};
use crate::walk::{Paths, text};

fn start(list: &ListUploads, delimiter: &[u8]) -> ListStart {
    let Some(key) = &list.after_key else { return ListStart::First };
    let mut name = key.clone().into_bytes();
    if let Some(id) = list.after_id {
        name.push(0);
        name.extend_from_slice(&id.0);
        return ListStart::After(name.into());
    }
    let fold = folded(&name, list.prefix.as_bytes(), delimiter).and_then(successor);
    name.push(1);
    ListStart::At(fold.unwrap_or_else(|| name.into()))
}

/// Position of an upload's register in a listing.
fn position_of(name: &[u8]) -> Result<(String, Option<UploadId>)> {
    let position = RegisterKey::upload_of(name).and_then(|(key, id)| {
        let key = std::str::from_utf8(key).ok()?;
        Some((key.to_owned(), Some(id)))
    });
    let corrupt = || martlet_protocol::Error::corrupt("an upload's register has no key and id");
    Ok(position.ok_or_else(corrupt)?)
}

/// Returns true if clients see the upload. An upload in completion is included: it may become open
/// again.
fn is_shown(upload: &Upload) -> bool {
    matches!(upload.state, UploadState::Open | UploadState::Completing { .. })
}

impl Uploads<'_> {
    /// Lists a page of the open uploads of a bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket), or too few nodes replied.
    pub async fn list(self, bucket: &str, list: ListUploads) -> Result<UploadPage> {
        let (context, list) = (&*self.contexts.context(), &list);
        let catalog = &self.listings.catalog;
        again_if_replaced(|| async move {
            let began = Instant::now();
            let found = catalog.bucket(context, bucket).await?;
            let page = self.upload_page(context, &found, list).await?;
            if page.uploads.is_empty() && page.prefixes.is_empty() {
                catalog.check_not_replaced(context, bucket, &found, began).await?;
            }
            Ok(page)
        })
        .await
    }

    async fn upload_page(
        self,
        context: &RequestContext,
        bucket: &Bucket,
        list: &ListUploads,
    ) -> Result<UploadPage> {
        let mut page = UploadPage::default();
        if list.limit == 0 {
            return Ok(page);
        }
        let (prefix, delimiter) =
            (list.prefix.as_bytes(), list.delimiter.as_deref().unwrap_or_default().as_bytes());
        // Nodes don't fold: the upload id at the end of a name may contain a delimiter.
        let paths = Paths::all(bucket, RegisterKind::Upload).below(prefix);
        let start = start(list, delimiter);
        let mut walk = self.listings.walk(context, bucket, &paths, start, list.limit)?;
        let mut last = None;
        // Uploads that have ended are no tombstones for a while, so the walk's bound counts them.
        while let Some((_, entry)) = walk.next().await? {
            let Value::Upload(upload) = entry.value else { continue };
            if !is_shown(&upload) {
                continue;
            }
            if page.uploads.len() + page.prefixes.len() == list.limit {
                page.next = last;
                return Ok(page);
            }
            if let Some(fold) = folded(upload.key.as_bytes(), prefix, delimiter) {
                if let Some(next) = successor(fold) {
                    walk.skip_to(next);
                }
                let fold = text(Bytes::copy_from_slice(fold))?;
                last = Some((fold.clone(), None));
                page.prefixes.push(fold);
            } else {
                last = Some((upload.key.clone(), Some(upload.id)));
                page.uploads.push(info(*upload));
            }
            walk.meter.has_found();
        }
        page.next = match walk.paused() {
            Some(ListStart::After(name)) => Some(position_of(&name)?),
            Some(_) => last,
            None => None,
        };
        Ok(page)
    }
}

impl Uploads<'_> {
    /// Lists a page of the parts of an open upload, in order of number, above `after`.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`].
    pub async fn list_parts(
        self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        after: u32,
        limit: usize,
    ) -> Result<PartPage> {
        let (context, upload) = (&self.contexts.context(), UploadName { bucket, key, id: upload });
        let uploads = &self.multipart.uploads;
        let (target, upload) = again_if_replaced(|| async {
            let target = uploads.target(context, upload).await?;
            let upload = uploads.upload(&target).await?;
            Ok((target, upload))
        })
        .await?;
        if matches!(upload.state, UploadState::Completed { .. } | UploadState::Aborted) {
            return Err(Error::NoSuchUpload);
        }
        let mut page = PartPage { upload: info(upload), parts: Vec::new(), truncated: false };
        let after = u16::try_from(after).unwrap_or(PARTS_MAX).min(PARTS_MAX);
        let expected = limit.saturating_add(1);
        let registers = &uploads.registers;
        let mut parts = PartWalk::new(registers, &target, after, expected, target.level())?;
        while limit > 0
            && let Some((number, part)) = parts.next().await?
        {
            if page.parts.len() == limit {
                page.truncated = true;
                break;
            }
            page.parts.push((u32::from(number), part));
        }
        Ok(page)
    }
}
