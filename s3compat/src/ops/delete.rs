//! DeleteObject and DeleteObjects.

use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use martlet_protocol::entry::ChecksumAlgorithm;
use martlet_protocol::limits::{KEY_BYTES_MAX, LIST_KEYS_MAX};
use martlet_protocol::lock::Bypass;
use martlet_proxy::{DeleteConditions, Deleted, ETagCondition, ObjectName};
use s3s::dto::{Delete, DeleteObjectsOutput, DeletedObject, Error, ObjectIdentifier, Timestamp};
use s3s::{S3Result, s3_error};
use time::OffsetDateTime;
use tokio::sync::Mutex;

use super::lock::{BYPASS, bypass_of};
use super::operations::Operations;
use crate::attributes::stamp_headers;
use crate::authorization::Authorization;
use crate::checksums;
use crate::decode::BodyFacts;
use crate::errors::s3_error;
use crate::events::{ObjectEvent, ObjectEvents};
use crate::fields::{date, flag, number};
use crate::header_values::{VERSION_ID, version_header};
use crate::logging::{BatchOutcome, BatchedKey};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::version_ids::named;

/// Maximum number of concurrent deletes of one request: enough to share syncs, few enough to leave
/// the node to other requests.
const CONCURRENT_DELETES: usize = 64;
const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
const IF_MODIFIED: HeaderName = HeaderName::from_static("x-amz-if-match-last-modified-time");
const IF_SIZE: HeaderName = HeaderName::from_static("x-amz-if-match-size");

/// Access check of each key that a request deletes.
struct DeleteCheck<'a> {
    authorization: &'a Authorization,
    bypass: Bypass,
    /// Turn of the one check that runs at a time.
    turns: Mutex<()>,
}

impl Operations {
    pub(super) async fn delete_object(&self, request: &OperationRequest) -> S3Result<Reply> {
        let headers = &request.headers;
        let bypass = bypass_of(flag(headers, &BYPASS)?);
        let (modified, size) = (date(headers, &IF_MODIFIED)?, number(headers, &IF_SIZE)?);
        let name = request.object_name()?;
        let conditions = request.conditions().write_conditions()?;
        if conditions.if_none_match.is_some() {
            return Err(s3_error!(
                NotImplemented,
                "A delete can't be conditional on If-None-Match"
            ));
        }
        let conditions = DeleteConditions {
            if_match: conditions.if_match,
            modified_s: seconds_of(IF_MODIFIED.as_str(), modified.as_ref())?,
            size: size_of("x-amz-if-match-size", size)?,
        };
        let deleted = self.delete_object_named(request.bucket(), name, &conditions, bypass).await?;
        let mut reply = Reply::empty(StatusCode::NO_CONTENT);
        if let Some(stamp) = deleted.stamp {
            let token = self.store.token(request.bucket(), request.key(), stamp);
            reply.headers = stamp_headers(token);
        }
        if deleted.is_marker {
            reply.headers.insert(DELETE_MARKER, HeaderValue::from_static("true"));
        }
        if let Some(version) = deleted.version {
            reply.headers.insert(VERSION_ID, version_header(version));
        }
        let is_named = name.version.is_some();
        Ok(reply.with_events(ObjectEvents::deleted(request.key(), is_named, &deleted)))
    }

    pub(super) async fn delete_objects(&self, request: &OperationRequest) -> S3Result<Reply> {
        let bypass = bypass_of(flag(&request.headers, &BYPASS)?);
        let delete: Delete = request.parse_document()?;
        request.refuse_conditions()?;
        check_digest(&request.headers, &request.context.facts)?;
        let bucket = request.bucket();
        if !(1..=LIST_KEYS_MAX).contains(&delete.objects.len()) {
            return Err(messages::MALFORMED_XML.error());
        }
        self.store.bucket(bucket).await.map_err(s3_error)?;
        let quiet = delete.quiet == Some(true);
        let keys = delete.objects.len();
        let authorization = &request.authorization()?.with(|context| context.allow_keys(keys));
        let check = &DeleteCheck { authorization, bypass, turns: Mutex::new(()) };
        let mut outcomes = futures::stream::iter(delete.objects)
            .map(|object| self.delete_named(check, bucket, object))
            .buffered(CONCURRENT_DELETES);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        let (mut happened, mut batched) = (ObjectEvents::default(), BatchOutcome::default());
        while let Some((object, outcome)) = outcomes.next().await {
            if let Ok(outcome) = &outcome {
                let is_named = object.version_id.is_some();
                happened.0.extend(ObjectEvent::deleted(&object.key, is_named, outcome));
            }
            batched.0.push(batched_key(&object, &outcome));
            match outcome {
                Ok(_) if quiet => {}
                Ok(outcome) => deleted.push(wire_deleted(object, &outcome)),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(object.key),
                    message: error.message().map(str::to_owned),
                    version_id: object.version_id,
                }),
            }
        }
        let mut reply = Reply::xml(&DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            request_charged: None,
        })?;
        (reply.effects.events, reply.effects.batch) = (happened, batched);
        Ok(reply)
    }

    async fn delete_named(
        &self,
        check: &DeleteCheck<'_>,
        bucket: &str,
        object: ObjectIdentifier,
    ) -> (ObjectIdentifier, S3Result<Deleted>) {
        let outcome = self.delete_one(check, bucket, &object).await;
        (object, outcome)
    }

    async fn delete_one(
        &self,
        check: &DeleteCheck<'_>,
        bucket: &str,
        object: &ObjectIdentifier,
    ) -> S3Result<Deleted> {
        let DeleteCheck { authorization, bypass, turns } = check;
        let conditions = conditions_of(object)?;
        let name = named(&object.key, object.version_id.as_deref())?;
        // A thousand keys may be checked against a long policy: yield to other requests after each
        // key.
        let turn = if authorization.reads_objects() { None } else { Some(turns.lock().await) };
        tokio::task::yield_now().await;
        authorization.check_delete(name, *bypass).await?;
        drop(turn);
        self.delete_object_named(bucket, name, &conditions, *bypass).await
    }

    async fn delete_object_named(
        &self,
        bucket: &str,
        ObjectName { key, version }: ObjectName<'_>,
        conditions: &DeleteConditions,
        bypass: Bypass,
    ) -> S3Result<Deleted> {
        let deleted = match version {
            None => self.store.delete(bucket, key, conditions.clone()).await,
            Some(version) => {
                self.store.versions().delete_past(bucket, key, version, bypass, conditions).await
            }
        };
        deleted.map_err(s3_error)
    }
}

/// Refuses a list of keys without a digest or checksum. The HTTP pipeline has compared the given
/// ones.
fn check_digest(headers: &HeaderMap, facts: &BodyFacts) -> S3Result<()> {
    let is_given = |algorithm: ChecksumAlgorithm| {
        let name = checksums::header(algorithm);
        headers.contains_key(name)
            || facts.trailers().is_some_and(|trailers| trailers.contains_key(name))
    };
    if facts.content_md5().is_some() || ChecksumAlgorithm::ALL.into_iter().any(is_given) {
        return Ok(());
    }
    Err(messages::MISSING_DIGEST.error())
}

/// Access log record of one of many keys.
fn batched_key(object: &ObjectIdentifier, outcome: &S3Result<Deleted>) -> BatchedKey {
    let (status, error) = match outcome {
        Ok(_) => (StatusCode::NO_CONTENT, None),
        Err(error) => (
            error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            Some(error.code().as_str().to_owned()),
        ),
    };
    let made = outcome.as_ref().ok().and_then(|deleted| deleted.version);
    BatchedKey {
        key: object.key.clone(),
        version: made.map(|version| version.to_string()).or_else(|| object.version_id.clone()),
        status: status.as_u16(),
        error,
    }
}

fn wire_deleted(object: ObjectIdentifier, outcome: &Deleted) -> DeletedObject {
    let version = outcome.version.map(|version| version.to_string());
    DeletedObject {
        delete_marker: outcome.is_marker.then_some(true),
        delete_marker_version_id: version.filter(|_| outcome.is_marker),
        key: Some(object.key),
        version_id: object.version_id,
    }
}

/// Validates one of many keys, and returns the conditions of its deletion.
pub(super) fn conditions_of(object: &ObjectIdentifier) -> S3Result<DeleteConditions> {
    if object.key.is_empty() {
        return Err(messages::KEY_EMPTY.error());
    }
    if object.key.len() > KEY_BYTES_MAX {
        return Err(messages::KEY_TOO_LONG.error());
    }
    let if_match = object.e_tag.as_ref().map(|tag| match tag.value() {
        "*" => ETagCondition::Any,
        tag => ETagCondition::OneOf(vec![tag.to_owned()]),
    });
    Ok(DeleteConditions {
        if_match,
        modified_s: seconds_of("LastModifiedTime", object.last_modified_time.as_ref())?,
        size: size_of("Size", object.size)?,
    })
}

/// Time at which an object must have been modified, in seconds, if the argument `name` is given.
fn seconds_of(name: &str, time: Option<&Timestamp>) -> S3Result<Option<u64>> {
    let Some(time) = time else { return Ok(None) };
    let seconds = OffsetDateTime::from(time.clone()).unix_timestamp();
    let seconds = u64::try_from(seconds).map_err(|_| messages::DELETE_TIME.named(name))?;
    Ok(Some(seconds))
}

/// Size that an object must have, in bytes, if the argument `name` is given.
fn size_of(name: &'static str, size: Option<i64>) -> S3Result<Option<u64>> {
    let Some(size) = size else { return Ok(None) };
    let bytes = u64::try_from(size).map_err(|_| messages::DELETE_SIZE.argument(name, size))?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use s3s::dto::ETag;

    use super::*;

    fn object(key: &str) -> ObjectIdentifier {
        ObjectIdentifier {
            key: key.to_owned(),
            e_tag: None,
            last_modified_time: None,
            size: None,
            version_id: None,
        }
    }

    fn code(object: &ObjectIdentifier) -> String {
        conditions_of(object).unwrap_err().code().as_str().to_owned()
    }

    #[test]
    fn each_key_is_judged_by_itself() {
        assert_eq!(conditions_of(&object("k")).unwrap(), DeleteConditions::default());
        assert_eq!(code(&object("")), "UserKeyMustBeSpecified");
        assert_eq!(code(&object(&"k".repeat(1025))), "KeyTooLongError");
        let sized = ObjectIdentifier { size: Some(-3), ..object("k") };
        assert_eq!(code(&sized), "InvalidArgument");
    }

    #[test]
    fn an_etag_is_a_condition() {
        let tagged = ObjectIdentifier { e_tag: Some(ETag::Strong("abc".into())), ..object("k") };
        let conditions = conditions_of(&tagged).unwrap();
        assert_eq!(conditions.if_match, Some(ETagCondition::OneOf(vec!["abc".into()])));
    }

    #[test]
    fn so_are_a_size_and_the_second_of_its_last_change() {
        let time = Timestamp::from(std::time::UNIX_EPOCH + std::time::Duration::from_millis(1500));
        let known =
            ObjectIdentifier { size: Some(3), last_modified_time: Some(time), ..object("k") };
        let conditions = conditions_of(&known).unwrap();
        assert_eq!((conditions.size, conditions.modified_s), (Some(3), Some(1)));
    }
}
