//! Requests for transfers by RDMA, which this store declines.
//!
//! A client names its memory in a token. It takes a reply with an ETag for a transfer that was
//! done, so a declined write must never look like one: an object of no bytes would be stored. A
//! declined read has its bytes in the body as usual, and the header tells the client so.
//!
//! Invariants:
//! * A write with a token is answered 501, and stores nothing.
//! * A read with a token is answered as without one, with [`REPLY`] besides.
//! * No reply counts transferred bytes in a header.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::operation::Operation;
use crate::refusal::Refusal;

/// Beginning of the names of headers about RDMA.
const PREFIX: &str = "x-amz-rdma-";
/// Token in the form of user metadata, which some clients send.
const META_TOKEN: &str = "x-amz-meta-rdma-token";
/// Header of replies to requests with a token.
const REPLY: &str = "x-amz-rdma-reply";
/// Its value: RDMA is not implemented.
const DECLINED: &str = "501";

/// True for a header about RDMA. Operations decide about these, by [`check`].
pub(crate) fn is_header(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn is_read(operation: Operation) -> bool {
    matches!(operation, Operation::GetObject | Operation::HeadObject)
}

/// Refuses RDMA for all operations but reads. The length of the body is known by now.
pub(crate) fn check(operation: Operation, headers: &HeaderMap) -> Result<(), Refusal> {
    if is_read(operation) {
        return Ok(());
    }
    let is_empty = || headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    let writes = matches!(operation, Operation::PutObject | Operation::UploadPart);
    let by_name = headers.keys().map(HeaderName::as_str).find(|name| is_header(name));
    let by_meta = (writes && headers.contains_key(META_TOKEN) && is_empty()).then_some(META_TOKEN);
    match by_name.or(by_meta) {
        Some(name) => Err(Refusal::not_implemented(name).with_header(REPLY, DECLINED)),
        None => Ok(()),
    }
}

/// Adds to the reply of a read that its token was declined.
pub(crate) fn decline(operation: Operation, request: &HeaderMap, reply: &mut HeaderMap) {
    let has_token = || {
        let mut names = request.keys().map(HeaderName::as_str);
        names.any(|name| is_header(name) || name == META_TOKEN)
    };
    if is_read(operation) && has_token() {
        reply.insert(HeaderName::from_static(REPLY), HeaderValue::from_static(DECLINED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn reads_go_on_and_all_else_is_refused() {
        let token = headers(&[("x-amz-rdma-token", "t")]);
        for operation in Operation::ALL {
            assert_eq!(check(*operation, &token).is_ok(), is_read(*operation), "{operation:?}");
            let mut reply = HeaderMap::new();
            decline(*operation, &token, &mut reply);
            assert_eq!(reply.contains_key(REPLY), is_read(*operation), "{operation:?}");
        }
        let refusal = check(Operation::PutObject, &token).unwrap_err();
        assert_eq!(refusal.header, Some(("x-amz-rdma-reply", "501")));
        let mut reply = HeaderMap::new();
        decline(Operation::GetObject, &HeaderMap::new(), &mut reply);
        assert!(reply.is_empty());
    }

    #[test]
    fn metadata_is_a_token_where_the_body_is_empty() {
        let empty = headers(&[("x-amz-meta-rdma-token", "t"), ("content-length", "0")]);
        let absent = headers(&[("x-amz-meta-rdma-token", "t")]);
        let whole = headers(&[("x-amz-meta-rdma-token", "t"), ("content-length", "5")]);
        for operation in [Operation::PutObject, Operation::UploadPart] {
            assert!(check(operation, &empty).is_err() && check(operation, &absent).is_err());
            assert!(check(operation, &whole).is_ok());
        }
        assert!(check(Operation::CreateMultipartUpload, &absent).is_ok(), "plain metadata");
    }
}
