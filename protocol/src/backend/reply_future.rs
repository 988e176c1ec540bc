//! Future of a typed method of a backend.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::call::Reply;
use crate::error::{Error, Result};

/// Future of a typed method: the future of [`Backend::call`](super::Backend::call), whose reply it unpacks.
#[must_use = "futures do nothing unless polled"]
pub struct ReplyFuture<'a, T> {
    reply: Pin<Box<dyn Future<Output = Result<Reply>> + Send + 'a>>,
    content: PhantomData<fn() -> T>,
}

impl<'a, T> ReplyFuture<'a, T> {
    /// Unpacks the reply of a call.
    pub(super) fn of(reply: Pin<Box<dyn Future<Output = Result<Reply>> + Send + 'a>>) -> Self {
        Self { reply, content: PhantomData }
    }
}

impl<T: TryFrom<Reply, Error = Error>> Future for ReplyFuture<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.reply.as_mut().poll(context).map(|reply| reply?.try_into())
    }
}
