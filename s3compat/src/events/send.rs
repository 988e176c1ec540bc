//! Delivery of changes to the targets that a bucket's rules name.

use martlet_protocol::entry::Bucket;

use super::object_event::ObjectEvent;
use super::record::{RecordContext, message};
use super::sink::EventSink;
use super::target::target_of;
use crate::bucket_documents::BucketDocuments;

/// Sends changes to the targets that the bucket's rules name.
pub(crate) fn send_events(
    sink: &dyn EventSink,
    about: &RecordContext<'_>,
    bucket: &Bucket,
    all: &[ObjectEvent],
) {
    if all.is_empty() {
        return;
    }
    let documents = BucketDocuments::of(about.bucket, bucket);
    let Some(rules) = documents.rules(about.bucket, bucket) else { return };
    for happening in all {
        for rule in rules.meaning(happening.event, &happening.key) {
            if let Some(target) = target_of(&rule.arn) {
                sink.offer(target, about.bucket_owner, message(about, happening, &rule.id));
            }
        }
    }
}
