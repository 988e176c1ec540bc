//! Frames of AMQP 0-9-1 that a publisher sends and receives.
//!
//! ```text
//! frame   type (1) | channel (2) | length (4) | payload | 0xCE
//! method  class (2) | method (2) | arguments
//! header  class (2) | 0 (2) | length of the body (8) | flags (2) | properties
//! ```
//!
//! Tables from the broker are not parsed: no decision of a publisher needs one, and nested tables
//! would cost stack.
//!
//! Source: AMQP 0-9-1, <https://www.rabbitmq.com/amqp-0-9-1-reference>.

use bytes::Bytes;
use tokio::io::AsyncRead;

use super::super::retry::DeliveryFailure;
use super::receive_buffer::{FieldReader, ReceiveBuffer};

/// First bytes of a connection.
pub(super) const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const FRAME_END: u8 = 0xCE;
/// Bytes of a frame around its payload.
const FRAME_OVERHEAD: usize = 8;
/// Class of messages.
const BASIC: u16 = 60;

/// Class and number of a method.
pub(super) type MethodId = (u16, u16);

pub(super) const START: MethodId = (10, 10);
pub(super) const START_OK: MethodId = (10, 11);
pub(super) const TUNE: MethodId = (10, 30);
pub(super) const TUNE_OK: MethodId = (10, 31);
pub(super) const OPEN: MethodId = (10, 40);
pub(super) const OPEN_OK: MethodId = (10, 41);
pub(super) const CLOSE: MethodId = (10, 50);
pub(super) const CHANNEL_OPEN: MethodId = (20, 10);
pub(super) const CHANNEL_OPEN_OK: MethodId = (20, 11);
pub(super) const CHANNEL_CLOSE: MethodId = (20, 40);
pub(super) const PUBLISH: MethodId = (60, 40);
pub(super) const RETURN: MethodId = (60, 50);
pub(super) const ACK: MethodId = (60, 80);
pub(super) const NACK: MethodId = (60, 120);
pub(super) const CONFIRM_SELECT: MethodId = (85, 10);
pub(super) const CONFIRM_SELECT_OK: MethodId = (85, 11);

/// Method that the broker sent.
#[derive(Debug)]
pub(super) struct ReceivedMethod {
    pub(super) id: MethodId,
    pub(super) arguments: Bytes,
}

/// Takes frames until one has a method. Bodies of returned messages and heartbeats are passed over.
pub(super) async fn next_method<S: AsyncRead + Unpin + ?Sized>(
    received: &mut ReceiveBuffer,
    stream: &mut S,
) -> Result<ReceivedMethod, DeliveryFailure> {
    loop {
        let head = received.take(stream, FRAME_OVERHEAD - 1).await?;
        let mut fields = FieldReader::new(&head);
        let (kind, _channel, length) = (fields.u8()?, fields.u16()?, fields.u32()?);
        if head.starts_with(b"AMQP") {
            return Err(DeliveryFailure::away("the broker does not speak AMQP 0-9-1"));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut payload = received.take(stream, length.saturating_add(1)).await?;
        if payload.last() != Some(&FRAME_END) {
            return Err(DeliveryFailure::away("the broker sent a frame without an end"));
        }
        payload.truncate(length);
        if kind == METHOD {
            let mut fields = FieldReader::new(&payload);
            let id = (fields.u16()?, fields.u16()?);
            return Ok(ReceivedMethod { id, arguments: payload.slice(4..) });
        }
    }
}

/// Arguments of a method to send.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<u8>);

impl Arguments {
    pub(super) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a text of at most 255 bytes.
    pub(super) fn short_text(mut self, text: &str) -> Self {
        self.0.push(u8::try_from(text.len()).expect("short texts were checked"));
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Adds bytes behind their length.
    pub(super) fn long_bytes(mut self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).expect("texts and tables are shorter than 4 GiB");
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a field of a table with the value `true`.
    pub(super) fn flag(self, name: &str) -> Self {
        self.short_text(name).u8(b't').u8(1)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn put_frame(bytes: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("frames are shorter than 4 GiB");
    bytes.push(kind);
    bytes.extend_from_slice(&channel.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes.push(FRAME_END);
}

/// Adds the frame of a method.
pub(super) fn put_method(bytes: &mut Vec<u8>, channel: u16, id: MethodId, arguments: Arguments) {
    let payload = [&id.0.to_be_bytes()[..], &id.1.to_be_bytes(), &arguments.into_bytes()].concat();
    put_frame(bytes, METHOD, channel, &payload);
}

/// Adds the frames of a persistent message: header, then body. `key` becomes the header `key`.
pub(super) fn put_message(
    bytes: &mut Vec<u8>,
    channel: u16,
    frame_bytes_max: usize,
    message: &[u8],
    key: Option<&[u8]>,
) {
    // Content type, headers and delivery mode, in this order.
    const FLAGS: u16 = 1 << 15 | 1 << 13 | 1 << 12;
    const PERSISTENT: u8 = 2;
    let headers = match key {
        Some(key) => Arguments::default().short_text("key").u8(b'S').long_bytes(key),
        None => Arguments::default(),
    };
    let mut header = Arguments::default().u16(BASIC).u16(0);
    header.0.extend_from_slice(&(message.len() as u64).to_be_bytes());
    let header = header.u16(FLAGS).short_text("application/json");
    let header = header.long_bytes(&headers.into_bytes()).u8(PERSISTENT);
    put_frame(bytes, HEADER, channel, &header.into_bytes());
    for chunk in message.chunks(frame_bytes_max - FRAME_OVERHEAD) {
        put_frame(bytes, BODY, channel, chunk);
    }
}

/// Reads the code and the text of a method that closes or returns something.
pub(super) fn reason_of(arguments: &[u8]) -> Result<(u16, String), DeliveryFailure> {
    let mut fields = FieldReader::new(arguments);
    let code = fields.u16()?;
    let length = usize::from(fields.u8()?);
    let text = String::from_utf8_lossy(fields.bytes(length)?).into_owned();
    Ok((code, text))
}
