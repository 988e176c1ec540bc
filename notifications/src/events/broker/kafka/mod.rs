//! Kafka: messages to a topic, in the partition of their key `BUCKET/KEY`.
//!
//! * `wire`, `record_batch`, `codes`: requests, replies and records of the protocol.
//! * `sasl`: authentication. `link`: connection to one broker.
//!
//! ```text
//! messages ─▶ partition of the key ─▶ its leader ─▶ one request for each leader, all at once
//! ```
//!
//! Invariants:
//! * Messages of one partition are sent in their order, in one batch, which a broker takes as a
//!   whole. So their order holds, whatever happens to other partitions.
//! * Partitions that took their messages are noted, even if others fail or the time is over. While
//!   one leader is away, the others get no second copies.
//! * A batch that a broker refuses is sent again message by message, so that only the message at
//!   fault is refused.

mod codes;
mod link;
mod record_batch;
mod sasl;
mod wire;

use std::collections::BTreeMap;

use futures::future::join_all;
use martlet_protocol::{Clock, SystemClock};
use martlet_serving::Failure;
use tokio::time::Instant;

use self::codes::{code_name, is_refusal, is_slow};
use self::link::KafkaLink;
use self::record_batch::{Record, partition, record_batch};
use self::sasl::Mechanism;
use self::wire::{PartitionRecords, TopicMetadata};
use super::super::retry::DeliveryFailure;
use super::super::spool::SpooledMessage;
use super::acknowledged::Acknowledged;
use super::address::BrokerHost;
use super::batch_limits::{BatchEnd, BatchLimits};
use super::credentials::Login;
use super::endpoint::{BATCH_TIME, Endpoint};
use super::object_key::object_key;
use super::staggered::first_success;

/// Maximum length of a topic's name, by Kafka.
const TOPIC_BYTES_MAX: usize = 249;
/// Maximum number of leaders that a lane sends to at once, and so of its connections. Messages for
/// further leaders follow in the next attempt.
const LINKS_MAX: usize = 16;

/// Topic of messages, and the cluster that has it.
#[derive(Clone)]
pub(super) struct KafkaClient {
    endpoint: Endpoint,
    topic: String,
    sasl: Option<Mechanism>,
}

/// Notes on the messages of a lane, which outlive its connection.
#[derive(Clone, Copy)]
struct LaneNotes<'a> {
    acknowledged: &'a Acknowledged,
    /// Limits of partitions.
    limits: &'a BatchLimits,
}

/// Partitions of the topic, and where they are.
struct TopicLayout {
    /// Leaders by partition; at least one partition.
    leaders: Vec<i32>,
    /// Hosts by the ids of brokers.
    hosts: BTreeMap<i32, BrokerHost>,
}

/// Connections to the leaders of a topic's partitions.
pub(super) struct KafkaConnection {
    client: KafkaClient,
    login: Login,
    /// Hosts by the ids of brokers.
    hosts: BTreeMap<i32, BrokerHost>,
    /// Leaders by partition; at least one partition.
    leaders: Vec<i32>,
    links: BTreeMap<i32, KafkaLink>,
}

/// Message, and its record.
struct PendingRecord<'a> {
    message: &'a SpooledMessage,
    record: Record,
}

/// Messages for one partition, in their order.
struct PartitionBatch<'a> {
    partition: i32,
    records: Vec<PendingRecord<'a>>,
}

/// Messages for one leader.
struct LeaderBatch<'a> {
    leader: i32,
    partitions: Vec<PartitionBatch<'a>>,
}

/// Failure that concerns a message and those behind it in its partition.
struct RecordFailure<'a> {
    message: &'a SpooledMessage,
    failure: DeliveryFailure,
}

/// Outcome of the messages for one leader.
struct LeaderOutcome<'a> {
    leader: i32,
    /// Connection for the next batch; `None` after a failure.
    link: Option<KafkaLink>,
    failures: Vec<RecordFailure<'a>>,
}

impl KafkaClient {
    /// Makes a client for messages to `topic`. `sasl` names the mechanism of an authentication.
    pub(super) fn new(
        endpoint: Endpoint,
        topic: &str,
        sasl: Option<&str>,
    ) -> Result<Self, Failure> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_name = topic.len() <= TOPIC_BYTES_MAX && topic.chars().all(is_plain);
        if !is_name || [".", ".."].contains(&topic) {
            return Err(Failure::usage(format!(
                "\"{topic}\" is not a topic of Kafka: use at most {TOPIC_BYTES_MAX} letters, \
                 digits, '.', '_' and '-'"
            )));
        }
        let sasl = sasl.map(Mechanism::of).transpose()?;
        let credentials = &endpoint.credentials;
        let is_complete = credentials.user.is_some() && credentials.secret_file.is_some();
        let is_empty = credentials.user.is_none() && credentials.secret_file.is_none();
        if (sasl.is_some() && !is_complete) || (sasl.is_none() && !is_empty) {
            return Err(Failure::usage(
                "a Kafka target needs either all of kafka_sasl, user and password_file, or none",
            ));
        }
        Ok(Self { endpoint, topic: topic.to_owned(), sasl })
    }

    /// Learns the leaders of the topic from the first host that describes it. Hosts are asked one
    /// after another, from a random one on.
    pub(super) async fn connect(&self) -> Result<KafkaConnection, DeliveryFailure> {
        let login = self.endpoint.credentials.login().await?;
        let mut hosts: Vec<&BrokerHost> = self.endpoint.hosts.iter().collect();
        let first = rand::random_range(0..hosts.len());
        hosts.rotate_left(first);
        let asked = hosts.into_iter().map(|host| self.layout_of(host, &login)).collect();
        let TopicLayout { leaders, hosts } = first_success(asked).await?;
        let links = BTreeMap::new();
        Ok(KafkaConnection { client: self.clone(), login, hosts, leaders, links })
    }

    /// Returns the layout of the topic, as a host describes it. A host that doesn't know the topic, or
    /// knows it in part, is of no use: another one may know more.
    async fn layout_of(
        &self,
        host: &BrokerHost,
        login: &Login,
    ) -> Result<TopicLayout, DeliveryFailure> {
        let mut link = KafkaLink::open(&self.endpoint, host, self.sasl, login).await?;
        let metadata = link.metadata(&self.topic).await?;
        if metadata.code != 0 {
            return Err(DeliveryFailure::away(format!(
                "the topic {} can't be used: {}",
                self.topic,
                code_name(metadata.code)
            )));
        }
        Ok(TopicLayout { leaders: leaders(&metadata)?, hosts: hosts_of(&metadata) })
    }
}

/// Returns the leaders by partition.
fn leaders(metadata: &TopicMetadata) -> Result<Vec<i32>, DeliveryFailure> {
    let mut partitions = metadata.partitions.clone();
    partitions.sort_unstable_by_key(|it| it.index);
    let are_complete = partitions.iter().zip(0i32..).all(|(it, index)| it.index == index);
    if partitions.is_empty() || !are_complete {
        return Err(DeliveryFailure::away("the broker lists the partitions of the topic in part"));
    }
    Ok(partitions.iter().map(|it| it.leader).collect())
}

fn hosts_of(metadata: &TopicMetadata) -> BTreeMap<i32, BrokerHost> {
    let host = |it: &wire::ClusterBroker| {
        let port = u16::try_from(it.port).ok()?;
        Some((it.id, BrokerHost { name: it.host.clone(), port }))
    };
    metadata.brokers.iter().filter_map(host).collect()
}

impl KafkaConnection {
    /// Delivers messages, and notes those that were acknowledged. Returns the failure of the first
    /// message, if it has one, or else any failure.
    pub(super) async fn publish(
        &mut self,
        messages: &[SpooledMessage],
        acknowledged: &Acknowledged,
        limits: &BatchLimits,
    ) -> Result<(), DeliveryFailure> {
        let notes = LaneNotes { acknowledged, limits };
        let batches = self.batches(messages, acknowledged);
        if self.links.len() + batches.len() > LINKS_MAX {
            self.links.retain(|leader, _| batches.iter().any(|it| it.leader == *leader));
        }
        let links: Vec<_> = batches.iter().map(|it| self.links.remove(&it.leader)).collect();
        let sent = batches.into_iter().zip(links);
        let sent = sent.map(|(batch, link)| self.send(batch, link, notes));
        let outcomes = join_all(sent).await;
        let mut failures = Vec::new();
        for outcome in outcomes {
            self.links.extend(outcome.link.map(|link| (outcome.leader, link)));
            failures.extend(outcome.failures);
        }
        // A refusal counts against the message at the head alone.
        let head = messages.first().map(|it| it.position);
        let of_head = failures.iter().position(|it| Some(it.message.position) == head);
        if let Some(at) = of_head {
            return Err(failures.swap_remove(at).failure);
        }
        match failures.into_iter().find(|it| matches!(it.failure, DeliveryFailure::Away(_))) {
            Some(RecordFailure { failure, .. }) => Err(failure),
            None => Ok(()),
        }
    }

    /// Divides the messages without acknowledgement by leader and partition, the leader of the first
    /// message first.
    fn batches<'a>(
        &self,
        messages: &'a [SpooledMessage],
        acknowledged: &Acknowledged,
    ) -> Vec<LeaderBatch<'a>> {
        let mut batches: Vec<LeaderBatch<'a>> = Vec::new();
        for message in messages.iter().filter(|it| !acknowledged.has(it)) {
            let key = object_key(&message.message);
            let index = partition(key.as_deref(), self.leaders.len());
            let (leader, index) = (self.leaders[index], i32::try_from(index).unwrap_or(i32::MAX));
            let of_leader = match batches.iter().position(|it| it.leader == leader) {
                Some(at) => at,
                None if batches.len() == LINKS_MAX => continue,
                None => {
                    batches.push(LeaderBatch { leader, partitions: Vec::new() });
                    batches.len() - 1
                }
            };
            let partitions = &mut batches[of_leader].partitions;
            let record = Record { key, value: message.message.clone() };
            let pending = PendingRecord { message, record };
            match partitions.iter_mut().find(|it| it.partition == index) {
                Some(batch) => batch.records.push(pending),
                None => {
                    partitions.push(PartitionBatch { partition: index, records: vec![pending] });
                }
            }
        }
        batches
    }

    /// Sends the messages for one leader, and notes those that were acknowledged.
    async fn send<'a>(
        &self,
        batch: LeaderBatch<'a>,
        link: Option<KafkaLink>,
        notes: LaneNotes<'_>,
    ) -> LeaderOutcome<'a> {
        let (leader, mut failures) = (batch.leader, Vec::new());
        match self.try_send(&batch, link, notes, &mut failures).await {
            Ok(link) => LeaderOutcome { leader, link: Some(link), failures },
            Err(failure) => {
                let open = batch.partitions.iter().flat_map(|it| &it.records).map(|it| it.message);
                let open = open.filter(|it| !notes.acknowledged.has(it));
                let failed = |message| RecordFailure { message, failure: failure.clone() };
                failures.extend(open.map(failed));
                LeaderOutcome { leader, link: None, failures }
            }
        }
    }

    /// Sends the messages for one leader. Returns the connection for the next ones.
    async fn try_send<'a>(
        &self,
        batch: &LeaderBatch<'a>,
        link: Option<KafkaLink>,
        notes: LaneNotes<'_>,
        failures: &mut Vec<RecordFailure<'a>>,
    ) -> Result<KafkaLink, DeliveryFailure> {
        let mut link = match link {
            Some(link) => link,
            None => self.open(batch.leader).await?,
        };
        let refused = self.send_batches(&mut link, &batch.partitions, notes, failures).await?;
        for partition in refused {
            self.send_singly(&mut link, partition, notes, failures).await?;
        }
        Ok(link)
    }

    async fn open(&self, leader: i32) -> Result<KafkaLink, DeliveryFailure> {
        let host = self.hosts.get(&leader).ok_or_else(|| {
            DeliveryFailure::away(format!("a partition of {} has no leader", self.client.topic))
        })?;
        KafkaLink::open(&self.client.endpoint, host, self.client.sasl, &self.login).await
    }

    /// Sends the batches of all partitions in one request, each within its limit. Returns those that
    /// were refused as a whole.
    async fn send_batches<'a, 'b>(
        &self,
        link: &mut KafkaLink,
        partitions: &'b [PartitionBatch<'a>],
        notes: LaneNotes<'_>,
        failures: &mut Vec<RecordFailure<'a>>,
    ) -> Result<Vec<&'b PartitionBatch<'a>>, DeliveryFailure> {
        let cut = |it: &'b PartitionBatch<'a>| {
            &it.records[..notes.limits.begin(it.partition, it.records.len())]
        };
        let sent: Vec<&[PendingRecord<'a>]> = partitions.iter().map(cut).collect();
        let records = |(it, sent): (&PartitionBatch<'_>, &&[PendingRecord<'_>])| {
            let records: Vec<&Record> = sent.iter().map(|it| &it.record).collect();
            let records = record_batch(&records, SystemClock.now_ms());
            PartitionRecords { partition: it.partition, records }
        };
        let request: Vec<PartitionRecords> = partitions.iter().zip(&sent).map(records).collect();
        let results = match link.produce(&self.client.topic, &request).await {
            Ok(results) => results,
            Err(failure) => {
                for batch in partitions {
                    notes.limits.end(batch.partition, BatchEnd::Failed);
                }
                return Err(failure);
            }
        };
        let mut refused = Vec::new();
        for (batch, sent) in partitions.iter().zip(sent) {
            let result = results.iter().find(|it| it.partition == batch.partition);
            let code = result.map(|it| it.code);
            let end = match code {
                Some(0) => BatchEnd::Acknowledged,
                Some(code) if is_slow(code) => BatchEnd::Slow,
                _ => BatchEnd::Failed,
            };
            notes.limits.end(batch.partition, end);
            match code {
                Some(0) => sent.iter().for_each(|it| notes.acknowledged.add(it.message)),
                Some(code) if is_refusal(code) && sent.len() > 1 => refused.push(batch),
                code => failures.push(failure(batch.records[0].message, code)),
            }
        }
        Ok(refused)
    }

    /// Sends the messages of a partition one by one, up to the first that is not acknowledged, for
    /// [`BATCH_TIME`] at most.
    async fn send_singly<'a>(
        &self,
        link: &mut KafkaLink,
        batch: &PartitionBatch<'a>,
        notes: LaneNotes<'_>,
        failures: &mut Vec<RecordFailure<'a>>,
    ) -> Result<(), DeliveryFailure> {
        let began = Instant::now();
        for pending in batch.records.iter().take_while(|_| began.elapsed() < BATCH_TIME) {
            let records = record_batch(&[&pending.record], SystemClock.now_ms());
            let request = [PartitionRecords { partition: batch.partition, records }];
            let results = link.produce(&self.client.topic, &request).await?;
            let code = results.iter().find(|it| it.partition == batch.partition);
            match code.map(|it| it.code) {
                Some(0) => notes.acknowledged.add(pending.message),
                code => {
                    failures.push(failure(pending.message, code));
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Maps a code to the failure of a message. `None` stands for a reply without the partition.
fn failure(message: &SpooledMessage, code: Option<i16>) -> RecordFailure<'_> {
    let Some(code) = code else {
        let failure = DeliveryFailure::away("the broker did not answer for a partition");
        return RecordFailure { message, failure };
    };
    let reason = format!("the broker answered {}", code_name(code));
    let failure = if is_refusal(code) {
        DeliveryFailure::Refused(reason)
    } else {
        DeliveryFailure::Away(reason)
    };
    RecordFailure { message, failure }
}

#[cfg(test)]
mod tests;
