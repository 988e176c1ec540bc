//! `GetObjectAttributes`: metadata of an object and of its parts, without the body.

use std::io::Write;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, LAST_MODIFIED};
use martlet_protocol::entry::{ETag, Object};
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_proxy::{Error, ObjectPart as StoredPart};
use s3s::S3Result;
use s3s::xml::{SerResult, Serialize, SerializeContent, Serializer};

use super::operations::Operations;
use super::wire::{NAMESPACE, limit, wire_count, wire_size};
use crate::attributes::{stamp_headers, wire_class, wire_version};
use crate::checksums;
use crate::checksums::elements::ChecksumElements;
use crate::errors::s3_error;
use crate::fields::number;
use crate::header_values::{VERSION_ID, http_date};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;

const MAX_PARTS: HeaderName = HeaderName::from_static("x-amz-max-parts");
const PART_NUMBER_MARKER: HeaderName = HeaderName::from_static("x-amz-part-number-marker");

const ATTRIBUTES: &str = "x-amz-object-attributes";

/// An attribute that a request can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    ETag,
    Checksum,
    Parts,
    Class,
    Size,
}

/// A page of the list of parts.
#[derive(Clone, Copy, Debug)]
struct PartsPage {
    after: usize,
    limit: usize,
}

impl Operations {
    pub(super) async fn get_object_attributes(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let parsed = request.conditions();
        let headers = &request.headers;
        let after = number(headers, &PART_NUMBER_MARKER)?.or(Some(0));
        let max_parts = number(headers, &MAX_PARTS)?;
        let wanted = requested_attributes(headers)?;
        let is_requested = |attribute| wanted.contains(&attribute);
        let name = request.object_name()?;
        let page = PartsPage {
            after: limit(after, usize::MAX, "part-number-marker")?,
            limit: limit(max_parts, LIST_KEYS_MAX, "max-parts")?,
        };
        let found = match self.store.parts(request.bucket(), name, &parsed.conditions).await {
            Ok(found) => found,
            Err(Error::NotModified(_)) => return Ok(Reply::empty(StatusCode::NOT_MODIFIED)),
            Err(error) => return Err(s3_error(error)),
        };
        let object = &found.object;
        let has_parts = is_requested(Attribute::Parts) && !found.parts.is_empty();
        let class = object.attributes.storage_class.as_deref();
        let document = AttributesDocument {
            checksums_of: is_requested(Attribute::Checksum).then_some(object),
            etag: is_requested(Attribute::ETag).then(|| object.etag.to_string()),
            parts: has_parts.then(|| PartsDocument::of(&found.parts, object.etag, page)),
            size: is_requested(Attribute::Size).then(|| wire_size(object.size)),
            storage_class: is_requested(Attribute::Class).then(|| wire_class(class)),
        };
        let token = self.store.token(request.bucket(), request.key(), found.stamp);
        let mut headers = stamp_headers(token);
        headers.insert(LAST_MODIFIED, http_date(object.modified_ms));
        Reply::xml(&document)?.with_headers(headers).with_header(VERSION_ID, wire_version(object))
    }
}

/// Attributes of an object. As in S3, the entity tag has no quotes, which those of s3s always have.
struct AttributesDocument<'a> {
    /// Object whose checksums are selected.
    checksums_of: Option<&'a Object>,
    etag: Option<String>,
    parts: Option<PartsDocument<'a>>,
    size: Option<i64>,
    storage_class: Option<String>,
}

impl Serialize for AttributesDocument<'_> {
    fn serialize<W: Write>(&self, s: &mut Serializer<W>) -> SerResult {
        s.element_with_ns("GetObjectAttributesResponse", NAMESPACE, |s| {
            if let Some(object) = self.checksums_of
                && let Some(checksum) = object.checksums.first()
            {
                s.element("Checksum", |s| {
                    ChecksumElements::of(object).serialize_content(s)?;
                    s.content("ChecksumType", checksums::kind_name(checksum.kind))
                })?;
            }
            if let Some(etag) = &self.etag {
                s.content("ETag", etag)?;
            }
            if let Some(parts) = &self.parts {
                s.content("ObjectParts", parts)?;
            }
            if let Some(size) = &self.size {
                s.content("ObjectSize", size)?;
            }
            if let Some(class) = &self.storage_class {
                s.content("StorageClass", class)?;
            }
            Ok(())
        })
    }
}

/// Page of an object's parts. Parts are numbered by their position in the object, as in reads.
struct PartsDocument<'a> {
    page: PartsPage,
    shown: &'a [StoredPart],
    /// Position after the page.
    next: usize,
    is_truncated: bool,
    total: usize,
    etag: ETag,
}

impl<'a> PartsDocument<'a> {
    fn of(all: &'a [StoredPart], etag: ETag, page: PartsPage) -> Self {
        let rest = all.get(page.after..).unwrap_or_default();
        let shown = &rest[..rest.len().min(page.limit)];
        let next = page.after.min(all.len()) + shown.len();
        Self { page, shown, next, is_truncated: shown.len() < rest.len(), total: all.len(), etag }
    }

    /// The parts of the page with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (usize, &'a StoredPart)> {
        (self.page.after + 1..).zip(self.shown)
    }
}

impl SerializeContent for PartsDocument<'_> {
    fn serialize_content<W: Write>(&self, s: &mut Serializer<W>) -> SerResult {
        s.content("IsTruncated", &self.is_truncated)?;
        s.content("MaxParts", &wire_count(self.page.limit))?;
        s.content("NextPartNumberMarker", &wire_count(self.next))?;
        s.content("PartNumberMarker", &wire_count(self.page.after))?;
        for (number, part) in self.numbered() {
            s.element("Part", |s| {
                let checksums = part.checksum.as_slice();
                ChecksumElements { checksums, etag: self.etag }.serialize_content(s)?;
                s.content("PartNumber", &wire_count(number))?;
                s.content("Size", &wire_size(part.size))
            })?;
        }
        s.content("PartsCount", &wire_count(self.total))
    }
}

/// Parses the attribute names in the header, in one line or several.
fn requested_attributes(headers: &HeaderMap) -> S3Result<Vec<Attribute>> {
    let mut wanted = Vec::new();
    for line in headers.get_all(ATTRIBUTES) {
        let names = line.to_str().unwrap_or("?").split(',').map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            wanted.push(match name {
                "ETag" => Attribute::ETag,
                "Checksum" => Attribute::Checksum,
                "ObjectParts" => Attribute::Parts,
                "StorageClass" => Attribute::Class,
                "ObjectSize" => Attribute::Size,
                _ => return Err(messages::OBJECT_ATTRIBUTE.argument(ATTRIBUTES, name).into()),
            });
        }
    }
    if wanted.is_empty() {
        return Err(messages::OBJECT_ATTRIBUTES.error());
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes_of(lines: &[&str]) -> Result<Vec<Attribute>, String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ATTRIBUTES, line.parse().unwrap());
        }
        requested_attributes(&headers).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn names_come_in_one_line_or_in_many() {
        let wanted = attributes_of(&["ETag, ObjectSize", "ObjectParts"]).unwrap();
        assert_eq!(wanted, [Attribute::ETag, Attribute::Size, Attribute::Parts]);
        assert!(attributes_of(&["Checksum,StorageClass"]).is_ok());
    }

    #[test]
    fn at_least_one_known_attribute_is_required() {
        assert_eq!(attributes_of(&[]), Err("InvalidRequest".into()));
        assert_eq!(attributes_of(&["", " , "]), Err("InvalidRequest".into()));
        assert_eq!(attributes_of(&["ETag,etag"]), Err("InvalidArgument".into()));
    }

    #[test]
    fn pages_of_parts_follow_one_another() {
        let all: Vec<_> = (1..=3).map(|size| StoredPart { size, checksum: None }).collect();
        let page = |after, limit| {
            let page = PartsDocument::of(&all, ETag::Md5([0; 16]), PartsPage { after, limit });
            let numbers: Vec<_> =
                page.numbered().map(|(number, part)| (number, part.size)).collect();
            assert_eq!(page.total, 3);
            (numbers, page.next, page.is_truncated)
        };
        let part = |number| (number, number as u64);
        assert_eq!(page(0, 1000), (vec![part(1), part(2), part(3)], 3, false));
        assert_eq!(page(0, 2), (vec![part(1), part(2)], 2, true));
        assert_eq!(page(2, 2), (vec![part(3)], 3, false));
        assert_eq!(page(3, 2), (vec![], 3, false));
        assert_eq!(page(9, 2), (vec![], 3, false));
    }
}
