//! NATS: messages to a subject, in core NATS or with the acknowledgement of a `JetStream` stream.
//!
//! Core NATS: a batch is acknowledged by the `PONG` to a `PING` behind it: the server has processed
//! the batch. Subscribers that are not connected get nothing.
//!
//! `JetStream`: a stream acknowledges each message before the next one is sent. So messages keep their
//! order through every failure, and no message needs an id: a stream's removal of duplicates can't
//! drop a later message that is equal to an earlier one.
//!
//! Source: the client protocol of NATS, <https://docs.nats.io/reference/reference-protocols/nats-protocol>.

use bytes::Bytes;
use martlet_serving::Failure;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::super::retry::DeliveryFailure;
use super::super::spool::SpooledMessage;
use super::acknowledged::Acknowledged;
use super::batch_limits::{BatchEnd, BatchLimits};
use super::credentials::Login;
use super::endpoint::{BATCH_TIME, BrokerStream, Endpoint, open};
use super::receive_buffer::ReceiveBuffer;

/// Maximum bytes of a line or a payload from the server. `INFO` lists the servers of a cluster.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Error of `JetStream`: a message is larger than its stream accepts.
const MESSAGE_TOO_LARGE: u32 = 10_054;
/// Minimum of a server's limit on payloads. Events are shorter, as a rule; a server with a lower
/// limit is misconfigured, and no message is at fault.
const PAYLOAD_BYTES_MIN: usize = 4 << 10;
/// Error of a server: a message is longer than its limit. The server then ends the connection.
const PAYLOAD_VIOLATION: &str = "maximum payload violation";
/// Part of all messages in [`BatchLimits`].
const PART: i32 = 0;
/// Status of a reply: nothing is subscribed to the subject of the request.
const NO_RESPONDERS: &str = "503";

/// Subject of messages, and the server that takes them.
#[derive(Clone)]
pub(super) struct NatsClient {
    endpoint: Endpoint,
    subject: String,
    is_jetstream: bool,
    /// True if the secret is a token instead of a user's password.
    is_token: bool,
}

/// First line of a server, and later ones when its settings change.
#[derive(Debug, Deserialize)]
struct ServerInfo {
    max_payload: Option<usize>,
    #[serde(default)]
    headers: bool,
    #[serde(default)]
    tls_required: bool,
}

/// First line of a client.
#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the protocol's own fields")]
struct Connect<'a> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    name: &'a str,
    lang: &'a str,
    version: &'a str,
    protocol: u8,
    headers: bool,
    no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
}

/// Reply of `JetStream` to a message.
#[derive(Debug, Deserialize)]
struct StreamReply {
    seq: Option<u64>,
    error: Option<StreamError>,
}

#[derive(Debug, Deserialize)]
struct StreamError {
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

/// Protocol message of a server that a publisher acts on.
#[derive(Debug)]
enum ServerMessage {
    Pong,
    Error(String),
    /// Message to a subscription, with the first line of its headers.
    Reply {
        subject: String,
        head: String,
        payload: Bytes,
    },
}

/// Subjects of a connection's replies.
struct Inbox {
    prefix: String,
    next: u64,
}

/// Connection to a server.
pub(super) struct NatsConnection {
    stream: BrokerStream,
    received: ReceiveBuffer,
    subject: String,
    /// Limit that the server has named; over TLS, only in lines that came over TLS.
    payload_bytes_max: Option<usize>,
    /// `None` in core NATS.
    inbox: Option<Inbox>,
}

impl NatsClient {
    /// Makes a client for messages to `subject`.
    pub(super) fn new(
        endpoint: Endpoint,
        subject: &str,
        is_jetstream: bool,
    ) -> Result<Self, Failure> {
        let is_token = |token: &str| {
            let is_wildcard = token.contains(['*', '>']);
            !token.is_empty() && !is_wildcard && token.chars().all(|c| c.is_ascii_graphic())
        };
        if !subject.split('.').all(is_token) {
            return Err(Failure::usage(format!(
                "\"{subject}\" is not a subject of NATS: use parts of visible ASCII without * and \
                 >, separated by dots"
            )));
        }
        let is_token = endpoint.credentials.user.is_none();
        Ok(Self { endpoint, subject: subject.to_owned(), is_jetstream, is_token })
    }

    /// Connects, and waits until the server has accepted the credentials.
    pub(super) async fn connect(&self) -> Result<NatsConnection, DeliveryFailure> {
        let login = self.endpoint.credentials.login().await?;
        let host = self.endpoint.host();
        let mut tcp = open(host).await?;
        let mut received = ReceiveBuffer::new(FRAME_BYTES_MAX);
        let info = info(&received.take_line(&mut tcp).await?)?;
        let is_tls = self.endpoint.tls.is_some();
        if info.tls_required && !is_tls {
            return Err(DeliveryFailure::away("the server needs TLS: use natss:// or tls://"));
        }
        if is_tls && !received.is_empty() {
            return Err(DeliveryFailure::away("the server sent bytes before the TLS handshake"));
        }
        // Bytes before the TLS handshake may be anyone's.
        let payload_bytes_max = if is_tls { None } else { info.payload_bytes_max()? };
        let stream = self.endpoint.secured(host, tcp).await?;
        let inbox = self.is_jetstream.then(|| Inbox {
            prefix: format!("_INBOX.martlet{:032x}", rand::random::<u128>()),
            next: 0,
        });
        let mut connection = NatsConnection {
            stream,
            received,
            subject: self.subject.clone(),
            payload_bytes_max,
            inbox,
        };
        connection.greet(&self.connect_line(&info, &login)).await?;
        Ok(connection)
    }

    fn connect_line(&self, info: &ServerInfo, login: &Login) -> String {
        let secret = login.secret.as_deref();
        let connect = Connect {
            verbose: false,
            pedantic: false,
            tls_required: self.endpoint.tls.is_some(),
            name: "martlet",
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            headers: info.headers,
            no_responders: info.headers,
            user: login.user.as_deref(),
            pass: secret.filter(|_| !self.is_token),
            auth_token: secret.filter(|_| self.is_token),
        };
        let json = serde_json::to_string(&connect).expect("a struct of texts and numbers is JSON");
        format!("CONNECT {json}\r\n")
    }
}

impl ServerInfo {
    /// Returns the limit on payloads; `None` if the server has none.
    fn payload_bytes_max(&self) -> Result<Option<usize>, DeliveryFailure> {
        match self.max_payload.filter(|it| *it > 0) {
            Some(bytes_max) if bytes_max < PAYLOAD_BYTES_MIN => {
                Err(DeliveryFailure::away(format!(
                    "the server takes {bytes_max} bytes in a message: set its max_payload to \
                     {PAYLOAD_BYTES_MIN} at least"
                )))
            }
            bytes_max => Ok(bytes_max),
        }
    }
}

fn info(line: &str) -> Result<ServerInfo, DeliveryFailure> {
    let info = line.strip_prefix("INFO ").and_then(|json| serde_json::from_str(json).ok());
    info.ok_or_else(|| DeliveryFailure::away("the host does not answer as a NATS server"))
}

impl NatsConnection {
    /// Delivers messages, and notes those that were acknowledged.
    pub(super) async fn publish(
        &mut self,
        messages: &[SpooledMessage],
        acknowledged: &Acknowledged,
        limits: &BatchLimits,
    ) -> Result<(), DeliveryFailure> {
        let bytes_max = self.payload_bytes_max.unwrap_or(usize::MAX);
        let fits = |it: &&SpooledMessage| it.message.len() <= bytes_max;
        let count = messages.iter().take_while(fits).count();
        let Some(first) = messages.first().filter(|_| count == 0) else {
            return if self.inbox.is_some() {
                self.publish_to_stream(&messages[..count], acknowledged).await
            } else {
                self.publish_batch(&messages[..count], acknowledged, limits).await
            };
        };
        Err(DeliveryFailure::Refused(format!(
            "the message has {} bytes, and the server takes {bytes_max} at most",
            first.message.len()
        )))
    }

    /// Sends a batch of messages within the limit. If the server refuses one of several, each is sent
    /// alone by the next attempts, so that only the message at fault is refused.
    async fn publish_batch(
        &mut self,
        messages: &[SpooledMessage],
        acknowledged: &Acknowledged,
        limits: &BatchLimits,
    ) -> Result<(), DeliveryFailure> {
        let messages = &messages[..limits.begin(PART, messages.len())];
        let outcome = self.send_batch(messages).await;
        limits.end(
            PART,
            match &outcome {
                Ok(()) => BatchEnd::Acknowledged,
                Err(DeliveryFailure::Refused(_)) => BatchEnd::Refused,
                Err(_) => BatchEnd::Failed,
            },
        );
        match outcome {
            Ok(()) => {
                acknowledged.add_all(messages);
                Ok(())
            }
            Err(DeliveryFailure::Refused(reason)) if messages.len() > 1 => {
                Err(DeliveryFailure::Away(reason))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Sends messages, and waits until the server has processed all of them.
    async fn send_batch(&mut self, messages: &[SpooledMessage]) -> Result<(), DeliveryFailure> {
        let mut bytes = Vec::new();
        for message in messages {
            self.put(&mut bytes, "", &message.message);
        }
        bytes.extend_from_slice(b"PING\r\n");
        self.send(&bytes).await?;
        self.pong().await
    }

    /// Sends messages one by one, each after its predecessor's acknowledgement.
    async fn publish_to_stream(
        &mut self,
        messages: &[SpooledMessage],
        acknowledged: &Acknowledged,
    ) -> Result<(), DeliveryFailure> {
        let began = Instant::now();
        for message in messages.iter().take_while(|_| began.elapsed() < BATCH_TIME) {
            let inbox = self.inbox.as_mut().expect("JetStream has an inbox");
            let reply_to = format!("{}.{}", inbox.prefix, inbox.next);
            inbox.next += 1;
            let mut bytes = Vec::new();
            self.put(&mut bytes, &format!("{reply_to} "), &message.message);
            self.send(&bytes).await?;
            self.stream_reply(&reply_to).await?;
            acknowledged.add(message);
        }
        Ok(())
    }

    fn put(&self, bytes: &mut Vec<u8>, reply_to: &str, message: &Bytes) {
        let head = format!("PUB {} {reply_to}{}\r\n", self.subject, message.len());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(message);
        bytes.extend_from_slice(b"\r\n");
    }

    /// Sends the first line of this client, and subscribes to replies.
    async fn greet(&mut self, connect: &str) -> Result<(), DeliveryFailure> {
        let subscription = self.inbox.as_ref().map(|inbox| format!("SUB {}.* 1\r\n", inbox.prefix));
        let text = format!("{connect}{}PING\r\n", subscription.unwrap_or_default());
        self.send(text.as_bytes()).await?;
        self.pong().await
    }

    async fn pong(&mut self) -> Result<(), DeliveryFailure> {
        loop {
            match self.next().await? {
                ServerMessage::Pong => return Ok(()),
                ServerMessage::Error(error) => return Err(refused_by_server(&error)),
                ServerMessage::Reply { .. } => {}
            }
        }
    }

    /// Waits for the reply of a stream to one message.
    async fn stream_reply(&mut self, reply_to: &str) -> Result<(), DeliveryFailure> {
        loop {
            match self.next().await? {
                ServerMessage::Error(error) => return Err(refused_by_server(&error)),
                ServerMessage::Reply { subject, head, payload } if subject == reply_to => {
                    return classify_reply(&head, &payload);
                }
                ServerMessage::Pong | ServerMessage::Reply { .. } => {}
            }
        }
    }

    /// Returns the next message of the server. Answers its pings.
    async fn next(&mut self) -> Result<ServerMessage, DeliveryFailure> {
        loop {
            let line = self.received.take_line(&mut self.stream).await?;
            let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match verb {
                "PING" => self.send(b"PONG\r\n").await?,
                "PONG" => return Ok(ServerMessage::Pong),
                "-ERR" => return Ok(ServerMessage::Error(rest.trim_matches('\'').to_owned())),
                "MSG" => return self.reply(rest, false).await,
                "HMSG" => return self.reply(rest, true).await,
                "INFO" => self.payload_bytes_max = info(&line)?.payload_bytes_max()?,
                "+OK" => {}
                _ => return Err(DeliveryFailure::away("the server sent an unknown message")),
            }
        }
    }

    /// Takes the payload of a message with these arguments.
    async fn reply(
        &mut self,
        arguments: &str,
        has_headers: bool,
    ) -> Result<ServerMessage, DeliveryFailure> {
        let malformed = || DeliveryFailure::away("the server sent a malformed message");
        let words: Vec<&str> = arguments.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
        // Subject, subscription, the length of headers, and of all.
        if words.len() < if has_headers { 4 } else { 3 } {
            return Err(malformed());
        }
        let last = words.len() - 1;
        let total = number(last).ok_or_else(malformed)?;
        let head_bytes = if has_headers { number(last - 1) } else { Some(0) };
        let head_bytes = head_bytes.filter(|it| *it <= total).ok_or_else(malformed)?;
        let subject = words[0].to_owned();
        let mut bytes = self.received.take(&mut self.stream, total.saturating_add(2)).await?;
        bytes.truncate(total);
        let head = bytes.split_to(head_bytes);
        let head = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
        Ok(ServerMessage::Reply { subject, head, payload: bytes })
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), DeliveryFailure> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }
}

/// Maps a `-ERR` to a failure. Only one of them is about a message: its size.
fn refused_by_server(error: &str) -> DeliveryFailure {
    let reason = format!("the server answered: {error}");
    if error.eq_ignore_ascii_case(PAYLOAD_VIOLATION) {
        return DeliveryFailure::Refused(reason);
    }
    DeliveryFailure::Away(reason)
}

/// Maps a stream's reply to an outcome.
fn classify_reply(head: &str, payload: &[u8]) -> Result<(), DeliveryFailure> {
    if head.split_ascii_whitespace().nth(1) == Some(NO_RESPONDERS) {
        return Err(DeliveryFailure::away("no stream of JetStream takes this subject"));
    }
    let reply: StreamReply = serde_json::from_slice(payload)
        .map_err(|_| DeliveryFailure::away("the reply to a message is not one of JetStream"))?;
    match reply {
        StreamReply { error: Some(error), .. } => {
            let reason = format!("the stream answered {}: {}", error.err_code, error.description);
            if error.err_code == MESSAGE_TOO_LARGE {
                return Err(DeliveryFailure::Refused(reason));
            }
            Err(DeliveryFailure::Away(reason))
        }
        StreamReply { seq: Some(_), error: None } => Ok(()),
        StreamReply { .. } => Err(DeliveryFailure::away("the stream's reply has no sequence")),
    }
}

#[cfg(test)]
mod tests;
