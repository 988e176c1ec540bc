//! Documents of CompleteMultipartUpload. s3s has fields for five of the ten checksums.

use std::io::Write;

use martlet_protocol::entry::{ChecksumAlgorithm, Object};
use s3s::dto::ETag;
use s3s::xml::{
    DeError, DeResult, Deserialize, DeserializeContent, Deserializer, SerResult, Serialize,
    SerializeContent, Serializer,
};

use super::wire::NAMESPACE;
use crate::attributes::wire_etag;
use crate::checksums;
use crate::checksums::elements::{ChecksumElements, of_element};
use crate::request::OperationRequest;

/// Parts that a request names, before validation.
#[derive(Debug, Default)]
pub(super) struct RequestedParts(pub(super) Vec<RequestedPart>);

/// A part that a request names.
#[derive(Debug, Default)]
pub(super) struct RequestedPart {
    pub(super) number: Option<i32>,
    pub(super) etag: Option<ETag>,
    pub(super) checksums: Vec<(ChecksumAlgorithm, String)>,
}

impl<'xml> Deserialize<'xml> for RequestedParts {
    fn deserialize(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        d.named_element("CompleteMultipartUpload", Deserializer::content)
    }
}

impl<'xml> DeserializeContent<'xml> for RequestedParts {
    fn deserialize_content(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        d.list_content("Part").map(Self)
    }
}

impl<'xml> DeserializeContent<'xml> for RequestedPart {
    fn deserialize_content(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut part = Self::default();
        d.for_each_element(|d, name| match name {
            b"PartNumber" => set(&mut part.number, d.content()?),
            b"ETag" => set(&mut part.etag, d.content()?),
            name => {
                let algorithm = of_element(name).ok_or(DeError::UnexpectedTagName)?;
                if part.checksums.iter().any(|(other, _)| *other == algorithm) {
                    return Err(DeError::DuplicateField);
                }
                part.checksums.push((algorithm, d.content()?));
                Ok(())
            }
        })?;
        Ok(part)
    }
}

/// Sets a field that may occur once.
fn set<T>(field: &mut Option<T>, value: T) -> DeResult {
    if field.replace(value).is_some() { Err(DeError::DuplicateField) } else { Ok(()) }
}

/// Reply to a completed upload.
pub(super) struct CompletedDocument<'a> {
    pub(super) request: &'a OperationRequest,
    pub(super) object: &'a Object,
    pub(super) location: String,
}

impl Serialize for CompletedDocument<'_> {
    fn serialize<W: Write>(&self, s: &mut Serializer<W>) -> SerResult {
        let object = self.object;
        s.element_with_ns("CompleteMultipartUploadResult", NAMESPACE, |s| {
            s.content("Bucket", self.request.bucket())?;
            ChecksumElements::of(object).serialize_content(s)?;
            if let Some(checksum) = object.checksums.first() {
                s.content("ChecksumType", checksums::kind_name(checksum.kind))?;
            }
            s.content("ETag", &wire_etag(object.etag))?;
            s.content("Key", self.request.key())?;
            s.content("Location", &self.location)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(document: &str) -> Result<Vec<RequestedPart>, String> {
        let parts = RequestedParts::deserialize(&mut Deserializer::new(document.as_bytes()));
        parts.map(|parts| parts.0).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_have_checksums_of_any_algorithm() {
        let document = "<CompleteMultipartUpload><Part><PartNumber>2</PartNumber>\
                        <ETag>&quot;abc&quot;</ETag><ChecksumXXHASH3>AA==</ChecksumXXHASH3></Part>\
                        <Part><ETag>abc</ETag></Part></CompleteMultipartUpload>";
        let parts = parts(document).unwrap();
        assert_eq!(parts[0].number, Some(2));
        assert_eq!(parts[0].checksums, [(ChecksumAlgorithm::Xxhash3, "AA==".to_owned())]);
        let etags = parts.iter().map(|part| part.etag.as_ref().unwrap().value());
        assert!(etags.eq(["abc", "abc"]));
        assert_eq!(parts[1].number, None);
    }

    #[test]
    fn repeated_fields_are_refused() {
        for twice in ["PartNumber>1</PartNumber", "ETag>a</ETag", "ChecksumMD5>a</ChecksumMD5"] {
            let part = format!("<Part><{twice}><{twice}></Part>");
            let document = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
            assert!(parts(&document).is_err(), "{twice}");
        }
    }
}
