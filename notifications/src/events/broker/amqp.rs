//! AMQP 0-9-1, as `RabbitMQ` speaks it: messages to an exchange, with a routing key.
//!
//! The broker confirms each message before the next one is sent, so order holds through every
//! failure. A message is `mandatory`: one that no queue takes comes back, and stays in the spool.
//! Exchanges and queues are the operator's: nothing is declared here.
//!
//! The connection asks for no heartbeats: it is closed when it is idle, and each attempt has a limit
//! in time.

use martlet_serving::Failure;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::super::retry::DeliveryFailure;
use super::super::spool::SpooledMessage;
use super::acknowledged::Acknowledged;
use super::amqp_frames::{
    ACK, Arguments, CHANNEL_CLOSE, CHANNEL_OPEN, CHANNEL_OPEN_OK, CLOSE, CONFIRM_SELECT,
    CONFIRM_SELECT_OK, MethodId, NACK, OPEN, OPEN_OK, PROTOCOL_HEADER, PUBLISH, RETURN,
    ReceivedMethod, START, START_OK, TUNE, TUNE_OK, next_method, put_message, put_method,
    reason_of,
};
use super::credentials::Login;
use super::endpoint::{BATCH_TIME, BrokerStream, Endpoint};
use super::object_key::object_key;
use super::receive_buffer::{FieldReader, ReceiveBuffer};

/// Maximum bytes of a frame that this client offers and accepts.
const FRAME_BYTES_MAX: u32 = 128 << 10;
/// Minimum of a frame's maximum size, by the protocol.
const FRAME_BYTES_MIN: u32 = 4096;
/// Maximum length of names in the protocol.
const NAME_BYTES_MAX: usize = 255;
/// Channel of all messages.
const CHANNEL: u16 = 1;
/// Reply code for a message that its broker can't accept, among other things.
const PRECONDITION_FAILED: u16 = 406;

/// Exchange and routing key of messages, and the broker that takes them.
#[derive(Clone)]
pub(super) struct AmqpClient {
    endpoint: Endpoint,
    virtual_host: String,
    exchange: String,
    routing_key: String,
}

/// Connection to a broker, with one channel in confirm mode.
pub(super) struct AmqpConnection {
    stream: BrokerStream,
    received: ReceiveBuffer,
    frame_bytes_max: usize,
    exchange: String,
    routing_key: String,
    /// Delivery tag of the last message.
    last_tag: u64,
}

impl AmqpClient {
    /// Makes a client. An empty exchange stands for the default one, in which a routing key is the
    /// name of a queue.
    pub(super) fn new(
        endpoint: Endpoint,
        virtual_host: &str,
        exchange: &str,
        routing_key: &str,
    ) -> Result<Self, Failure> {
        for name in [virtual_host, exchange, routing_key] {
            if name.len() > NAME_BYTES_MAX {
                return Err(Failure::usage(format!(
                    "virtual hosts, exchanges and routing keys of AMQP have at most \
                     {NAME_BYTES_MAX} bytes"
                )));
            }
        }
        if endpoint.credentials.user.is_none() || endpoint.credentials.secret_file.is_none() {
            return Err(Failure::usage("an AMQP target needs user and password_file"));
        }
        let [virtual_host, exchange, routing_key] =
            [virtual_host, exchange, routing_key].map(str::to_owned);
        Ok(Self { endpoint, virtual_host, exchange, routing_key })
    }

    /// Connects, authenticates and opens a channel in confirm mode.
    pub(super) async fn connect(&self) -> Result<AmqpConnection, DeliveryFailure> {
        let login = self.endpoint.credentials.login().await?;
        let stream = self.endpoint.connect(self.endpoint.host()).await?;
        let mut connection = AmqpConnection {
            stream,
            received: ReceiveBuffer::new(FRAME_BYTES_MAX as usize),
            frame_bytes_max: FRAME_BYTES_MIN as usize,
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            last_tag: 0,
        };
        connection.authenticate(&login).await?;
        connection.tune().await?;
        let host = Arguments::default().short_text(&self.virtual_host).short_text("").u8(0);
        connection.call(0, OPEN, host, OPEN_OK).await?;
        let channel = Arguments::default().short_text("");
        connection.call(CHANNEL, CHANNEL_OPEN, channel, CHANNEL_OPEN_OK).await?;
        let confirm = Arguments::default().u8(0);
        connection.call(CHANNEL, CONFIRM_SELECT, confirm, CONFIRM_SELECT_OK).await?;
        Ok(connection)
    }
}

impl AmqpConnection {
    /// Delivers messages one by one, and notes those that were confirmed.
    pub(super) async fn publish(
        &mut self,
        messages: &[SpooledMessage],
        acknowledged: &Acknowledged,
    ) -> Result<(), DeliveryFailure> {
        const MANDATORY: u8 = 1;
        let began = Instant::now();
        for message in messages.iter().take_while(|_| began.elapsed() < BATCH_TIME) {
            let mut bytes = Vec::with_capacity(message.message.len() + 256);
            let place = Arguments::default().u16(0).short_text(&self.exchange);
            let place = place.short_text(&self.routing_key).u8(MANDATORY);
            put_method(&mut bytes, CHANNEL, PUBLISH, place);
            let key = object_key(&message.message);
            let (frame, key) = (self.frame_bytes_max, key.as_deref());
            put_message(&mut bytes, CHANNEL, frame, &message.message, key);
            self.send(&bytes).await?;
            self.last_tag += 1;
            self.confirmation().await?;
            acknowledged.add(message);
        }
        Ok(())
    }

    /// Ends the connection as the protocol asks. Errors don't matter.
    pub(super) async fn close(mut self) {
        let mut bytes = Vec::new();
        let reason = Arguments::default().u16(200).short_text("idle").u16(0).u16(0);
        put_method(&mut bytes, 0, CLOSE, reason);
        if self.send(&bytes).await.is_ok() {
            let _ = self.next().await;
        }
    }

    /// Waits for the confirmation of the last message.
    async fn confirmation(&mut self) -> Result<(), DeliveryFailure> {
        let mut returned = None;
        loop {
            let method = self.next().await?;
            match method.id {
                RETURN => returned = Some(reason_of(&method.arguments)?.1),
                ACK if self.is_of_last(&method)? => {
                    return match returned {
                        None => Ok(()),
                        Some(why) => {
                            Err(DeliveryFailure::away(format!("no queue takes a message: {why}")))
                        }
                    };
                }
                NACK if self.is_of_last(&method)? => {
                    return Err(DeliveryFailure::away("the broker has no room or no queue"));
                }
                _ => {}
            }
        }
    }

    fn is_of_last(&self, method: &ReceivedMethod) -> Result<bool, DeliveryFailure> {
        Ok(FieldReader::new(&method.arguments).u64()? == self.last_tag)
    }

    async fn authenticate(&mut self, login: &Login) -> Result<(), DeliveryFailure> {
        self.send(&PROTOCOL_HEADER).await?;
        self.expect(START).await?;
        let capabilities = Arguments::default()
            .flag("publisher_confirms")
            .flag("basic.nack")
            .flag("authentication_failure_close");
        let properties = Arguments::default()
            .short_text("product")
            .u8(b'S')
            .long_bytes(b"Martlet")
            .short_text("capabilities")
            .u8(b'F')
            .long_bytes(&capabilities.into_bytes());
        let (user, password) = (login.user.as_deref(), login.secret.as_deref());
        let response = format!("\0{}\0{}", user.unwrap_or_default(), password.unwrap_or_default());
        let start = Arguments::default()
            .long_bytes(&properties.into_bytes())
            .short_text("PLAIN")
            .long_bytes(response.as_bytes())
            .short_text("en_US");
        self.send_method(0, START_OK, start).await
    }

    /// Agrees on the size of frames.
    async fn tune(&mut self) -> Result<(), DeliveryFailure> {
        let limits = self.expect(TUNE).await?;
        let mut fields = FieldReader::new(&limits.arguments);
        let (_channels, frame) = (fields.u16()?, fields.u32()?);
        // Zero stands for no limit.
        let frame = if frame == 0 { FRAME_BYTES_MAX } else { frame.min(FRAME_BYTES_MAX) };
        let frame = frame.max(FRAME_BYTES_MIN);
        self.frame_bytes_max = frame as usize;
        let tuned = Arguments::default().u16(CHANNEL).u32(frame).u16(0);
        self.send_method(0, TUNE_OK, tuned).await
    }

    async fn call(
        &mut self,
        channel: u16,
        id: MethodId,
        arguments: Arguments,
        reply: MethodId,
    ) -> Result<(), DeliveryFailure> {
        self.send_method(channel, id, arguments).await?;
        self.expect(reply).await.map(drop)
    }

    async fn expect(&mut self, id: MethodId) -> Result<ReceivedMethod, DeliveryFailure> {
        let method = self.next().await?;
        if method.id != id {
            return Err(DeliveryFailure::away(format!(
                "the broker sent method {:?} where {id:?} was due",
                method.id
            )));
        }
        Ok(method)
    }

    /// Returns the next method. The end of the channel or of the connection is an error.
    async fn next(&mut self) -> Result<ReceivedMethod, DeliveryFailure> {
        let method = next_method(&mut self.received, &mut self.stream).await?;
        if [CLOSE, CHANNEL_CLOSE].contains(&method.id) {
            let (code, text) = reason_of(&method.arguments)?;
            return Err(classify_close(code, &text));
        }
        Ok(method)
    }

    async fn send_method(
        &mut self,
        channel: u16,
        id: MethodId,
        arguments: Arguments,
    ) -> Result<(), DeliveryFailure> {
        let mut bytes = Vec::new();
        put_method(&mut bytes, channel, id, arguments);
        self.send(&bytes).await
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), DeliveryFailure> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }
}

/// Maps the end of a channel or of a connection to a failure. Only one of them is about a message:
/// its size.
fn classify_close(code: u16, text: &str) -> DeliveryFailure {
    let reason = format!("the broker answered {code}: {text}");
    if code == PRECONDITION_FAILED && text.contains("message size") {
        return DeliveryFailure::Refused(reason);
    }
    DeliveryFailure::Away(reason)
}

#[cfg(test)]
mod tests;
