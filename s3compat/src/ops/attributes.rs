//! `GetObjectAttributes`: metadata of an object and of its parts, without the body.

use http::{HeaderMap, StatusCode};
use martlet_protocol::entry::{ChecksumAlgorithm, Object};
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_proxy::{Error, ObjectPart as StoredPart};
use s3s::dto::{
    Checksum, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts,
    ObjectPart,
};
use s3s::{S3Request, S3Response, S3Result};

use super::versions::named;
use super::{BareTags, Operations, ReplyStatus, limit, parsed_headers, wire_count, wire_size};
use crate::attributes::{stamp_headers, wire_class, wire_etag, wire_time, wire_version};
use crate::checksums::{carried, set_checksums, wire_kind};
use crate::errors::s3_error;
use crate::messages;

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
        mut request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let parsed = parsed_headers(&mut request);
        let wanted = requested_attributes(&request.headers)?;
        let wants = |attribute| wanted.contains(&attribute);
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let page = PartsPage {
            after: limit(input.part_number_marker.or(Some(0)), usize::MAX, "part-number-marker")?,
            limit: limit(input.max_parts, LIST_KEYS_MAX, "max-parts")?,
        };
        let found = match self.store.parts(&input.bucket, name, &parsed.conditions).await {
            Ok(found) => found,
            Err(Error::NotModified(_)) => {
                let mut response = S3Response::new(GetObjectAttributesOutput::default());
                response.extensions.insert(ReplyStatus(StatusCode::NOT_MODIFIED));
                return Ok(response);
            }
            Err(error) => return Err(s3_error(error)),
        };
        let object = &found.object;
        let has_parts = wants(Attribute::Parts) && !found.parts.is_empty();
        let class = object.attributes.storage_class.as_deref();
        let output = GetObjectAttributesOutput {
            checksum: if wants(Attribute::Checksum) { checksum(object) } else { None },
            e_tag: wants(Attribute::ETag).then(|| wire_etag(object.etag)),
            last_modified: Some(wire_time(object.modified_ms)),
            object_parts: has_parts.then(|| parts(&found.parts, object, page)),
            object_size: wants(Attribute::Size).then(|| wire_size(object.size)),
            storage_class: wants(Attribute::Class).then(|| wire_class(class).into()),
            version_id: wire_version(object),
            ..Default::default()
        };
        let token = self.store.token(&input.bucket, &input.key, found.stamp);
        let mut response = S3Response::with_headers(output, stamp_headers(token));
        response.extensions.insert(BareTags);
        let of_parts = found.parts.iter().filter_map(|part| part.checksum.as_ref());
        carried::collect(&mut response.extensions, object.checksums.iter().chain(of_parts));
        Ok(response)
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

fn checksum(object: &Object) -> Option<Checksum> {
    let kind = wire_kind(object.checksums.first()?.kind);
    let mut wire = Checksum { checksum_type: Some(kind), ..Default::default() };
    set_checksums!(wire, &object.checksums, object.etag);
    Some(wire)
}

/// Page of an object's parts. Parts are numbered by their position in the object, as in reads.
fn parts(all: &[StoredPart], object: &Object, page: PartsPage) -> GetObjectAttributesParts {
    let count = |count| Some(wire_count(count));
    let rest = all.get(page.after..).unwrap_or_default();
    let shown = &rest[..rest.len().min(page.limit)];
    let next = page.after.min(all.len()) + shown.len();
    let wire = shown.iter().zip(page.after + 1..).map(|(part, number)| {
        let mut wire = ObjectPart {
            part_number: count(number),
            size: Some(wire_size(part.size)),
            ..Default::default()
        };
        set_checksums!(wire, part.checksum.iter(), object.etag);
        wire
    });
    GetObjectAttributesParts {
        is_truncated: Some(shown.len() < rest.len()),
        max_parts: count(page.limit),
        next_part_number_marker: count(next),
        part_number_marker: count(page.after),
        parts: Some(wire.collect()),
        total_parts_count: count(all.len()),
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::{Attributes, Body, ETag};

    use super::*;

    fn asked(lines: &[&str]) -> Result<Vec<Attribute>, String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ATTRIBUTES, line.parse().unwrap());
        }
        requested_attributes(&headers).map_err(|error| error.code().as_str().to_owned())
    }

    fn object() -> Object {
        Object {
            size: 6,
            etag: ETag::Multipart { md5: [0; 16], parts: 3 },
            modified_ms: 0,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        }
    }

    #[test]
    fn names_come_in_one_line_or_in_many() {
        let wanted = asked(&["ETag, ObjectSize", "ObjectParts"]).unwrap();
        assert_eq!(wanted, [Attribute::ETag, Attribute::Size, Attribute::Parts]);
        assert!(asked(&["Checksum,StorageClass"]).is_ok());
    }

    #[test]
    fn something_that_there_is_must_be_asked_for() {
        assert_eq!(asked(&[]), Err("InvalidRequest".into()));
        assert_eq!(asked(&["", " , "]), Err("InvalidRequest".into()));
        assert_eq!(asked(&["ETag,etag"]), Err("InvalidArgument".into()));
    }

    #[test]
    fn pages_of_parts_follow_one_another() {
        let all: Vec<_> = (1..=3).map(|size| StoredPart { size, checksum: None }).collect();
        let page = |after, limit| {
            let page = parts(&all, &object(), PartsPage { after, limit });
            let numbers: Vec<_> =
                page.parts.unwrap().iter().map(|part| (part.part_number, part.size)).collect();
            assert_eq!(page.total_parts_count, Some(3));
            (numbers, page.next_part_number_marker.unwrap(), page.is_truncated.unwrap())
        };
        let part = |number| (Some(number), Some(i64::from(number)));
        assert_eq!(page(0, 1000), (vec![part(1), part(2), part(3)], 3, false));
        assert_eq!(page(0, 2), (vec![part(1), part(2)], 2, true));
        assert_eq!(page(2, 2), (vec![part(3)], 3, false));
        assert_eq!(page(3, 2), (vec![], 3, false));
        assert_eq!(page(9, 2), (vec![], 3, false));
    }
}
