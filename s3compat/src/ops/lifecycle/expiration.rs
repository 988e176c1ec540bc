//! Expiration of objects and abortion of uploads in replies, with the rule's id:
//! `x-amz-expiration`, `x-amz-abort-date` and `x-amz-abort-rule-id`.
//!
//! A day has 24 hours here, even if the workers' setting for the length of a day differs: clients
//! receive the dates of S3.

use http::{HeaderMap, HeaderName, HeaderValue};
use martlet_protocol::entry::Object;
use martlet_protocol::lifecycle::{Day, Lifecycle, Subject, VersionPosition};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::Timestamp;

use crate::attributes::wire_time;
use crate::bucket_documents::BucketDocuments;
use crate::header_values::http_date;
use crate::ops::operations::Operations;
use crate::request::OperationRequest;

const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");
/// Characters that are percent-encoded in a rule's id.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Adds `x-amz-expiration` to the reply to a request if the object with this key, the current version,
/// expires. Without readable rules adds nothing.
pub(in super::super) fn add_expiration_header(
    headers: &mut HeaderMap,
    request: &OperationRequest,
    key: &str,
    object: &Object,
) {
    let Some(found) = request.context.observation.bucket() else { return };
    let documents = BucketDocuments::of(request.bucket(), found);
    let Some(rules) = documents.lifecycle(found) else { return };
    if let Some(value) = expiration(rules, key, object) {
        headers.insert(EXPIRATION, value);
    }
}

impl Operations {
    /// Time at which an incomplete upload is aborted, and the id of the rule, if any.
    pub(in super::super) async fn abort_of(
        &self,
        bucket: &str,
        key: &str,
        initiated_ms: u64,
    ) -> (Option<Timestamp>, Option<String>) {
        let Ok(found) = self.store.bucket(bucket).await else { return (None, None) };
        let documents = BucketDocuments::of(bucket, &found);
        let Some(rules) = documents.lifecycle(&found) else { return (None, None) };
        let subject = Subject { key, object: None };
        let due = rules.due(&subject, VersionPosition::Upload { initiated_ms }, Day::FULL);
        let due = due.map(|due| (wire_time(due.at_ms), encoded(due.rule)));
        due.unzip()
    }
}

/// Percent-encodes a rule's id for a header.
fn encoded(rule: &str) -> String {
    utf8_percent_encode(rule, &PLAIN).to_string()
}

fn expiration(rules: &Lifecycle, key: &str, object: &Object) -> Option<HeaderValue> {
    let subject = Subject { key, object: Some((object.size, &object.attributes.tags)) };
    let access = VersionPosition::Current { modified_ms: object.modified_ms };
    let due = rules.due(&subject, access, Day::FULL)?;
    let date = http_date(due.at_ms);
    let date = date.to_str().ok()?;
    let rule = encoded(due.rule);
    HeaderValue::try_from(format!("expiry-date=\"{date}\", rule-id=\"{rule}\"")).ok()
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::{Attributes, Body, ETag};
    use martlet_protocol::lifecycle::{Expiration, Filter, Rule, Scope};

    use super::*;

    #[test]
    fn replies_carry_the_expiration_and_its_rule() {
        let object = Object {
            size: 3,
            etag: ETag::Md5([0; 16]),
            // Sun, 06 Nov 1994 08:49:37 GMT.
            modified_ms: 784_111_777_999,
            attributes: Attributes {
                tags: vec![("a".into(), "b".into())],
                ..Attributes::default()
            },
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        };
        let filter = Filter { tag: Some(("a".into(), "b".into())), ..Filter::default() };
        let mut rule = Rule {
            id: "r 1/\u{e4}".into(),
            is_enabled: true,
            scope: Scope::Filter(filter),
            expiration: Some(Expiration::Days(2)),
            noncurrent: None,
            abort_upload_days: None,
        };
        let of = |rule: &Rule| {
            let rules = Lifecycle { rules: vec![rule.clone()], transition_minimum: None };
            expiration(&rules, "k", &object)
        };
        let expected = "expiry-date=\"Wed, 09 Nov 1994 00:00:00 GMT\", rule-id=\"r%201%2F%C3%A4\"";
        assert_eq!(of(&rule).unwrap(), expected);
        rule.expiration = Some(Expiration::Marker(true));
        assert_eq!(of(&rule), None);
        rule.expiration = Some(Expiration::Days(2));
        rule.is_enabled = false;
        assert_eq!(of(&rule), None);
    }
}
