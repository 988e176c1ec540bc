//! Bytes of an object or of a range, read on where a connection broke.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_RANGE;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::client::operations::ObjectRequest;
use crate::client::{S3Client, back_off, chain};
use crate::error::{Error, ErrorKind, Result};

/// Maximum time to the next bytes of a body.
const PATIENCE: Duration = Duration::from_mins(1);

/// Range of an object at the source.
#[derive(Clone, Debug)]
pub(crate) struct SourceRange {
    pub(crate) key: Arc<str>,
    /// ETag that the object must have.
    pub(crate) etag: String,
    /// First byte.
    pub(crate) first: u64,
    /// Byte behind the last one.
    pub(crate) end: u64,
}

/// Reader of a range.
pub(crate) struct SourceReader {
    client: Arc<S3Client>,
    range: SourceRange,
    body: Option<Incoming>,
    /// Broken connections that the reader still bears.
    reopenings: u32,
}

impl SourceReader {
    /// Reads a range, from its first byte on. A body that is open already is read first.
    pub(crate) fn new(
        client: Arc<S3Client>,
        range: SourceRange,
        body: Option<Incoming>,
        reopenings: u32,
    ) -> Self {
        Self { client, range, body, reopenings }
    }

    /// Returns the next bytes, or `None` at the end of the range.
    ///
    /// # Errors
    /// The object is another one, or connections broke too often.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut failures = 0;
        loop {
            if self.range.first == self.range.end {
                return Ok(None);
            }
            match self.read().await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.is_passing() && self.reopenings > 0 => {
                    self.body = None;
                    self.reopenings -= 1;
                    failures += 1;
                    back_off(failures).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn read(&mut self) -> Result<Bytes> {
        if self.body.is_none() {
            self.body = Some(self.open().await?);
        }
        let body = self.body.as_mut().expect("it was opened");
        loop {
            let frame = timeout(PATIENCE, body.frame()).await;
            let frame = frame.map_err(|_| Error::transient("the source sends no more bytes"))?;
            let frame = frame.ok_or_else(|| Error::transient("the source's body ended early"))?;
            let frame = frame.map_err(|error| {
                Error::transient(format!("the source's body broke: {}", chain(&error)))
            })?;
            let Ok(mut bytes) = frame.into_data() else { continue };
            if bytes.is_empty() {
                continue;
            }
            let left = usize::try_from(self.range.end - self.range.first).unwrap_or(usize::MAX);
            bytes.truncate(left);
            self.range.first += bytes.len() as u64;
            return Ok(bytes);
        }
    }

    async fn open(&self) -> Result<Incoming> {
        let SourceRange { key, etag, first, end } = &self.range;
        let etag = Some(etag.as_str()).filter(|it| !it.is_empty());
        let request = ObjectRequest { key, etag, range: Some([*first, *end]) };
        let response = self.client.get(request).await.map_err(|error| match error.kind() {
            ErrorKind::Condition => {
                Error::new(ErrorKind::Changed, "the object changed while it was copied")
            }
            _ => error,
        })?;
        self.check(&response)?;
        Ok(response.into_body())
    }

    /// Checks that a reply is the requested range of the expected object.
    fn check(&self, response: &Response<Incoming>) -> Result<()> {
        let SourceRange { etag, first, end, .. } = &self.range;
        let found = crate::client::etag_of(response.headers());
        if !found.is_empty() && !etag.is_empty() && found != *etag {
            return Err(Error::new(ErrorKind::Changed, "the object changed while it was copied"));
        }
        let range = response.headers().get(CONTENT_RANGE).and_then(|it| it.to_str().ok());
        let expected = format!("bytes {first}-{}/", end - 1);
        let is_range = range.is_some_and(|it| it.starts_with(&expected));
        // Some stores answer a range with the status 200.
        if !is_range {
            return Err(Error::new(
                ErrorKind::Refused,
                "the source does not answer requests of a range with that range",
            ));
        }
        Ok(())
    }
}
