//! Facts about a body that operations need besides its bytes.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName};

/// Facts about a body: announced ones at once, the trailers after its successful end.
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

    /// Length of the decoded body in bytes, if the client announced it. It is enforced.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Content-MD5 of the decoded body, if the client sent one. Documents are checked by the HTTP
    /// pipeline; the readers of other bodies must check it.
    pub fn content_md5(&self) -> Option<[u8; 16]> {
        self.content_md5
    }

    /// Trailers that the client announced. A body without one of them is refused.
    pub fn declared_trailers(&self) -> &[HeaderName] {
        &self.declared
    }

    /// Trailers of the body. None before its successful end.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.get()
    }

    pub(crate) fn end(&self, trailers: HeaderMap) {
        // A body ends once; a second end would carry the same trailers.
        let _ = self.trailers.set(trailers);
    }
}
