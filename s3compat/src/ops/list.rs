//! ListObjects and `ListObjectsV2`.

mod document;

use martlet_protocol::backend::Detail;
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_proxy::{ListObjects, ObjectPage, is_within_prefix};
use s3s::{S3Result, s3_error};

use self::document::ListDocument;
use super::acl::OwnerNames;
use super::encoding::Encoding;
use super::operations::Operations;
use super::wire::limit;
use crate::errors::s3_error;
use crate::fields::{query_text, query_value};
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::target::Query;

/// Request parameters of both versions.
struct ListParameters {
    prefix: String,
    delimiter: Option<String>,
    after: Option<String>,
    limit: usize,
}

/// Page for both versions.
struct ListedPage {
    page: ObjectPage,
    /// True if the next page starts after the last key of this one.
    ends_at_key: bool,
}

impl Operations {
    pub(super) async fn list_objects(&self, request: &OperationRequest) -> S3Result<Reply> {
        let query = request.query()?;
        let max_keys = query_value(&query, "max-keys")?;
        let encoding = Encoding::requested(query.get("encoding-type"))?;
        let limit = limit(max_keys, LIST_KEYS_MAX, "max-keys")?;
        let prefix = query_text(&query, "prefix").unwrap_or_default();
        let delimiter = query_text(&query, "delimiter").filter(|it| !it.is_empty());
        check_order(&query, delimiter.as_deref())?;
        let marker = query_text(&query, "marker").unwrap_or_default();
        let after = self.position_of(request.bucket(), &marker);
        let parameters =
            ListParameters { prefix: prefix.clone(), delimiter: delimiter.clone(), after, limit };
        let owners = self.owners_in(request.bucket()).await?;
        let listed = self.listing(request, parameters).await?;
        let next = listed.page.next.as_deref();
        // Without a delimiter the last key is the marker, and S3 omits the next marker. A page that
        // ended among deleted names has no such key.
        let needs_marker = delimiter.is_some() || !listed.ends_at_key;
        let next_marker = next.filter(|_| needs_marker);
        let next_marker = next_marker.map(|next| self.marker_of(request.bucket(), next));
        let mut document = ListDocument::new(encoding, listed.page.objects.len());
        document.element("Name", request.shown_bucket());
        document.element("Prefix", &encoding.write_sparingly(prefix));
        document.element("Marker", &encoding.write(marker));
        document.plain("MaxKeys", limit);
        document.plain("IsTruncated", next.is_some());
        write_page(&mut document, &listed.page, Some(owners)).await;
        let delimiter = delimiter.map(|delimiter| encoding.write(delimiter));
        document.optional("Delimiter", delimiter.as_deref());
        let next_marker = next_marker.map(|marker| encoding.write(marker));
        document.optional("NextMarker", next_marker.as_deref());
        document.optional("EncodingType", encoding.name());
        Ok(Reply::document(document.end()))
    }

    pub(super) async fn list_objects_v2(&self, request: &OperationRequest) -> S3Result<Reply> {
        let query = request.query()?;
        let fetch_owner: Option<bool> = query_value(&query, "fetch-owner")?;
        let max_keys = query_value(&query, "max-keys")?;
        let encoding = Encoding::requested(query.get("encoding-type"))?;
        let limit = limit(max_keys, LIST_KEYS_MAX, "max-keys")?;
        let prefix = query_text(&query, "prefix").unwrap_or_default();
        let delimiter = query_text(&query, "delimiter").filter(|it| !it.is_empty());
        check_order(&query, delimiter.as_deref())?;
        let start_after = query_text(&query, "start-after").filter(|start| !start.is_empty());
        let after = match query.get("continuation-token") {
            None | Some("") => start_after.clone(),
            Some(token) => Some(self.open_token(request.bucket(), token)?),
        };
        let owners = match fetch_owner {
            Some(true) => Some(self.owners_in(request.bucket()).await?),
            _ => None,
        };
        let parameters =
            ListParameters { prefix: prefix.clone(), delimiter: delimiter.clone(), after, limit };
        let ListedPage { page, .. } = self.listing(request, parameters).await?;
        let token = page.next.as_deref().map(|next| self.tokens.seal(request.bucket(), next));
        let mut document = ListDocument::new(encoding, page.objects.len());
        document.element("Name", request.shown_bucket());
        document.element("Prefix", &encoding.write(prefix));
        document.plain("MaxKeys", limit);
        document.plain("KeyCount", page.objects.len() + page.prefixes.len());
        let continued = query_text(&query, "continuation-token");
        document.optional("ContinuationToken", continued.as_deref());
        document.plain("IsTruncated", token.is_some());
        document.optional("NextContinuationToken", token.as_deref());
        write_page(&mut document, &page, owners).await;
        let delimiter = delimiter.map(|delimiter| encoding.write(delimiter));
        document.optional("Delimiter", delimiter.as_deref());
        document.optional("EncodingType", encoding.name());
        let start_after = start_after.map(|start| encoding.write(start));
        document.optional("StartAfter", start_after.as_deref());
        Ok(Reply::document(document.end()))
    }

    /// Start of a page after a marker: a key, or what [`Operations::marker_of`] sealed.
    pub(super) fn position_of(&self, bucket: &str, marker: &str) -> Option<String> {
        let position = || self.tokens.open(bucket, marker).unwrap_or_else(|| marker.to_owned());
        (!marker.is_empty()).then(position)
    }

    /// Marker of a page that starts at a position: a key or folded prefix as it is. A position
    /// within a prefix is no key, so that it is sealed as a continuation token.
    pub(super) fn marker_of(&self, bucket: &str, position: &str) -> String {
        if is_within_prefix(position) {
            self.tokens.seal(bucket, position)
        } else {
            position.to_owned()
        }
    }

    async fn listing(
        &self,
        request: &OperationRequest,
        parameters: ListParameters,
    ) -> S3Result<ListedPage> {
        let ListParameters { prefix, delimiter, after, limit } = parameters;
        if limit == 0 {
            // An empty page is never truncated: the client could not continue from it.
            self.store.bucket(request.bucket()).await.map_err(s3_error)?;
            return Ok(ListedPage { page: ObjectPage::default(), ends_at_key: false });
        }
        let list = ListObjects { prefix, delimiter, after, limit, detail: Detail::Summary };
        let page = self.page(request.bucket(), list, request.view.is_some()).await?;
        let last = page.objects.last().map(|(key, _)| key);
        let ends_at_key = page.next.is_some() && last == page.next.as_ref();
        Ok(ListedPage { page, ends_at_key })
    }
}

/// Writes the entries of a page, with their owners if they are requested.
async fn write_page(
    document: &mut ListDocument,
    page: &ObjectPage,
    mut owners: Option<OwnerNames>,
) {
    for (key, object) in &page.objects {
        let owner = match &mut owners {
            Some(owners) => Some(owners.of(&object.attributes.marks).await),
            None => None,
        };
        document.object(key, object, owner.as_ref());
    }
    for prefix in &page.prefixes {
        document.prefix(prefix);
    }
}

/// Accepts `allow-unordered`, and lists in order. Refuses it with a delimiter, because common
/// prefixes need an order.
fn check_order(query: &Query<'_>, delimiter: Option<&str>) -> S3Result<()> {
    let is_any = query.get("allow-unordered").is_some_and(|any| any.eq_ignore_ascii_case("true"));
    if is_any && delimiter.is_some() {
        return Err(s3_error!(InvalidArgument, "allow-unordered can't go with a delimiter"));
    }
    Ok(())
}
