//! Document of a CreateBucket request. s3s has no type with the tags.

use s3s::S3Result;
use s3s::dto::{Tag, Tagging};
use s3s::xml::{DeError, DeResult, Deserialize, DeserializeContent, Deserializer};

use crate::messages;
use crate::request::OperationRequest;
use crate::tags;

const ROOT: &str = "CreateBucketConfiguration";

/// A `CreateBucketConfiguration`.
#[derive(Debug, Default)]
pub(super) struct NewBucketDocument {
    pub(super) location_constraint: Option<String>,
    /// True if the document describes a directory bucket.
    pub(super) is_directory: bool,
    tags: Option<Vec<Tag>>,
}

impl<'xml> Deserialize<'xml> for NewBucketDocument {
    fn deserialize(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        d.named_element(ROOT, Deserializer::content)
    }
}

impl<'xml> DeserializeContent<'xml> for NewBucketDocument {
    fn deserialize_content(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut document = Self::default();
        d.for_each_element(|d, name| match name {
            b"Tags" if document.tags.is_some() => Err(DeError::DuplicateField),
            b"Tags" => {
                document.tags = Some(d.list_content("Tag")?);
                Ok(())
            }
            b"LocationConstraint" if document.location_constraint.is_some() => {
                Err(DeError::DuplicateField)
            }
            b"LocationConstraint" => {
                document.location_constraint = Some(d.content()?);
                Ok(())
            }
            // The schema allows only descriptions of directory buckets besides.
            _ => {
                document.is_directory = true;
                skip(d)
            }
        })?;
        Ok(document)
    }
}

/// Skips the content of an element.
fn skip(d: &mut Deserializer<'_>) -> DeResult {
    d.for_each_element(|d, _| skip(d))
}

impl NewBucketDocument {
    /// Document of a request. Empty without one.
    pub(super) fn of(request: &OperationRequest) -> S3Result<Self> {
        Self::parse(request.document())
    }

    pub(super) fn parse(document: &[u8]) -> S3Result<Self> {
        if document.is_empty() {
            return Ok(Self::default());
        }
        Self::deserialize(&mut Deserializer::new(document))
            .map_err(|_| messages::MALFORMED_XML.error())
    }

    /// Returns true if the request has tags.
    pub(super) fn has_tags(&self) -> bool {
        self.tags.as_ref().is_some_and(|tags| !tags.is_empty())
    }

    /// Tags of the request, in the form in which they are stored.
    pub(super) fn tagging(&self) -> S3Result<Tagging> {
        let tags = tags::from_bucket_xml(self.tags.clone().unwrap_or_default())?;
        Ok(Tagging { tag_set: tags::to_xml(&tags) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(document: &'static str) -> Result<Vec<(String, String)>, String> {
        let read = NewBucketDocument::parse(document.as_bytes()).and_then(|it| it.tagging());
        let read = read.map_err(|error| error.code().as_str().to_owned())?;
        let pair = |tag: Tag| (tag.key.unwrap(), tag.value.unwrap());
        Ok(read.tag_set.into_iter().map(pair).collect())
    }

    #[test]
    fn tags_are_read_beside_what_else_there_is() {
        assert_eq!(read(""), Ok(Vec::new()));
        let none = "<CreateBucketConfiguration><LocationConstraint>x</LocationConstraint>\
                    </CreateBucketConfiguration>";
        assert_eq!(read(none), Ok(Vec::new()));
        let one = "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                   <LocationConstraint>x</LocationConstraint>\
                   <Tags><Tag><Key>a</Key><Value>b</Value></Tag></Tags></CreateBucketConfiguration>";
        assert_eq!(read(one), Ok(vec![("a".to_owned(), "b".to_owned())]));
    }

    #[test]
    fn tags_that_no_bucket_can_have_are_refused() {
        let twice = "<CreateBucketConfiguration><Tags><Tag><Key>a</Key><Value>b</Value></Tag>\
                     <Tag><Key>a</Key><Value>c</Value></Tag></Tags></CreateBucketConfiguration>";
        assert_eq!(read(twice), Err("InvalidTag".to_owned()));
        let half = "<CreateBucketConfiguration><Tags><Tag><Key>a</Key></Tag></Tags>\
                    </CreateBucketConfiguration>";
        assert_eq!(read(half), Err("MalformedXML".to_owned()));
    }
}
