//! Tags in a CreateBucket request. s3s ignores them, so they are parsed from the document.

use http::Extensions;
use s3s::S3Result;
use s3s::dto::{Tag, Tagging};
use s3s::xml::{DeError, DeResult, Deserialize, DeserializeContent, Deserializer};

use crate::http::RequestDocument;
use crate::messages;
use crate::tags;

const ROOT: &str = "CreateBucketConfiguration";

/// Tags in a `CreateBucketConfiguration`.
#[derive(Debug, Default)]
struct NewTags(Option<Vec<Tag>>);

impl<'xml> Deserialize<'xml> for NewTags {
    fn deserialize(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        d.named_element(ROOT, Deserializer::content)
    }
}

impl<'xml> DeserializeContent<'xml> for NewTags {
    fn deserialize_content(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut tags = None;
        d.for_each_element(|d, name| match name {
            b"Tags" if tags.is_some() => Err(DeError::DuplicateField),
            b"Tags" => {
                tags = Some(d.list_content("Tag")?);
                Ok(())
            }
            _ => skip(d),
        })?;
        Ok(Self(tags))
    }
}

/// Skips the content of an element.
fn skip(d: &mut Deserializer<'_>) -> DeResult {
    d.for_each_element(|d, _| skip(d))
}

/// Tags in the document among a request's extensions.
fn requested_tags(extensions: &Extensions) -> S3Result<Vec<Tag>> {
    let Some(RequestDocument(document)) = extensions.get() else { return Ok(Vec::new()) };
    if document.is_empty() {
        return Ok(Vec::new());
    }
    match NewTags::deserialize(&mut Deserializer::new(document)) {
        Ok(NewTags(tags)) => Ok(tags.unwrap_or_default()),
        Err(_) => Err(messages::MALFORMED_XML.error()),
    }
}

/// Returns true if the request has tags.
pub(super) fn are_given(extensions: &Extensions) -> S3Result<bool> {
    Ok(!requested_tags(extensions)?.is_empty())
}

/// Tags of the request, in the form in which they are stored.
pub(super) fn of(extensions: &Extensions) -> S3Result<Tagging> {
    let tags = tags::from_bucket_xml(requested_tags(extensions)?)?;
    Ok(Tagging { tag_set: tags::to_xml(&tags) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(document: &'static str) -> Result<Vec<(String, String)>, String> {
        let mut extensions = Extensions::new();
        extensions.insert(RequestDocument(document.into()));
        let read = of(&extensions).map_err(|error| error.code().as_str().to_owned())?;
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
