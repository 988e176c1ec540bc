//! Reply of an operation.
//!
//! * [`effects`]: effects of an operation; [`info`]: facts about a reply, for observers.

mod effects;
mod info;

use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::xml::{Serialize, Serializer};
use s3s::{S3Error, S3Result};

pub(crate) use self::effects::Effects;
pub(crate) use self::info::ReplyInfo;
use crate::body::ResponseBody;
use crate::errors::internal;
use crate::events::ObjectEvents;

const XML: HeaderValue = HeaderValue::from_static("application/xml");

/// Reply of an operation, and its effects for observers.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: ResponseBody,
    pub(crate) effects: Effects,
}

impl Reply {
    /// Reply without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        let (headers, body, effects) =
            (HeaderMap::new(), ResponseBody::empty(), Effects::default());
        Self { status, headers, body, effects }
    }

    /// 200, with a document.
    pub(crate) fn xml<T: Serialize>(document: &T) -> S3Result<Self> {
        let mut text = Vec::with_capacity(512);
        let mut serializer = Serializer::new(&mut text);
        serializer
            .decl()
            .and_then(|()| document.serialize(&mut serializer))
            .map_err(S3Error::internal_error)?;
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(CONTENT_TYPE, XML);
        reply.body = ResponseBody::from(with_carriage_returns(text));
        Ok(reply)
    }

    /// 200, with the text of a document.
    pub(crate) fn document(text: String) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(CONTENT_TYPE, XML);
        reply.body = ResponseBody::from(text.into_bytes());
        reply
    }

    /// Adds headers. A header that is set already is replaced.
    pub(crate) fn with_headers(mut self, headers: HeaderMap) -> Self {
        if self.headers.is_empty() {
            self.headers = headers;
        } else {
            self.headers.extend(headers);
        }
        self
    }

    /// Adds a header, if it has a value.
    pub(crate) fn with_header(
        mut self,
        name: HeaderName,
        value: Option<impl TryInto<HeaderValue>>,
    ) -> S3Result<Self> {
        if let Some(value) = value {
            self.headers.insert(name, value.try_into().map_err(|_| internal())?);
        }
        Ok(self)
    }

    /// Adds a header with a date, if there is one.
    pub(crate) fn with_date(self, name: HeaderName, date: Option<&Timestamp>) -> S3Result<Self> {
        let text = date.map(|date| {
            let mut text = Vec::with_capacity(32);
            date.format(TimestampFormat::HttpDate, &mut text).map(|()| text)
        });
        self.with_header(name, text.transpose().map_err(|_| internal())?)
    }

    /// Sets the changes of objects.
    pub(crate) fn with_events(mut self, events: ObjectEvents) -> Self {
        self.effects.events = events;
        self
    }

    /// Splits the reply into its HTTP response and its effects.
    pub(crate) fn into_parts(self) -> (Response<ResponseBody>, Effects) {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        (response, self.effects)
    }
}

impl From<S3Error> for Reply {
    /// Error document, completed by the HTTP pipeline.
    fn from(error: S3Error) -> Self {
        let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Writing to memory can't fail; a reply without a document would still have its status.
        let mut reply = Self::xml(&error).unwrap_or_else(|_| Self::empty(status));
        reply.status = status;
        reply.headers.extend(error.headers().cloned().unwrap_or_default());
        reply
    }
}

/// Escapes carriage returns in a document: XML parsers read a bare one as a line feed, and keys may
/// contain some.
fn with_carriage_returns(document: Vec<u8>) -> Vec<u8> {
    if !document.contains(&b'\r') {
        return document;
    }
    let pieces: Vec<&[u8]> = document.split(|byte| *byte == b'\r').collect();
    pieces.join(&b"&#13;"[..])
}
