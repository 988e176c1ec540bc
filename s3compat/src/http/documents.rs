//! Documents: bodies that are read whole before their operation begins.

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_LENGTH;

use super::checksum::{check_checksums, check_md5};
use super::pipeline_state::{PipelineError, RequestPipeline};
use super::{schema, xml};
use crate::decode::{DecodedBody, collect};
use crate::operation::{BodyKind, Operation};
use crate::refusal::Refusal;
use crate::request::{Document, OperationRequest};

impl RequestPipeline {
    /// Reads the document of a request whole, and checks its bytes and its shape. Its memory is
    /// released when the request ends.
    pub(super) async fn read_document<B>(
        &self,
        body: DecodedBody<B>,
        head: &mut OperationRequest,
    ) -> Result<(), PipelineError>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let (bytes_max, is_checked, is_xml) = match head.operation().row().body {
            BodyKind::Xml { bytes_max, is_checked } => (bytes_max, is_checked, true),
            BodyKind::Text { bytes_max } => (bytes_max, true, false),
            BodyKind::Ignored | BodyKind::Stream => return Ok(()),
        };
        let meters = head.context.identity.who().map(|who| &who.meters);
        let mut memory = self.documents.begin(meters);
        let document = collect(body, bytes_max, &mut memory).await?;
        let facts = &head.context.facts;
        check_md5(&document, facts.content_md5())?;
        if is_checked {
            check_checksums(&document, &head.headers, facts.trailers())?;
        }
        let document = if is_xml { plain_document(document, head.operation())? } else { document };
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(document.len()));
        head.document = Some(Document::new(document, memory));
        Ok(())
    }
}

/// Inspects a document, and converts it to a form that s3s can parse.
pub(crate) fn plain_document(document: Bytes, operation: Operation) -> Result<Bytes, Refusal> {
    if document.is_empty() {
        return Ok(document);
    }
    // Clients send control characters in keys, unescaped. Other documents are returned to clients,
    // whose parsers would refuse them.
    if operation != Operation::DeleteObjects {
        xml::check_characters(&document)?;
    }
    xml::inspect(&document, schema::root_of(operation))?;
    Ok(xml::spell_out(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    fn code(document: &str, operation: Operation) -> Option<Code> {
        let document = Bytes::copy_from_slice(document.as_bytes());
        plain_document(document, operation).err().map(|refusal| refusal.code)
    }

    #[test]
    fn characters_that_xml_forbids_are_refused_but_in_keys_to_delete() {
        for character in ['\u{1}', '\u{b}', '\u{c}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
            let delete = format!("<Delete><Object><Key>a{character}b</Key></Object></Delete>");
            assert_eq!(code(&delete, Operation::DeleteObjects), None, "{character:?}");
            let tagging = format!(
                "<Tagging><TagSet><Tag><Key>k</Key><Value>{character}</Value></Tag></TagSet></Tagging>"
            );
            let refused = code(&tagging, Operation::PutBucketTagging);
            assert_eq!(refused, Some(Code::MalformedXml), "{character:?}");
        }
        let good = "<Tagging>\t\r\n<TagSet><Tag><Key>\u{7f}\u{85}\u{fffd}\u{1f511}</Key>\
                    <Value></Value></Tag></TagSet></Tagging>";
        assert_eq!(code(good, Operation::PutBucketTagging), None);
    }
}
