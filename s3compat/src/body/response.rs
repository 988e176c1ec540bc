//! Body of a reply, from its operation to the connection.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body, Frame, SizeHint};
use martlet_protocol::ByteStream;
use martlet_protocol::http::in_request;
use s3s::StdError;

use crate::limits::concurrency::{RequestPermit, Turn};

/// Body of a reply. Its request counts as in flight until the body is sent or given up.
#[derive(Debug, Default)]
pub struct ResponseBody {
    content: Content,
    guard: Guard,
}

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    /// A document.
    Whole(Bytes),
    /// Bytes of an object.
    Stream { bytes: ByteStream, remaining: u64 },
}

/// State of a request that ends with its reply.
#[derive(Debug, Default)]
struct Guard {
    /// Id of the request, for calls of nodes while the body is sent.
    id: Option<HeaderValue>,
    /// Count of the request's principal.
    permit: Option<RequestPermit>,
    /// Counter of the bytes of the body.
    counter: Option<Box<dyn ByteCounter>>,
    _turn: Option<Turn>,
}

/// Counter of the bytes of a body. Dropped when the body is sent or given up.
pub(crate) trait ByteCounter: fmt::Debug + Send + Sync {
    /// Adds bytes that were sent.
    fn add(&mut self, bytes: usize);
}

impl ResponseBody {
    /// Body without bytes.
    pub(crate) fn empty() -> Self {
        Self::default()
    }

    /// Body of `length` bytes of an object.
    pub(crate) fn stream(bytes: ByteStream, length: u64) -> Self {
        let content = Content::Stream { bytes, remaining: length };
        Self { content, guard: Guard::default() }
    }

    /// The document; empty for no body, None for bytes of an object.
    pub(crate) fn document(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Empty => Some(&[]),
            Content::Whole(document) => Some(document),
            Content::Stream { .. } => None,
        }
    }

    /// Counts the request with this id as in flight until the body is sent.
    pub(crate) fn hold(
        &mut self,
        id: HeaderValue,
        permit: Option<RequestPermit>,
        turn: Option<Turn>,
    ) {
        self.guard = Guard { id: Some(id), permit, counter: None, _turn: turn };
    }

    /// Id of the request, once it is held.
    pub(crate) fn request_id(&self) -> Option<&HeaderValue> {
        self.guard.id.as_ref()
    }

    /// Sets the counter of the bytes of the body.
    pub(crate) fn count_by(&mut self, counter: Box<dyn ByteCounter>) {
        self.guard.counter = Some(counter);
    }
}

impl From<Bytes> for ResponseBody {
    fn from(document: Bytes) -> Self {
        Self { content: Content::Whole(document), guard: Guard::default() }
    }
}

impl From<String> for ResponseBody {
    fn from(document: String) -> Self {
        Bytes::from(document).into()
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(document: Vec<u8>) -> Self {
        Bytes::from(document).into()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Whole(document) => write!(f, "Whole({} bytes)", document.len()),
            Self::Stream { remaining, .. } => write!(f, "Stream({remaining} bytes left)"),
        }
    }
}

impl Content {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, StdError>>> {
        match self {
            Self::Stream { bytes, remaining } => match ready!(bytes.as_mut().poll_next(context)) {
                Some(Ok(bytes)) => {
                    *remaining = remaining.saturating_sub(bytes.len() as u64);
                    Poll::Ready(Some(Ok(bytes)))
                }
                Some(Err(error)) => {
                    // The status is sent already. An error breaks the connection, so that the
                    // client receives fewer bytes than announced.
                    tracing::error!(%error, "a read failed after its reply had begun");
                    Poll::Ready(Some(Err(error.into())))
                }
                None => Poll::Ready(None),
            },
            Self::Whole(document) => {
                let document = std::mem::take(document);
                *self = Self::Empty;
                Poll::Ready((!document.is_empty()).then_some(Ok(document)))
            }
            Self::Empty => Poll::Ready(None),
        }
    }

    fn remaining(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Whole(document) => document.len() as u64,
            Self::Stream { remaining, .. } => *remaining,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let Self { content, guard: Guard { id, permit, counter, .. } } = &mut *self;
        // Only streams call nodes.
        let polled = match (&content, id) {
            (Content::Stream { .. }, Some(id)) => in_request(id, || content.poll(context)),
            _ => content.poll(context),
        };
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            if let Some(permit) = permit {
                permit.meters().charge(bytes.len() as u64);
            }
            if let Some(counter) = counter {
                counter.add(bytes.len());
            }
        }
        polled.map(|next| next.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.content.remaining() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.content.remaining())
    }
}
