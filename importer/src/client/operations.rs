//! S3's operations, as the importer needs them.

use std::time::Duration;

use bytes::Bytes;
use http::header::{IF_MATCH, IF_NONE_MATCH, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response};
use hyper::body::Incoming;

use super::xml::{self, BegunUpload, ErrorDocument, ListPage, SentPart, Tagging};
use super::{Call, S3Client};
use crate::error::{Error, ErrorKind, Result};

/// Keys in a page.
const PAGE_KEYS: &str = "1000";
/// Maximum time of a completion: stores may assemble the object first.
const COMPLETION_PATIENCE: Duration = Duration::from_mins(15);

/// Condition of a write, evaluated by the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteCondition {
    /// The key has no object.
    Absent,
    /// The key's object has this ETag.
    Unchanged(String),
}

impl WriteCondition {
    /// Adds the header of the condition.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) -> Result<()> {
        match self {
            Self::Absent => headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*")),
            Self::Unchanged(etag) => headers.insert(IF_MATCH, etag_header(etag)?),
        };
        Ok(())
    }
}

/// Request of one page of a listing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageRequest<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) start_after: Option<&'a str>,
    pub(crate) token: Option<&'a str>,
    pub(crate) delimiter: Option<&'a str>,
}

/// Request of an object's bytes or metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectRequest<'a> {
    pub(crate) key: &'a str,
    /// Expected ETag; another object is refused.
    pub(crate) etag: Option<&'a str>,
    /// First byte, and the byte behind the last one.
    pub(crate) range: Option<[u64; 2]>,
}

impl S3Client {
    /// Lists a page.
    pub(crate) async fn list(&self, page: PageRequest<'_>) -> Result<ListPage> {
        let mut query = vec![
            ("list-type", "2"),
            ("max-keys", PAGE_KEYS),
            ("encoding-type", "url"),
            ("prefix", page.prefix),
        ];
        query.extend(page.delimiter.map(|it| ("delimiter", it)));
        match page.token {
            Some(token) => query.push(("continuation-token", token)),
            None => query.extend(page.start_after.map(|it| ("start-after", it))),
        }
        let reply = self.call(Call::new(Method::GET, None, &query)).await;
        ListPage::parse(&reply.map_err(|error| error.within("listing"))?.body)
    }

    /// Begins to read an object or a range.
    pub(crate) async fn get(&self, object: ObjectRequest<'_>) -> Result<Response<Incoming>> {
        self.open(object_call(Method::GET, object, &[])?).await
    }

    /// Reads an object's metadata.
    pub(crate) async fn head(&self, object: ObjectRequest<'_>) -> Result<HeaderMap> {
        Ok(self.call(object_call(Method::HEAD, object, &[])?).await?.headers)
    }

    /// Reads the metadata of a part of an object.
    pub(crate) async fn head_of_part(
        &self,
        object: ObjectRequest<'_>,
        number: u32,
    ) -> Result<HeaderMap> {
        let number = number.to_string();
        let query = [("partNumber", number.as_str())];
        Ok(self.call(object_call(Method::HEAD, object, &query)?).await?.headers)
    }

    /// Reads the tags of an object, as the value of `x-amz-tagging`.
    pub(crate) async fn tags(&self, key: &str) -> Result<String> {
        let reply = self.call(Call::new(Method::GET, Some(key), &[("tagging", "")])).await;
        let reply = reply.map_err(|error| error.within("tags"))?;
        Ok(xml::parse::<Tagging>(&reply.body, "tags")?.header())
    }

    /// Begins an upload and returns its id.
    pub(crate) async fn begin_upload(&self, key: &str, headers: HeaderMap) -> Result<String> {
        let call = Call::new(Method::POST, Some(key), &[("uploads", "")]);
        let reply = self.call(Call { headers, ..call }).await?;
        Ok(xml::parse::<BegunUpload>(&reply.body, "begun upload")?.upload_id)
    }

    /// Completes an upload and returns the object's ETag.
    pub(crate) async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        headers: HeaderMap,
        parts: &[SentPart],
    ) -> Result<String> {
        let query = [("uploadId", upload)];
        let body = Bytes::from(xml::completion(parts));
        let call = Call::new(Method::POST, Some(key), &query);
        let reply =
            self.call(Call { headers, body, patience: COMPLETION_PATIENCE, ..call }).await?;
        let failed: ErrorDocument = xml::parse(&reply.body, "completion").unwrap_or_default();
        if !failed.code.is_empty() {
            let ErrorDocument { code, message } = failed;
            return Err(Error::transient(format!("the completion failed: {code}: {message}")));
        }
        let done: CompletedUpload = xml::parse(&reply.body, "completion")?;
        Ok(done.etag)
    }

    /// Aborts an upload. An upload that is gone is no error.
    pub(crate) async fn abort_upload(&self, key: &str, upload: &str) -> Result<()> {
        let query = [("uploadId", upload)];
        match self.call(Call::new(Method::DELETE, Some(key), &query)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns true if the bucket exists.
    pub(crate) async fn has_bucket(&self) -> Result<bool> {
        match self.call(Call::new(Method::HEAD, None, &[])).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates the bucket.
    pub(crate) async fn create_bucket(&self) -> Result<()> {
        self.call(Call::new(Method::PUT, None, &[])).await.map(drop)
    }
}

#[derive(serde::Deserialize)]
struct CompletedUpload {
    #[serde(rename = "ETag")]
    etag: String,
}

fn object_call<'a>(
    method: Method,
    object: ObjectRequest<'a>,
    query: &'a [(&'a str, &'a str)],
) -> Result<Call<'a>> {
    let mut call = Call::new(method, Some(object.key), query);
    call = call.header("x-amz-checksum-mode", "ENABLED")?;
    if let Some(etag) = object.etag {
        call.headers.insert(IF_MATCH, etag_header(etag)?);
    }
    if let Some([first, end]) = object.range {
        let range = format!("bytes={first}-{}", end - 1);
        call.headers.insert(RANGE, HeaderValue::try_from(range).expect("digits are a header"));
    }
    Ok(call)
}

fn etag_header(etag: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(&format!("\"{}\"", etag.trim_matches('"')))
        .map_err(|_| Error::new(ErrorKind::Refused, format!("{etag} is no valid ETag")))
}
