//! Events of lifecycle rules. The requester is S3 itself, without a client address.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use martlet_protocol::Clock;
use martlet_protocol::entry::Bucket;
use martlet_protocol::id::random_bytes;
use martlet_proxy::{Expired, Witness};

use super::name::Event;
use super::object_event::ObjectEvent;
use super::record::RecordContext;
use super::send::send_events;
use super::sink::EventSink;
use crate::auth::UNNAMED_REGION;

/// Requester and source of lifecycle events.
const SERVICE: &str = "s3.amazonaws.com";

/// Sends the events of lifecycle rules to their targets.
#[derive(Debug)]
pub struct ExpiryEvents {
    sink: Arc<dyn EventSink>,
    clock: Arc<dyn Clock>,
    host_id: String,
}

impl ExpiryEvents {
    /// Sends events through `sink`.
    pub fn new(sink: Arc<dyn EventSink>, clock: Arc<dyn Clock>) -> Self {
        Self { sink, clock, host_id: STANDARD.encode(random_bytes::<32>()) }
    }
}

impl Witness for ExpiryEvents {
    fn expired(&self, name: &str, bucket: &Bucket, expired: &Expired<'_>) {
        let Expired { key, stamp, version, is_new_marker } = *expired;
        let happening = ObjectEvent {
            event: if is_new_marker { Event::ExpiredByMarker } else { Event::Expired },
            key: key.to_owned(),
            size: None,
            etag: None,
            version: version.map(|version| version.to_string()),
            stamp: Some(stamp),
        };
        let about = RecordContext {
            bucket: name,
            bucket_owner: &bucket.owner,
            region: UNNAMED_REGION,
            now_ms: self.clock.now_ms(),
            requester: Some(SERVICE),
            source: Some(SERVICE),
            request_id: &hex::encode_upper(random_bytes::<8>()),
            host_id: &self.host_id,
        };
        send_events(self.sink.as_ref(), &about, bucket, &[happening]);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use martlet_protocol::entry::BucketState;
    use martlet_protocol::{
        BucketId, Level, ManualClock, PolicyId, Setting, Settings, Stamp, VersionId,
    };
    use parking_lot::Mutex;
    use serde_json::Value;

    use super::super::{Rule, Rules, TargetKind};
    use super::*;

    #[derive(Debug, Default)]
    struct RecordingSink(Mutex<Vec<(String, Value)>>);

    impl EventSink for RecordingSink {
        fn admits(&self, _target: &str, _tenant: &str) -> bool {
            true
        }

        fn offer(&self, target: &str, owner: &str, message: Bytes) {
            assert_eq!(owner, "alice");
            let message = serde_json::from_slice(&message).unwrap();
            self.0.lock().push((target.to_owned(), message));
        }
    }

    fn rule(id: &str, events: &str) -> Rule {
        Rule {
            id: id.to_owned(),
            kind: TargetKind::Queue,
            arn: format!("arn:martlet:sqs:::{id}"),
            events: vec![events.to_owned()],
            prefix: Some("old/".to_owned()),
            suffix: None,
        }
    }

    fn bucket(rules: Vec<Rule>) -> Bucket {
        let mut settings = Settings::default();
        settings.set(Setting::Notification, Rules(rules).document()).unwrap();
        Bucket {
            id: BucketId([1; 16]),
            created_ms: 0,
            generation: 0,
            state: BucketState::Open,
            index_shards: 1,
            policy: PolicyId(0),
            owner: "alice".into(),
            consistency: Level::default(),
            settings,
        }
    }

    #[test]
    fn expirations_send_s3s_events_to_matching_targets() {
        let sink = Arc::new(RecordingSink::default());
        let clock = Arc::new(ManualClock::at(1_700_000_000_123));
        let events = ExpiryEvents::new(sink.clone(), clock);
        let all = rule("all", "s3:LifecycleExpiration:*");
        let others = rule("others", "s3:ObjectRemoved:*");
        let bucket = bucket(vec![all, others]);
        let stamp = Stamp::at_ms(5);
        let gone = Expired { key: "old/k", stamp, version: None, is_new_marker: false };
        events.expired("b", &bucket, &gone);
        let version = Some(VersionId::Null);
        events.expired("b", &bucket, &Expired { version, is_new_marker: true, ..gone });
        events.expired("b", &bucket, &Expired { key: "new/k", ..gone });
        let sent = sink.0.lock();
        let [(to, first), (again, second)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((to.as_str(), again.as_str()), ("all", "all"));
        for (pointer, value) in [
            ("/eventVersion", "2.3"),
            ("/eventSource", "aws:s3"),
            ("/eventName", "LifecycleExpiration:Delete"),
            ("/eventTime", "2023-11-14T22:13:20.123Z"),
            ("/userIdentity/principalId", "s3.amazonaws.com"),
            ("/requestParameters/sourceIPAddress", "s3.amazonaws.com"),
            ("/s3/configurationId", "all"),
            ("/s3/bucket/ownerIdentity/principalId", "alice"),
            ("/s3/object/key", "old/k"),
        ] {
            assert_eq!(first["Records"][0].pointer(pointer).unwrap(), value, "{pointer}");
        }
        let object = first["Records"][0]["s3"]["object"].as_object().unwrap();
        assert_eq!(object.keys().collect::<Vec<_>>(), ["key", "sequencer"]);
        let second = &second["Records"][0];
        assert_eq!(second["eventName"], "LifecycleExpiration:DeleteMarkerCreated");
        assert_eq!(second["s3"]["object"]["versionId"], "null");
    }
}
