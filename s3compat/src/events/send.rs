//! Delivery of changes to the targets that a bucket's rules name.

use martlet_protocol::Setting;
use martlet_protocol::entry::Bucket;

use super::object_event::ObjectEvent;
use super::record::{RecordContext, message};
use super::rules::Rules;
use super::sink::EventSink;
use super::target::target_of;

/// Sends changes to the targets that the bucket's rules name.
pub(crate) fn send_events(
    sink: &dyn EventSink,
    about: &RecordContext<'_>,
    bucket: &Bucket,
    all: &[ObjectEvent],
) {
    let Some(document) = bucket.settings.get(Setting::Notification) else { return };
    if all.is_empty() {
        return;
    }
    let Some(rules) = Rules::of(document) else {
        tracing::error!(bucket = about.bucket, "could not read the notification rules of a bucket");
        return;
    };
    for happening in all {
        for rule in rules.meaning(happening.event, &happening.key) {
            if let Some(target) = target_of(&rule.arn) {
                sink.offer(target, about.bucket_owner, message(about, happening, &rule.id));
            }
        }
    }
}
