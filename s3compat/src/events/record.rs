//! Event messages as S3 writes them: a JSON document with one record.

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::object_event::ObjectEvent;

const ISO: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
/// Bytes that hold most messages.
const MESSAGE_BYTES: usize = 1024;
/// Characters of a key to encode; spaces become `+` afterwards.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/').remove(b' ');

/// Common fields of all records of a request, or of a lifecycle rule's change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordContext<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) bucket_owner: &'a str,
    pub(crate) region: &'a str,
    pub(crate) now_ms: u64,
    /// Requester; `None` if anonymous.
    pub(crate) requester: Option<&'a str>,
    /// Address of the client, if known.
    pub(crate) source: Option<&'a str>,
    pub(crate) request_id: &'a str,
    pub(crate) host_id: &'a str,
}

/// Message of an event to a target, by the rule of this id.
pub(crate) fn message(about: &RecordContext<'_>, happening: &ObjectEvent, rule: &str) -> Bytes {
    written(&Message { records: [Record::of(about, happening, rule)] })
}

/// Message to a target that a new configuration names.
pub(crate) fn test_message(about: &RecordContext<'_>) -> Bytes {
    written(&TestMessage {
        service: "Amazon S3",
        event: "s3:TestEvent",
        time: &iso(about.now_ms),
        bucket: about.bucket,
        request_id: about.request_id,
        host_id: about.host_id,
    })
}

fn written(document: &impl Serialize) -> Bytes {
    let mut bytes = Vec::with_capacity(MESSAGE_BYTES);
    serde_json::to_writer(&mut bytes, document)
        .expect("texts and numbers are JSON, and memory takes them");
    bytes.into()
}

#[derive(Serialize)]
struct Message<'a> {
    #[serde(rename = "Records")]
    records: [Record<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct TestMessage<'a> {
    service: &'a str,
    event: &'a str,
    time: &'a str,
    bucket: &'a str,
    request_id: &'a str,
    host_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    event_version: &'a str,
    event_source: &'a str,
    aws_region: &'a str,
    event_time: String,
    event_name: &'a str,
    user_identity: Principal<'a>,
    request_parameters: RequestParameters<'a>,
    response_elements: ResponseElements<'a>,
    s3: Resource<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Principal<'a> {
    principal_id: &'a str,
}

#[derive(Serialize)]
struct RequestParameters<'a> {
    #[serde(rename = "sourceIPAddress")]
    source: &'a str,
}

#[derive(Serialize)]
struct ResponseElements<'a> {
    #[serde(rename = "x-amz-request-id")]
    request_id: &'a str,
    #[serde(rename = "x-amz-id-2")]
    host_id: &'a str,
}

#[derive(Serialize)]
struct Resource<'a> {
    #[serde(rename = "s3SchemaVersion")]
    schema_version: &'a str,
    #[serde(rename = "configurationId")]
    rule: &'a str,
    bucket: BucketFields<'a>,
    object: ObjectFields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BucketFields<'a> {
    name: &'a str,
    owner_identity: Principal<'a>,
    arn: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectFields<'a> {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(rename = "eTag", skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version_id: Option<&'a str>,
    /// Of two events of one key the later write has the greater sequencer.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequencer: Option<String>,
}

impl<'a> Record<'a> {
    fn of(about: &RecordContext<'a>, happening: &'a ObjectEvent, rule: &'a str) -> Self {
        Self {
            event_version: happening.event.record_version(),
            event_source: "aws:s3",
            aws_region: about.region,
            event_time: iso(about.now_ms),
            event_name: happening.event.name(),
            user_identity: Principal { principal_id: about.requester.unwrap_or("ANONYMOUS") },
            request_parameters: RequestParameters { source: about.source.unwrap_or_default() },
            response_elements: ResponseElements {
                request_id: about.request_id,
                host_id: about.host_id,
            },
            s3: Resource {
                schema_version: "1.0",
                rule,
                bucket: BucketFields {
                    name: about.bucket,
                    owner_identity: Principal { principal_id: about.bucket_owner },
                    arn: ["arn:aws:s3:::", about.bucket].concat(),
                },
                object: ObjectFields::of(happening),
            },
        }
    }
}

impl<'a> ObjectFields<'a> {
    fn of(happening: &'a ObjectEvent) -> Self {
        Self {
            key: encoded(&happening.key),
            size: happening.size,
            etag: happening.etag.as_deref(),
            version_id: happening.version.as_deref(),
            sequencer: happening.stamp.map(|stamp| hex::encode_upper(stamp.to_bytes())),
        }
    }
}

/// Key as in a form: spaces are `+`.
fn encoded(key: &str) -> String {
    let encoded: String = utf8_percent_encode(key, ENCODED).collect();
    if encoded.contains(' ') { encoded.replace(' ', "+") } else { encoded }
}

fn iso(ms: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(ISO).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Stamp;
    use serde_json::Value;

    use super::*;
    use crate::events::Event;

    const ABOUT: RecordContext<'_> = RecordContext {
        bucket: "b",
        bucket_owner: "owner",
        region: "us-east-1",
        now_ms: 1_700_000_000_123,
        requester: Some("alice"),
        source: Some("127.0.0.1"),
        request_id: "00AB",
        host_id: "host==",
    };

    fn happening(key: &str, ms: u64) -> ObjectEvent {
        ObjectEvent {
            event: Event::Put,
            key: key.to_owned(),
            size: Some(5),
            etag: Some("abc".to_owned()),
            version: None,
            stamp: Some(Stamp::at_ms(ms)),
        }
    }

    fn record_of(about: &RecordContext<'_>, happening: &ObjectEvent) -> Value {
        let document: Value = serde_json::from_slice(&message(about, happening, "r1")).unwrap();
        assert_eq!(document["Records"].as_array().unwrap().len(), 1);
        document["Records"][0].clone()
    }

    #[test]
    fn a_record_has_what_s3_has() {
        let record = record_of(&ABOUT, &happening("a b/\u{fc}+.jpg", 7));
        let at = |pointer: &str| record.pointer(pointer).cloned().unwrap_or_default();
        for (pointer, value) in [
            ("/eventVersion", "2.1"),
            ("/eventSource", "aws:s3"),
            ("/awsRegion", "us-east-1"),
            ("/eventTime", "2023-11-14T22:13:20.123Z"),
            ("/eventName", "ObjectCreated:Put"),
            ("/userIdentity/principalId", "alice"),
            ("/requestParameters/sourceIPAddress", "127.0.0.1"),
            ("/responseElements/x-amz-request-id", "00AB"),
            ("/responseElements/x-amz-id-2", "host=="),
            ("/s3/s3SchemaVersion", "1.0"),
            ("/s3/configurationId", "r1"),
            ("/s3/bucket/name", "b"),
            ("/s3/bucket/ownerIdentity/principalId", "owner"),
            ("/s3/bucket/arn", "arn:aws:s3:::b"),
            ("/s3/object/key", "a+b/%C3%BC%2B.jpg"),
            ("/s3/object/eTag", "abc"),
        ] {
            assert_eq!(at(pointer), value, "{pointer}");
        }
        assert_eq!(at("/s3/object/size"), 5);
        assert_eq!(record.pointer("/s3/object/versionId"), None);
    }

    #[test]
    fn later_writes_have_greater_sequencers() {
        let sequencer = |ms| {
            let record = record_of(&ABOUT, &happening("k", ms));
            record.pointer("/s3/object/sequencer").unwrap().as_str().unwrap().to_owned()
        };
        assert!(sequencer(255) < sequencer(256) && sequencer(256) < sequencer(1 << 40));
    }

    #[test]
    fn events_of_delete_markers_have_no_size_and_no_etag() {
        let gone = ObjectEvent {
            event: Event::DeleteMarkerCreated,
            size: None,
            etag: None,
            version: Some("v1".to_owned()),
            ..happening("k", 7)
        };
        let nobody = RecordContext { requester: None, source: None, ..ABOUT };
        let record = record_of(&nobody, &gone);
        let object = record.pointer("/s3/object").unwrap();
        assert_eq!((object.get("size"), object.get("eTag")), (None, None));
        assert_eq!(object["versionId"], "v1");
        assert_eq!(record.pointer("/userIdentity/principalId").unwrap(), "ANONYMOUS");
    }

    #[test]
    fn a_test_message_names_its_bucket() {
        let document: Value = serde_json::from_slice(&test_message(&ABOUT)).unwrap();
        assert_eq!(document["Event"], "s3:TestEvent");
        assert_eq!((&document["Bucket"], &document["RequestId"]), (&"b".into(), &"00AB".into()));
    }
}
