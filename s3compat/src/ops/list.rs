//! ListObjects and `ListObjectsV2`.

use martlet_protocol::backend::Detail;
use martlet_protocol::entry::Object as Stored;
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_proxy::{ListObjects, ObjectPage, is_within_prefix};
use s3s::dto::{CommonPrefix, ListObjectsOutput, ListObjectsV2Output, Object, Owner};
use s3s::{S3Result, s3_error};

use super::acl::OwnerNames;
use super::encoding::Encoding;
use super::operations::Operations;
use super::wire::{limit, wire_count, wire_size};
use crate::attributes::{wire_class, wire_etag, wire_time};
use crate::checksums::{wire_algorithm, wire_kind};
use crate::errors::s3_error;
use crate::fields::{query_text, query_value};
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::target::Query;

/// Request parameters of both versions.
struct ListParameters {
    bucket: String,
    is_view: bool,
    prefix: String,
    delimiter: Option<String>,
    after: Option<String>,
    limit: usize,
    owners: Option<OwnerNames>,
    encoding: Encoding,
}

/// Results for both versions.
struct ListResults {
    contents: Vec<Object>,
    common_prefixes: Vec<CommonPrefix>,
    /// Start of the next page.
    next: Option<String>,
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
        let listed = self
            .listing(ListParameters {
                bucket: request.bucket().to_owned(),
                is_view: request.view.is_some(),
                prefix: prefix.clone(),
                delimiter: delimiter.clone(),
                after,
                limit,
                owners: Some(self.owners_in(request.bucket()).await?),
                encoding,
            })
            .await?;
        // Without a delimiter the last key is the marker, and S3 omits the next marker. A page that
        // ended among deleted names has no such key.
        let needs_marker = delimiter.is_some() || !listed.ends_at_key;
        let next_marker = listed.next.as_ref().filter(|_| needs_marker);
        let next_marker = next_marker.map(|next| self.marker_of(request.bucket(), next));
        Reply::xml(&ListObjectsOutput {
            name: Some(request.shown_bucket().to_owned()),
            prefix: Some(encoding.write_sparingly(prefix)),
            marker: Some(encoding.write(marker)),
            max_keys: Some(wire_count(limit)),
            is_truncated: Some(listed.next.is_some()),
            contents: Some(listed.contents),
            common_prefixes: Some(listed.common_prefixes),
            delimiter: delimiter.map(|delimiter| encoding.write(delimiter)),
            next_marker: next_marker.map(|marker| encoding.write(marker)),
            encoding_type: encoding.wire(),
            request_charged: None,
        })
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
        let parameters = ListParameters {
            bucket: request.bucket().to_owned(),
            is_view: request.view.is_some(),
            prefix: prefix.clone(),
            delimiter: delimiter.clone(),
            after,
            limit,
            owners,
            encoding,
        };
        let listed = self.listing(parameters).await?;
        let token = listed.next.as_deref().map(|next| self.tokens.seal(request.bucket(), next));
        Reply::xml(&ListObjectsV2Output {
            name: Some(request.shown_bucket().to_owned()),
            prefix: Some(encoding.write(prefix)),
            max_keys: Some(wire_count(limit)),
            key_count: Some(wire_count(listed.contents.len() + listed.common_prefixes.len())),
            continuation_token: query_text(&query, "continuation-token"),
            is_truncated: Some(token.is_some()),
            next_continuation_token: token,
            contents: Some(listed.contents),
            common_prefixes: Some(listed.common_prefixes),
            delimiter: delimiter.map(|delimiter| encoding.write(delimiter)),
            encoding_type: encoding.wire(),
            start_after: start_after.map(|start| encoding.write(start)),
            request_charged: None,
        })
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

    async fn listing(&self, parameters: ListParameters) -> S3Result<ListResults> {
        let ListParameters {
            bucket,
            is_view,
            prefix,
            delimiter,
            after,
            limit,
            mut owners,
            encoding,
        } = parameters;
        if limit == 0 {
            // An empty page is never truncated: the client could not continue from it.
            self.store.bucket(&bucket).await.map_err(s3_error)?;
            let (contents, common_prefixes, next) = (vec![], vec![], None);
            return Ok(ListResults { contents, common_prefixes, next, ends_at_key: false });
        }
        let list = ListObjects { prefix, delimiter, after, limit, detail: Detail::Summary };
        let ObjectPage { objects, prefixes, next } = self.page(&bucket, list, is_view).await?;
        let ends_at_key = next.is_some() && objects.last().map(|(key, _)| key) == next.as_ref();
        let mut contents = Vec::with_capacity(objects.len());
        for (key, object) in objects {
            let owner = match &mut owners {
                Some(owners) => Some(owners.of(&object.attributes.marks).await),
                None => None,
            };
            contents.push(wire_object(encoding.write(key), &object, owner));
        }
        let common_prefixes = prefixes
            .into_iter()
            .map(|prefix| CommonPrefix { prefix: Some(encoding.write(prefix)) })
            .collect();
        Ok(ListResults { contents, common_prefixes, next, ends_at_key })
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

fn wire_object(key: String, object: &Stored, owner: Option<Owner>) -> Object {
    let checksum = object.checksums.first();
    Object {
        checksum_algorithm: checksum.map(|checksum| vec![wire_algorithm(checksum.algorithm)]),
        checksum_type: checksum.map(|checksum| wire_kind(checksum.kind)),
        e_tag: Some(wire_etag(object.etag)),
        key: Some(key),
        last_modified: Some(wire_time(object.modified_ms)),
        owner,
        restore_status: None,
        size: Some(wire_size(object.size)),
        storage_class: Some(wire_class(object.attributes.storage_class.as_deref()).into()),
    }
}
