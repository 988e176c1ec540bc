//! Changes of objects.

use martlet_protocol::Stamp;
use martlet_proxy::{Deleted, WrittenObject};

use super::name::Event;
use crate::attributes::wire_version;

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectEvent {
    pub(crate) event: Event,
    pub(crate) key: String,
    /// `None` for a deleted object.
    pub(crate) size: Option<u64>,
    /// ETag without quotes.
    pub(crate) etag: Option<String>,
    pub(crate) version: Option<String>,
    /// Stamp of the write.
    pub(crate) stamp: Option<Stamp>,
}

/// Changes by a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectEvents(pub(crate) Vec<ObjectEvent>);

impl ObjectEvents {
    /// An object was written, or its metadata changed.
    pub(crate) fn wrote(event: Event, key: &str, written: &WrittenObject) -> Self {
        Self(vec![ObjectEvent {
            event,
            key: key.to_owned(),
            size: Some(written.object.size),
            etag: Some(written.object.etag.to_string()),
            version: wire_version(&written.object),
            stamp: Some(written.stamp),
        }])
    }

    /// An object was deleted, if it existed. `named` is true if the request named a version.
    pub(crate) fn deleted(key: &str, named: bool, deleted: &Deleted) -> Self {
        Self(ObjectEvent::deleted(key, named, deleted).into_iter().collect())
    }
}

impl ObjectEvent {
    /// Deletion of one object, if it existed. `named` is true if the request named a version.
    pub(crate) fn deleted(key: &str, named: bool, deleted: &Deleted) -> Option<Self> {
        let stamp = deleted.stamp?;
        let is_new_marker = deleted.is_marker && !named;
        Some(Self {
            event: if is_new_marker { Event::DeleteMarkerCreated } else { Event::Delete },
            key: key.to_owned(),
            size: None,
            etag: None,
            version: deleted.version.map(|version| version.to_string()),
            stamp: Some(stamp),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_that_removed_nothing_is_no_event() {
        let nothing = Deleted { stamp: None, version: None, is_marker: false };
        assert!(ObjectEvents::deleted("k", false, &nothing).0.is_empty());
        let stamp = Some(Stamp::at_ms(5));
        let event = |named, is_marker| {
            let deleted = Deleted { stamp, version: None, is_marker };
            ObjectEvents::deleted("k", named, &deleted).0[0].event
        };
        assert_eq!(event(false, false), Event::Delete);
        assert_eq!(event(false, true), Event::DeleteMarkerCreated);
        assert_eq!(event(true, true), Event::Delete, "a marker itself is gone");
    }
}
