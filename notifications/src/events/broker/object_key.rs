//! Key of a message: bucket and key of its object, as `BUCKET/KEY`.
//!
//! Messages of one object share a key, so a broker that orders by key keeps their order.

use percent_encoding::percent_decode_str;
use serde::Deserialize;

#[derive(Deserialize)]
struct EventMessage {
    #[serde(rename = "Records", default)]
    records: Vec<EventRecord>,
    /// Bucket of an `s3:TestEvent`.
    #[serde(rename = "Bucket")]
    bucket: Option<String>,
}

#[derive(Deserialize)]
struct EventRecord {
    s3: EventSubject,
}

#[derive(Deserialize)]
struct EventSubject {
    bucket: EventBucket,
    object: EventObject,
}

#[derive(Deserialize)]
struct EventBucket {
    name: String,
}

#[derive(Deserialize)]
struct EventObject {
    /// Key in percent-encoding, with `+` for a blank.
    key: String,
}

/// Returns the key of a message: `BUCKET/KEY`, with the key as clients name it. A test message has
/// its bucket, and a message of another form has none.
pub(super) fn object_key(message: &[u8]) -> Option<Vec<u8>> {
    let message: EventMessage = serde_json::from_slice(message).ok()?;
    let Some(EventRecord { s3 }) = message.records.into_iter().next() else {
        return message.bucket.map(String::into_bytes);
    };
    let mut key = s3.bucket.name.into_bytes();
    key.push(b'/');
    key.extend(percent_decode_str(&s3.object.key.replace('+', " ")));
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_and_test_messages_have_their_bucket() {
        let of = |text: &str| object_key(text.as_bytes()).map(|it| String::from_utf8(it).unwrap());
        let record =
            r#"{"Records":[{"s3":{"bucket":{"name":"b"},"object":{"key":"a+dir/%C3%BC%2B1"}}}]}"#;
        assert_eq!(of(record).unwrap(), "b/a dir/ü+1");
        assert_eq!(of(r#"{"Event":"s3:TestEvent","Bucket":"b"}"#).unwrap(), "b");
        assert_eq!((of("{}"), of("no JSON"), of(r#"{"Records":[{}]}"#)), (None, None, None));
    }
}
