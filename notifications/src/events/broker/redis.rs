//! Redis: messages at the end of a list, or as entries of a stream.
//!
//! A batch is one command (`RPUSH` with all messages) or one transaction (`XADD` for each message),
//! so that a failure leaves either all of it or nothing, and order holds.
//!
//! Redis has no refusal for a message alone: a wrong type of the key, a full memory, a read-only
//! replica or missing rights meet every message.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures::future::AbortHandle;
use martlet_serving::Failure;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::retry::DeliveryFailure;
use super::super::spool::SpooledMessage;
use super::acknowledged::Acknowledged;
use super::batch_limits::{BatchEnd, BatchLimits};
use super::endpoint::{BrokerStream, Endpoint};
use super::object_key::object_key;

/// Maximum bytes of all replies to one batch. A reply to `XADD` is an id of 20 to 40 bytes, and a
/// read of the spool has 26,000 messages at most.
const REPLY_BYTES_MAX: usize = 2 << 20;

/// Part of all messages in [`BatchLimits`].
const PART: i32 = 0;

/// Form in which a key holds messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedisForm {
    List,
    /// Stream of about `entries_max` entries at most; of any number if `None`.
    Stream {
        entries_max: Option<u64>,
    },
}

/// Key of messages, and the server that has it.
#[derive(Clone)]
pub(super) struct RedisClient {
    pub(super) endpoint: Endpoint,
    pub(super) key: String,
    pub(super) form: RedisForm,
    pub(super) database: u32,
}

/// Checks the form of a key, as settings name it.
pub(super) fn form(is_stream: bool, entries_max: Option<u64>) -> Result<RedisForm, Failure> {
    match entries_max {
        None if !is_stream => Ok(RedisForm::List),
        Some(_) if !is_stream => {
            Err(Failure::usage("redis_max_entries needs redis_stream = true: a list has no bound"))
        }
        Some(count) if count == 0 || i64::try_from(count).is_err() => Err(Failure::usage(format!(
            "redis_max_entries must be from 1 to {}, not {count}",
            i64::MAX
        ))),
        entries_max => Ok(RedisForm::Stream { entries_max }),
    }
}

/// Connection to a server, and the task that serves it.
pub(super) struct RedisConnection {
    link: MultiplexedConnection,
    driver: AbortHandle,
    allowance: Arc<AtomicUsize>,
    key: String,
    form: RedisForm,
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl RedisClient {
    /// Connects, authenticates and selects the database.
    pub(super) async fn connect(&self) -> Result<RedisConnection, DeliveryFailure> {
        let login = self.endpoint.credentials.login().await?;
        let stream = self.endpoint.connect(self.endpoint.host()).await?;
        let allowance = Arc::new(AtomicUsize::new(REPLY_BYTES_MAX));
        let stream = BoundedStream { stream, allowance: allowance.clone() };
        let mut info =
            RedisConnectionInfo::default().set_db(i64::from(self.database)).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &login.secret {
            info = info.set_password(password);
        }
        // The whole attempt has a limit in time.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connected = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (link, driver) = connected.map_err(failure)?;
        let (driver, abort) = futures::future::abortable(driver);
        tokio::spawn(driver);
        let (key, form) = (self.key.clone(), self.form);
        Ok(RedisConnection { link, driver: abort, allowance, key, form })
    }
}

impl RedisConnection {
    /// Delivers a batch of messages within the limit, and notes them if they were acknowledged.
    pub(super) async fn publish(
        &mut self,
        messages: &[SpooledMessage],
        acknowledged: &Acknowledged,
        limits: &BatchLimits,
    ) -> Result<(), DeliveryFailure> {
        let messages = &messages[..limits.begin(PART, messages.len())];
        let outcome = self.send_batch(messages).await;
        let end = if outcome.is_ok() { BatchEnd::Acknowledged } else { BatchEnd::Failed };
        limits.end(PART, end);
        if outcome.is_ok() {
            acknowledged.add_all(messages);
        }
        outcome
    }

    /// Sends messages in one command or transaction.
    async fn send_batch(&mut self, messages: &[SpooledMessage]) -> Result<(), DeliveryFailure> {
        self.allowance.store(REPLY_BYTES_MAX, Ordering::Relaxed);
        let count = match self.form {
            RedisForm::List => {
                let mut push = redis::cmd("RPUSH");
                push.arg(&self.key);
                for it in messages {
                    push.arg(&it.message[..]);
                }
                // The reply is the length of the list, which has these messages at its end.
                let length: usize = push.query_async(&mut self.link).await.map_err(failure)?;
                length.min(messages.len())
            }
            RedisForm::Stream { entries_max } => {
                let mut entries = redis::pipe();
                entries.atomic();
                for it in messages {
                    entries.add_command(entry(&self.key, entries_max, &it.message));
                }
                let ids: Vec<String> =
                    entries.query_async(&mut self.link).await.map_err(failure)?;
                ids.len()
            }
        };
        if count != messages.len() {
            return Err(DeliveryFailure::away("the Redis server took another number of messages"));
        }
        Ok(())
    }
}

/// Makes the command that adds an entry with the fields `key` and `event`.
fn entry(key: &str, entries_max: Option<u64>, message: &[u8]) -> Cmd {
    let mut entry = redis::cmd("XADD");
    entry.arg(key);
    if let Some(count) = entries_max {
        entry.arg("MAXLEN").arg("~").arg(count);
    }
    entry.arg("*").arg("key").arg(object_key(message).unwrap_or_default());
    entry.arg("event").arg(message);
    entry
}

/// Maps an error to a failure. A transaction may have an error for each message: the first counts.
fn failure(error: RedisError) -> DeliveryFailure {
    let text = error.to_string();
    let errors = error.into_server_errors();
    let first = errors.as_deref().and_then(|errors| errors.first());
    let reason = first.map_or(text, |(_, first)| first.to_string());
    DeliveryFailure::away(format!("the Redis server: {reason}"))
}

/// Connection from which a bounded number of bytes is read. A server that sends more, or announces a
/// longer reply and sends it, ends the connection.
struct BoundedStream {
    stream: BrokerStream,
    allowance: Arc<AtomicUsize>,
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let count = buffer.filled().len() - before;
        let left = this.allowance.load(Ordering::Relaxed).checked_sub(count);
        let Some(left) = left else {
            let why = format!("a reply of more than {REPLY_BYTES_MAX} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        };
        this.allowance.store(left, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
