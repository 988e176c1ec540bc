//! The header with the release of a process, in requests and replies.
//!
//! ```text
//! x-martlet-release: wire=0-1 formats=2-2 level=2 name=0.1.0
//! ```
//!
//! Each process compares its own versions with the header of each message, so that nothing is
//! remembered of a process that was replaced meanwhile. A channel keeps the version of its opening:
//! a process that starts anew has no channel of the process before.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::release::Release;

/// Release of the sender.
const RELEASE: HeaderName = HeaderName::from_static("x-martlet-release");

/// Own release of a process, with its header. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseTag(Arc<TagContent>);

#[derive(Debug, PartialEq, Eq)]
struct TagContent {
    release: Release,
    header: HeaderValue,
}

impl ReleaseTag {
    /// Creates the tag of a release.
    ///
    /// # Panics
    /// When the name of the release is not valid in a header.
    pub fn new(release: Release) -> Self {
        let header = HeaderValue::try_from(release.to_string());
        let header = header.expect("names of releases are plain ASCII");
        Self(Arc::new(TagContent { release, header }))
    }

    /// Creates the tag of this release at the oldest format level, which any caller may announce.
    pub(super) fn own() -> Self {
        Self::new(Release::own(crate::release::FORMATS.oldest))
    }

    /// The release.
    pub fn release(&self) -> &Release {
        &self.0.release
    }

    pub(super) fn put_on(&self, headers: &mut HeaderMap) {
        headers.insert(RELEASE, self.0.header.clone());
    }

    /// Returns the version that this process and the sender of `headers` speak with each other, or
    /// a sentence if they have none. `own` and `sender` are nouns for the two.
    pub(super) fn common_wire(
        &self,
        own: &dyn fmt::Display,
        sender: &dyn fmt::Display,
        headers: &HeaderMap,
    ) -> Result<u16, String> {
        let TagContent { release, header } = &*self.0;
        let sent = headers.get(RELEASE);
        if sent == Some(header) {
            return Ok(release.wire.newest);
        }
        release.common_wire(own, sender, &announced(sent))
    }
}

/// Announced release of another process: the header as it came. Cheap to clone and to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedRelease(Option<HeaderValue>);

impl AnnouncedRelease {
    /// Reads the header; a message without it comes from a release before versions.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get(RELEASE).cloned())
    }

    /// Returns the release.
    pub fn release(&self) -> Release {
        announced(self.0.as_ref())
    }
}

fn announced(header: Option<&HeaderValue>) -> Release {
    Release::announced(header.and_then(|header| header.to_str().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::VersionRange;

    fn tag(oldest: u16, newest: u16) -> ReleaseTag {
        let wire = VersionRange { oldest, newest };
        ReleaseTag::new(Release { wire, ..Release::own(2) })
    }

    fn headers(tag: &ReleaseTag) -> HeaderMap {
        let mut headers = HeaderMap::new();
        tag.put_on(&mut headers);
        headers
    }

    #[test]
    fn two_processes_agree_on_a_version_from_either_side() {
        let (zero, own, later) = (HeaderMap::new(), tag(0, 1), tag(1, 2));
        assert_eq!(own.common_wire(&"a", &"b", &zero), Ok(0));
        assert_eq!(own.common_wire(&"a", &"b", &headers(&own)), Ok(1));
        assert_eq!(own.common_wire(&"a", &"b", &headers(&later)), Ok(1));
        assert_eq!(later.common_wire(&"a", &"b", &headers(&own)), Ok(1));
        assert!(later.common_wire(&"a", &"b", &zero).is_err());
        assert!(tag(0, 1).common_wire(&"a", &"b", &headers(&tag(2, 2))).is_err());
    }

    #[test]
    fn a_release_survives_its_header() {
        let announced = AnnouncedRelease::of(&headers(&tag(1, 2)));
        assert_eq!(announced.release(), *tag(1, 2).release());
        let before = AnnouncedRelease::of(&HeaderMap::new());
        assert_eq!(before.release(), Release::unannounced());
    }
}
