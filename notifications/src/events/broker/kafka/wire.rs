//! Requests of the Kafka protocol that a producer sends, and their replies.
//!
//! ```text
//! request   length (4) | API (2) | version (2) | correlation (4) | client (text) | body
//! reply     length (4) | correlation (4) | body
//! ```
//!
//! Each request has one version, which every broker from 1.0 (2017) to 4.x accepts: Metadata 4,
//! Produce 3, `SaslHandshake` 1, `SaslAuthenticate` 0.
//!
//! Source: the Kafka protocol guide, <https://kafka.apache.org/protocol>.

use super::super::super::retry::DeliveryFailure;
use super::super::receive_buffer::FieldReader;

/// Kind of a request, with the version of its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Api {
    pub(super) key: i16,
    pub(super) version: i16,
}

pub(super) const PRODUCE: Api = Api { key: 0, version: 3 };
pub(super) const METADATA: Api = Api { key: 3, version: 4 };
pub(super) const SASL_HANDSHAKE: Api = Api { key: 17, version: 1 };
pub(super) const SASL_AUTHENTICATE: Api = Api { key: 36, version: 0 };

/// Name of this client in requests.
const CLIENT: &str = "martlet";
/// Time that a leader gives its followers to take a batch, in milliseconds.
const REPLICATION_TIMEOUT_MS: i32 = 8000;

/// Body of a request.
#[derive(Debug, Default)]
pub(super) struct RequestBody(Vec<u8>);

impl RequestBody {
    pub(super) fn i8(mut self, value: i8) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn i16(mut self, value: i16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn i32(mut self, value: i32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a text of at most 32,767 bytes.
    pub(super) fn text(mut self, text: &str) -> Self {
        let length = i16::try_from(text.len()).expect("names were checked");
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Adds bytes behind their length.
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let mut this = self.count(bytes.len());
        this.0.extend_from_slice(bytes);
        this
    }

    /// Adds the number of items that follow.
    pub(super) fn count(self, count: usize) -> Self {
        self.i32(i32::try_from(count).expect("a batch has at most 256 KiB"))
    }

    /// Returns these bytes, with those of another body behind them.
    #[cfg(test)]
    pub(super) fn into_bytes_with(self, other: Self) -> Vec<u8> {
        [self.0, other.0].concat()
    }

    /// Returns the whole request with this body.
    pub(super) fn request(self, api: Api, correlation: i32) -> Vec<u8> {
        let head = Self::default().i16(api.key).i16(api.version).i32(correlation).text(CLIENT);
        let length = head.0.len() + self.0.len();
        [Self::default().count(length).0, head.0, self.0].concat()
    }
}

/// Records for one partition.
#[derive(Debug)]
pub(super) struct PartitionRecords {
    pub(super) partition: i32,
    pub(super) records: Vec<u8>,
}

/// Makes a request that returns when all in-sync replicas have the records.
pub(super) fn produce(topic: &str, partitions: &[PartitionRecords]) -> RequestBody {
    const NO_TRANSACTION: i16 = -1;
    const ALL_IN_SYNC: i16 = -1;
    let mut body = RequestBody::default()
        .i16(NO_TRANSACTION)
        .i16(ALL_IN_SYNC)
        .i32(REPLICATION_TIMEOUT_MS)
        .count(1)
        .text(topic)
        .count(partitions.len());
    for it in partitions {
        body = body.i32(it.partition).bytes(&it.records);
    }
    body
}

/// Result of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionResult {
    pub(super) partition: i32,
    /// Zero if the records are stored.
    pub(super) code: i16,
}

/// Reads the results of a request to produce.
pub(super) fn produced(reply: &[u8]) -> Result<Vec<PartitionResult>, DeliveryFailure> {
    let mut fields = FieldReader::new(reply);
    let mut results = Vec::new();
    for _ in 0..count(&mut fields)? {
        text(&mut fields)?;
        for _ in 0..count(&mut fields)? {
            let (partition, code) = (fields.i32()?, fields.i16()?);
            let (_offset, _time) = (fields.u64()?, fields.u64()?);
            results.push(PartitionResult { partition, code });
        }
    }
    Ok(results)
}

/// Makes a request for a topic's partitions. Topics are not created by it.
pub(super) fn metadata(topic: &str) -> RequestBody {
    RequestBody::default().count(1).text(topic).i8(0)
}

/// Broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterBroker {
    pub(super) id: i32,
    pub(super) host: String,
    pub(super) port: i32,
}

/// Partition of a topic. Without a leader its id is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopicPartition {
    pub(super) index: i32,
    pub(super) leader: i32,
}

/// Topic and the brokers of its cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TopicMetadata {
    pub(super) brokers: Vec<ClusterBroker>,
    /// Zero if the topic exists.
    pub(super) code: i16,
    pub(super) partitions: Vec<TopicPartition>,
}

/// Reads the description of a topic.
pub(super) fn topic_metadata(reply: &[u8]) -> Result<TopicMetadata, DeliveryFailure> {
    let mut fields = FieldReader::new(reply);
    let mut found = TopicMetadata::default();
    let _throttle_ms = fields.i32()?;
    for _ in 0..count(&mut fields)? {
        let (id, host, port) = (fields.i32()?, text(&mut fields)?, fields.i32()?);
        found.brokers.push(ClusterBroker { id, host: host.unwrap_or_default(), port });
        let _rack = text(&mut fields)?;
    }
    let (_cluster, _controller) = (text(&mut fields)?, fields.i32()?);
    for _ in 0..count(&mut fields)? {
        found.code = fields.i16()?;
        let (_name, _is_internal) = (text(&mut fields)?, fields.u8()?);
        for _ in 0..count(&mut fields)? {
            let (_code, index, leader) = (fields.i16()?, fields.i32()?, fields.i32()?);
            found.partitions.push(TopicPartition { index, leader });
            for _replicas_then_in_sync in 0..2 {
                for _ in 0..count(&mut fields)? {
                    fields.i32()?;
                }
            }
        }
    }
    Ok(found)
}

/// Reply to one step of an authentication.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SaslReply {
    /// Zero if the step succeeded.
    pub(super) code: i16,
    pub(super) error: String,
    pub(super) bytes: Vec<u8>,
}

/// Reads the reply to a step of an authentication.
pub(super) fn sasl_reply(reply: &[u8]) -> Result<SaslReply, DeliveryFailure> {
    let mut fields = FieldReader::new(reply);
    let (code, error) = (fields.i16()?, text(&mut fields)?.unwrap_or_default());
    let length = count(&mut fields)?;
    let bytes = fields.bytes(length)?.to_vec();
    Ok(SaslReply { code, error, bytes })
}

/// Reads a number of items. A null array has none. The items are read one by one, so that a frame
/// ends before a false number reserves memory.
fn count(fields: &mut FieldReader<'_>) -> Result<usize, DeliveryFailure> {
    match fields.i32()? {
        -1 => Ok(0),
        count => usize::try_from(count)
            .map_err(|_| DeliveryFailure::away("the broker sent a negative number of items")),
    }
}

/// Reads a text, which may be null.
fn text(fields: &mut FieldReader<'_>) -> Result<Option<String>, DeliveryFailure> {
    let Ok(length) = usize::try_from(fields.i16()?) else { return Ok(None) };
    Ok(Some(String::from_utf8_lossy(fields.bytes(length)?).into_owned()))
}
