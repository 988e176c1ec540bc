//! PutObject, and its handling of bodies, shared with UploadPart.

use std::sync::Arc;

use http::StatusCode;
use http::header::{ETAG, HeaderMap, HeaderName, HeaderValue};
use martlet_protocol::entry::ChecksumAlgorithm;
use martlet_proxy::{NewBody, PutObject, Result};
use s3s::S3Result;

use super::checkpoints::with_outcome;
use super::lifecycle::add_expiration_header;
use super::operations::Operations;
use crate::attributes::{etag_header, from_request, new_version_of, stamp_headers};
use crate::body::RequestBody;
use crate::checksums;
use crate::decode::BodyFacts;
use crate::errors::s3_error;
use crate::events::{Event, ObjectEvents};
use crate::header_values::{VERSION_ID, version_header};
use crate::lock;
use crate::messages;
use crate::operation::Operation;
use crate::reply::Reply;
use crate::request::OperationRequest;

const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");

impl Operations {
    pub(super) async fn put_object(
        &self,
        request: &OperationRequest,
        body: RequestBody,
    ) -> S3Result<Reply> {
        let (bucket, key) = (request.bucket(), request.key());
        let headers = &request.headers;
        let parsed = request.conditions();
        let mut body = incoming(headers, &request.context.facts, body)?;
        if body.compute.is_empty() {
            body.compute.push(checksums::DEFAULT.0);
        }
        let mut attributes = from_request(headers, &parsed)?;
        lock::from_request(headers)?.write(&mut attributes.marks);
        self.mark_owner(request.authorization()?, headers, &mut attributes.marks).await?;
        let put = PutObject { conditions: parsed.write_conditions()?, attributes, body };
        let written = self.store.put(bucket, key, put).await.map_err(s3_error)?;
        let token = self.store.token(bucket, key, written.stamp);
        let object = &written.object;
        let mut headers = stamp_headers(token);
        headers.insert(ETAG, etag_header(object.etag));
        if let Some(version) = new_version_of(object) {
            headers.insert(VERSION_ID, version_header(version));
        }
        if let Some(checksum) = object.checksums.first() {
            let kind = HeaderValue::from_static(checksums::kind_name(checksum.kind));
            headers.insert(CHECKSUM_TYPE, kind);
        }
        checksums::set_headers(&mut headers, &object.checksums, object.etag);
        add_expiration_header(&mut headers, request, key, object);
        let event = match request.operation() {
            Operation::PostObject => Event::Post,
            _ => Event::Put,
        };
        let reply = Reply::empty(StatusCode::OK).with_headers(headers);
        let reply = with_outcome(reply, written.checkpoint.as_ref())?;
        Ok(reply.with_events(ObjectEvents::wrote(event, key, &written)))
    }
}

/// Body of a write, with the length, MD5 and checksums that its headers and trailers announce.
pub(super) fn incoming(
    headers: &HeaderMap,
    facts: &Arc<BodyFacts>,
    body: RequestBody,
) -> S3Result<NewBody> {
    let facts = facts.clone();
    let in_header = checksums::in_headers(headers, checksums::decode)?;
    let in_trailer = announced_trailers(&facts);
    let compute: Vec<ChecksumAlgorithm> = in_header
        .iter()
        .map(|(algorithm, _)| *algorithm)
        .chain(in_trailer.iter().copied())
        .collect();
    if compute.len() > 1 {
        return Err(messages::MANY_CHECKSUMS.error());
    }
    checksums::check_announced(headers, &compute)?;
    Ok(NewBody {
        bytes: body.into_stream(),
        size: facts.length(),
        md5: facts.content_md5(),
        compute,
        expected: Box::new(move || {
            let mut expected = trailing(&facts, &in_trailer)?;
            expected.extend(in_header);
            Ok(expected)
        }),
    })
}

fn announced_trailers(facts: &BodyFacts) -> Vec<ChecksumAlgorithm> {
    let declared = facts.declared_trailers();
    let is_declared = |algorithm: &ChecksumAlgorithm| {
        declared.iter().any(|name| name.as_str() == checksums::header(*algorithm))
    };
    ChecksumAlgorithm::ALL.into_iter().filter(is_declared).collect()
}

/// Checksums in the trailers. Refuses missing and malformed ones.
fn trailing(
    facts: &BodyFacts,
    announced: &[ChecksumAlgorithm],
) -> Result<Vec<(ChecksumAlgorithm, Vec<u8>)>> {
    let value = |algorithm: ChecksumAlgorithm| {
        let trailers = facts.trailers()?;
        let text = trailers.get(checksums::header(algorithm))?.to_str().ok()?;
        Some((algorithm, checksums::decode(algorithm, text)?))
    };
    announced
        .iter()
        .map(|&algorithm| {
            value(algorithm).ok_or_else(|| {
                let wrong = messages::CHECKSUM_TRAILER.with_subject(checksums::header(algorithm));
                martlet_proxy::Error::InvalidRequest(wrong.message.into_owned())
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;
    use crate::decode::BodyError;

    const CRC: (&str, &str) = ("x-amz-checksum-crc32", "AAAAAA==");

    fn body_of(pairs: &[(&'static str, &str)], facts: BodyFacts) -> S3Result<NewBody> {
        let headers =
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        incoming(&headers.collect(), &Arc::new(facts), RequestBody::default())
    }

    fn announcing(trailer: &'static str) -> BodyFacts {
        BodyFacts::new(Some(3), None, vec![HeaderName::from_static(trailer)])
    }

    #[test]
    fn a_checksum_in_a_header_is_computed_and_expected() {
        let body = body_of(&[CRC], BodyFacts::new(Some(3), Some([7; 16]), vec![])).unwrap();
        assert_eq!(body.compute, [ChecksumAlgorithm::Crc32]);
        assert_eq!((body.size, body.md5), (Some(3), Some([7; 16])));
        assert_eq!((body.expected)().unwrap(), [(ChecksumAlgorithm::Crc32, vec![0; 4])]);
    }

    #[test]
    fn a_checksum_in_a_trailer_is_expected_once_the_body_has_ended() {
        let facts = announcing("x-amz-checksum-sha1");
        let body = body_of(&[("x-amz-sdk-checksum-algorithm", "SHA1")], facts).unwrap();
        assert_eq!(body.compute, [ChecksumAlgorithm::Sha1]);
        assert!((body.expected)().is_err(), "the body has not ended");

        let facts = announcing("x-amz-checksum-crc32");
        facts.end([(CRC.0.parse().unwrap(), CRC.1.parse().unwrap())].into_iter().collect());
        let body = body_of(&[], facts).unwrap();
        assert_eq!((body.expected)().unwrap(), [(ChecksumAlgorithm::Crc32, vec![0; 4])]);

        let facts = announcing("x-amz-checksum-crc32");
        facts.end([(CRC.0.parse().unwrap(), "AAAA".parse().unwrap())].into_iter().collect());
        assert!((body_of(&[], facts).unwrap().expected)().is_err(), "four bytes are needed");
    }

    #[test]
    fn one_checksum_is_enough() {
        assert!(body_of(&[CRC], announcing("x-amz-checksum-sha1")).is_err());
    }

    #[test]
    fn an_announced_algorithm_has_a_value() {
        let sdk = ("x-amz-sdk-checksum-algorithm", "CRC64NVME");
        let missing = body_of(&[sdk], BodyFacts::default()).map(drop).unwrap_err();
        assert_eq!(missing.code().as_str(), "InvalidRequest");
        let facts = announcing("x-amz-checksum-crc64nvme");
        assert_eq!(body_of(&[sdk], facts).unwrap().compute, [ChecksumAlgorithm::Crc64Nvme]);
    }

    #[test]
    fn a_checksum_comes_in_a_header_or_in_a_trailer() {
        let both = body_of(&[CRC], announcing(CRC.0)).map(drop).unwrap_err();
        let said =
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
        assert_eq!(both.message().unwrap(), said);
    }

    #[tokio::test]
    async fn the_decoders_errors_keep_their_type() {
        let broken = futures::stream::iter([Err(BodyError::Incomplete)]);
        let body = RequestBody::new(http_body_util::StreamBody::new(broken));
        let error = body.into_stream().next().await.unwrap();
        assert_eq!(BodyError::find(&error.unwrap_err()), Some(&BodyError::Incomplete));
    }
}
