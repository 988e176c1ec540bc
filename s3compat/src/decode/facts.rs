//! What the operations learn of a body beside its bytes.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName};

/// What is known of a body: some of it at once, the rest once the body has ended well.
#[derive(Debug, Default)]
pub struct BodyFacts {
    length: Option<u64>,
    content_md5: Option<[u8; 16]>,
    declared: Vec<HeaderName>,
    trailers: OnceLock<HeaderMap>,
}

impl BodyFacts {
    pub(crate) fn new(
        length: Option<u64>,
        content_md5: Option<[u8; 16]>,
        declared: Vec<HeaderName>,
    ) -> Self {
        Self { length, content_md5, declared, trailers: OnceLock::new() }
    }

    /// Bytes of the decoded body, if the client announced them. They are enforced.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The Content-MD5 of the decoded body, if the client gave one. It was checked here for bodies
    /// that are XML; for others the check is the reader's.
    pub fn content_md5(&self) -> Option<[u8; 16]> {
        self.content_md5
    }

    /// The trailers that the client announced. A body without one of them is refused.
    pub fn declared_trailers(&self) -> &[HeaderName] {
        &self.declared
    }

    /// The trailers. There are none before the body has ended well.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.get()
    }

    pub(crate) fn end(&self, trailers: HeaderMap) {
        // A body ends once; a second end would carry the same trailers.
        let _ = self.trailers.set(trailers);
    }
}
