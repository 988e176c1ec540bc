//! Connection to one broker of a cluster: requests in order, each with its reply.

use bytes::Bytes;
use tokio::io::AsyncWriteExt;

use super::super::super::retry::DeliveryFailure;
use super::super::super::tasks::off_thread;
use super::super::address::BrokerHost;
use super::super::credentials::Login;
use super::super::endpoint::{BrokerStream, Endpoint};
use super::super::receive_buffer::{FieldReader, ReceiveBuffer};
use super::codes::code_name;
use super::sasl::{Mechanism, Scram, plain};
use super::wire::{
    Api, METADATA, PRODUCE, PartitionRecords, PartitionResult, RequestBody, SASL_AUTHENTICATE,
    SASL_HANDSHAKE, TopicMetadata, metadata, produce, produced, sasl_reply, topic_metadata,
};

/// Maximum bytes of a reply. The description of a topic has about 50 bytes for each partition.
const FRAME_BYTES_MAX: usize = 4 << 20;

/// Connection to a broker.
pub(super) struct KafkaLink {
    stream: BrokerStream,
    received: ReceiveBuffer,
    next_correlation: i32,
}

impl KafkaLink {
    /// Connects to a broker, and authenticates if a mechanism is set.
    pub(super) async fn open(
        endpoint: &Endpoint,
        host: &BrokerHost,
        sasl: Option<Mechanism>,
        login: &Login,
    ) -> Result<Self, DeliveryFailure> {
        let stream = endpoint.connect(host).await?;
        let received = ReceiveBuffer::new(FRAME_BYTES_MAX);
        let mut link = Self { stream, received, next_correlation: 0 };
        if let Some(mechanism) = sasl {
            link.authenticate(mechanism, login).await?;
        }
        Ok(link)
    }

    /// Returns the description of a topic.
    pub(super) async fn metadata(&mut self, topic: &str) -> Result<TopicMetadata, DeliveryFailure> {
        let reply = self.call(METADATA, metadata(topic)).await?;
        topic_metadata(&reply)
    }

    /// Sends records to partitions that this broker leads. Returns the partitions' results.
    pub(super) async fn produce(
        &mut self,
        topic: &str,
        partitions: &[PartitionRecords],
    ) -> Result<Vec<PartitionResult>, DeliveryFailure> {
        let reply = self.call(PRODUCE, produce(topic, partitions)).await?;
        produced(&reply)
    }

    async fn authenticate(
        &mut self,
        mechanism: Mechanism,
        login: &Login,
    ) -> Result<(), DeliveryFailure> {
        let handshake = RequestBody::default().text(mechanism.name());
        let reply = self.call(SASL_HANDSHAKE, handshake).await?;
        let code = FieldReader::new(&reply).i16()?;
        if code != 0 {
            return Err(DeliveryFailure::away(format!(
                "the broker does not take {}: {}",
                mechanism.name(),
                code_name(code)
            )));
        }
        let nonce = format!("{:032x}", rand::random::<u128>());
        let Some(scram) = Scram::begin(mechanism, login, &nonce) else {
            return self.step(&plain(login)).await.map(drop);
        };
        let challenge = self.step(scram.first_message().as_bytes()).await?;
        let proving = off_thread(scram, move |scram| Ok(scram.prove(&challenge)));
        let proof = proving.await.1??;
        let reply = self.step(proof.message.as_bytes()).await?;
        proof.check(&reply)
    }

    /// Sends one message of an authentication. Returns the broker's answer.
    async fn step(&mut self, message: &[u8]) -> Result<Vec<u8>, DeliveryFailure> {
        let body = RequestBody::default().bytes(message);
        let reply = sasl_reply(&self.call(SASL_AUTHENTICATE, body).await?)?;
        if reply.code != 0 {
            return Err(DeliveryFailure::away(format!(
                "the broker refuses the credentials: {} {}",
                code_name(reply.code),
                reply.error
            )));
        }
        Ok(reply.bytes)
    }

    async fn call(&mut self, api: Api, body: RequestBody) -> Result<Bytes, DeliveryFailure> {
        let correlation = self.next_correlation;
        self.next_correlation = correlation.wrapping_add(1);
        self.stream.write_all(&body.request(api, correlation)).await?;
        self.stream.flush().await?;
        let head = self.received.take(&mut self.stream, 4).await?;
        let length = FieldReader::new(&head).u32()?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let frame = self.received.take(&mut self.stream, length).await?;
        if FieldReader::new(&frame).i32()? != correlation {
            return Err(DeliveryFailure::away("the broker answered another request"));
        }
        Ok(frame.slice(4..))
    }
}
