//! Owners of buckets that a request expects.

use http::{HeaderMap, HeaderName};
use s3s::S3Result;

use crate::access::{AccountIdentity, Requester};
use crate::errors::denied;

/// Headers with the expected owners of the bucket and of a copy's source bucket.
const EXPECTED_OWNER: HeaderName = HeaderName::from_static("x-amz-expected-bucket-owner");
const EXPECTED_SOURCE_OWNER: HeaderName =
    HeaderName::from_static("x-amz-source-expected-bucket-owner");

/// Account that must own a bucket, if the request names one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpectedOwner(Option<Box<[u8]>>);

impl ExpectedOwner {
    /// Expected owner of the bucket.
    pub(crate) fn of_bucket(headers: &HeaderMap) -> Self {
        Self::of(headers, &EXPECTED_OWNER)
    }

    /// Expected owner of a copy's source bucket.
    pub(crate) fn of_source(headers: &HeaderMap) -> Self {
        Self::of(headers, &EXPECTED_SOURCE_OWNER)
    }

    fn of(headers: &HeaderMap, name: &HeaderName) -> Self {
        Self(headers.get(name).map(|value| value.as_bytes().into()))
    }

    /// Refuses a bucket of another owner. The expected owner matches by canonical id, or by account
    /// name if the requester is the owner.
    pub(crate) fn check(&self, requester: &Requester, owner: &str) -> S3Result<()> {
        let Some(expected) = &self.0 else { return Ok(()) };
        let is_own =
            |who: &AccountIdentity| *who.canonical_id == *owner && is_text(expected, &who.account);
        let is_met = match requester {
            _ if is_text(expected, owner) => true,
            Requester::Anonymous | Requester::LogDelivery => false,
            Requester::User(who) => is_own(who),
        };
        if is_met { Ok(()) } else { Err(denied()) }
    }
}

fn is_text(bytes: &[u8], text: &str) -> bool {
    bytes == text.as_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_owner_is_expected_by_its_id_and_by_itself_by_its_name() {
        let check = |expected: &'static str, requester: &Requester| {
            let headers =
                HeaderMap::from_iter([(EXPECTED_OWNER, HeaderValue::from_static(expected))]);
            ExpectedOwner::of(&headers, &EXPECTED_OWNER).check(requester, "c0ffee").is_ok()
        };
        let alice = Requester::User(Arc::new(AccountIdentity {
            canonical_id: "c0ffee".into(),
            ..AccountIdentity::named("alice")
        }));
        let bob = Requester::named("bob");
        assert!(check("c0ffee", &alice) && check("alice", &alice));
        assert!(check("c0ffee", &bob) && !check("alice", &bob) && !check("bob", &bob));
        assert!(check("c0ffee", &Requester::Anonymous) && !check("", &Requester::Anonymous));
        assert!(!check("c0ffeefoo", &alice) && !check("123456789012", &alice));
        assert!(ExpectedOwner::default().check(&bob, "c0ffee").is_ok(), "nobody is expected");
    }
}
