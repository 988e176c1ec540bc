//! Kafka against a cluster of brokers in this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::lane::BrokerLane;
use super::super::settings::BrokerSettings;
use super::super::testing::{
    AMPLE, FakeBroker, SHORT, away, closed_port, event, lane, refused, spooled,
};
use super::wire::RequestBody;
use super::*;

/// Code in a script: no reply.
const SILENCE: i16 = i16::MIN;
/// Leader of partitions without one.
const NO_LEADER: i32 = -1;

/// State of a cluster with one topic.
#[derive(Default)]
struct Topic {
    /// Ports by the ids of brokers.
    ports: Mutex<Vec<u16>>,
    leaders: Mutex<Vec<i32>>,
    code: Mutex<i16>,
    /// Codes for the next batches of a partition; zero afterwards.
    codes: Mutex<BTreeMap<i32, VecDeque<i16>>>,
    /// Stored values by partition, in their order.
    stored: Mutex<BTreeMap<i32, Vec<String>>>,
    keys: Mutex<Vec<String>>,
    tokens: Mutex<Vec<Vec<u8>>>,
    sasl_code: Mutex<i16>,
}

/// Topic and its running brokers.
struct Cluster {
    topic: Arc<Topic>,
    brokers: Vec<FakeBroker>,
}

impl Cluster {
    /// Starts a broker for each of `count`, and a topic with these leaders.
    async fn start(count: usize, leaders: &[i32]) -> Self {
        let topic = Arc::new(Topic::default());
        *topic.leaders.lock() = leaders.to_vec();
        let mut brokers = Vec::new();
        for _ in 0..count {
            let served = topic.clone();
            let broker = FakeBroker::start(move |stream| {
                let topic = served.clone();
                async move {
                    topic.serve(stream).await;
                }
            });
            brokers.push(broker.await);
        }
        *topic.ports.lock() = brokers.iter().map(|it| it.port).collect();
        Self { topic, brokers }
    }

    fn lane(&self, patience: Duration) -> BrokerLane {
        kafka_lane(&[self.brokers[0].port], patience)
    }

    fn script(&self, partition: i32, codes: &[i16]) {
        self.topic.codes.lock().insert(partition, codes.iter().copied().collect());
    }

    fn stored(&self) -> BTreeMap<i32, Vec<String>> {
        self.topic.stored.lock().clone()
    }
}

fn kafka_lane(ports: &[u16], patience: Duration) -> BrokerLane {
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let address = format!("kafka://{}/t", hosts.join(","));
    lane(BrokerSettings { address: &address, ..BrokerSettings::default() }, patience)
}

/// Reads a signed number of seven bits in a byte.
fn varint(bytes: &mut &[u8]) -> i64 {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return (value >> 1).cast_signed() ^ -((value & 1).cast_signed());
        }
    }
}

fn sized<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(bytes)).ok()?;
    let (value, rest) = bytes.split_at(length);
    *bytes = rest;
    Some(value)
}

/// Returns keys and values of a batch.
fn records(batch: &[u8]) -> Vec<(String, String)> {
    let count = i32::from_be_bytes(batch[57..61].try_into().unwrap());
    let mut rest = &batch[61..];
    let text = |it: Option<&[u8]>| String::from_utf8(it.unwrap_or_default().to_vec()).unwrap();
    let read = |offset: i32| {
        let mut record = sized(&mut rest).unwrap();
        record = &record[1..];
        assert_eq!((varint(&mut record), varint(&mut record)), (0, i64::from(offset)));
        (text(sized(&mut record)), text(sized(&mut record)))
    };
    (0..count).map(read).collect()
}

fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Topic {
    async fn serve(&self, mut stream: TcpStream) -> Option<()> {
        loop {
            let length = stream.read_u32().await.ok()?;
            let mut request = vec![0; length as usize];
            stream.read_exact(&mut request).await.ok()?;
            let key = i16::from_be_bytes(request[..2].try_into().unwrap());
            let correlation = int(&request, 4);
            assert_eq!(&request[8..17], b"\x00\x07martlet");
            let body = &request[17..];
            let reply = match key {
                0 => self.produce(body),
                3 => Some(self.metadata()),
                17 => Some(RequestBody::default().i16(0).count(1).text("PLAIN")),
                36 => {
                    self.tokens.lock().push(body[4..].to_vec());
                    let code = *self.sasl_code.lock();
                    Some(RequestBody::default().i16(code).text("not s3cret").bytes(&[]))
                }
                other => panic!("unknown request {other}"),
            };
            let Some(reply) = reply else {
                std::future::pending::<()>().await;
                return None;
            };
            let reply = RequestBody::default().i32(correlation).into_bytes_with(reply);
            stream.write_u32(u32::try_from(reply.len()).unwrap()).await.ok()?;
            stream.write_all(&reply).await.ok()?;
        }
    }

    fn metadata(&self) -> RequestBody {
        let (ports, leaders) = (self.ports.lock().clone(), self.leaders.lock().clone());
        let mut body = RequestBody::default().i32(0).count(ports.len());
        for (port, id) in ports.iter().zip(0..) {
            body = body.i32(id).text("127.0.0.1").i32(i32::from(*port)).i16(-1);
        }
        let body = body.i16(-1).i32(0).count(1).i16(*self.code.lock()).text("t").i8(0);
        let mut body = body.count(leaders.len());
        // Brokers list partitions in any order.
        for (index, leader) in leaders.iter().enumerate().rev() {
            let index = i32::try_from(index).unwrap();
            body = body.i16(0).i32(index).i32(*leader).count(1).i32(*leader).count(1).i32(*leader);
        }
        body
    }

    /// Stores the batches of a request. `None` if one of them gets no reply.
    fn produce(&self, body: &[u8]) -> Option<RequestBody> {
        assert_eq!(int(body, 8), 1, "one topic");
        assert_eq!(&body[12..15], b"\x00\x01t");
        let (count, mut at) = (int(body, 15), 19);
        let mut reply = RequestBody::default().count(1).text("t").i32(count);
        for _ in 0..count {
            let (partition, length) = (int(body, at), int(body, at + 4));
            let batch = &body[at + 8..at + 8 + usize::try_from(length).unwrap()];
            at += 8 + batch.len();
            let code = self.codes.lock().get_mut(&partition).and_then(VecDeque::pop_front);
            let code = code.unwrap_or_default();
            if code == SILENCE {
                return None;
            }
            if code == 0 {
                let (keys, values): (Vec<_>, Vec<_>) = records(batch).into_iter().unzip();
                self.stored.lock().entry(partition).or_default().extend(values);
                self.keys.lock().extend(keys);
            }
            reply = reply.i32(partition).i16(code).i32(0).i32(0).i32(0).i32(0);
        }
        Some(reply.i32(0))
    }
}

/// Returns events whose keys belong to these partitions of `count`.
fn events(partitions: &[usize], count: usize) -> Vec<String> {
    let mut numbers = 0..;
    let mut of = |wanted: usize| {
        let key = |it: &u32| partition(Some(format!("b/{it}").as_bytes()), count) == wanted;
        event(&numbers.find(key).unwrap().to_string())
    };
    partitions.iter().map(|it| of(*it)).collect()
}

#[tokio::test]
async fn messages_go_to_the_partitions_of_their_keys_in_order() {
    let cluster = Cluster::start(2, &[0, 1, 0]).await;
    let mut events = events(&[2, 0, 1, 0, 2, 2, 1], 3);
    events.push("no event".to_owned());
    let messages = spooled(&events);
    let lane = cluster.lane(AMPLE);
    assert_eq!(lane.deliver(&messages[..7]).await, Ok(7));
    let of = |at: &[usize]| at.iter().map(|it| events[*it].clone()).collect::<Vec<_>>();
    let expected = BTreeMap::from([(0, of(&[1, 3])), (1, of(&[2, 6])), (2, of(&[0, 4, 5]))]);
    assert_eq!(cluster.stored(), expected);
    assert!(cluster.topic.keys.lock().iter().all(|it| it.starts_with("b/")));
    assert_eq!(lane.deliver(&messages[7..]).await, Ok(1));
    assert_eq!(cluster.stored()[&0].len(), 3, "a message without a key is in the first partition");
}

#[tokio::test]
async fn other_partitions_get_no_copies_while_a_leader_is_away() {
    let cluster = Cluster::start(2, &[0, 1]).await;
    cluster.topic.ports.lock()[1] = closed_port().await;
    let events = events(&[1, 0, 0, 1, 0], 2);
    let messages = spooled(&events);
    let lane = cluster.lane(AMPLE);
    for _ in 0..5 {
        let reason = away(lane.deliver(&messages).await);
        assert!(reason.contains("no connection to"), "{reason}");
    }
    let others = [events[1].clone(), events[2].clone(), events[4].clone()];
    assert_eq!(cluster.stored(), BTreeMap::from([(0, others.to_vec())]));
    *cluster.topic.leaders.lock() = vec![0, 0];
    assert_eq!(lane.deliver(&messages).await, Ok(5));
    let delayed = [events[0].clone(), events[3].clone()];
    assert_eq!(cluster.stored(), BTreeMap::from([(0, others.to_vec()), (1, delayed.to_vec())]));
}

#[tokio::test]
async fn partitions_that_answered_in_time_are_kept() {
    let cluster = Cluster::start(2, &[0, 1]).await;
    cluster.script(1, &[SILENCE, SILENCE]);
    let events = events(&[0, 1, 0], 2);
    let messages = spooled(&events);
    let lane = cluster.lane(SHORT);
    assert_eq!(lane.deliver(&messages).await, Ok(1));
    let reason = away(lane.deliver(&messages[1..]).await);
    assert!(reason.contains("no acknowledgement within"), "{reason}");
    assert_eq!(lane.deliver(&messages[1..]).await, Ok(2));
    assert_eq!(cluster.stored()[&0], [events[0].clone(), events[2].clone()]);
    assert_eq!(cluster.stored()[&1], [events[1].clone()]);
}

#[tokio::test]
async fn codes_about_the_cluster_are_no_fault_of_a_message() {
    let cluster = Cluster::start(1, &[0]).await;
    let lane = cluster.lane(AMPLE);
    let messages = spooled(&["1"]);
    for code in [-1, 2, 3, 5, 6, 7, 8, 9, 13, 17, 19, 20, 29, 31, 32, 35, 42, 44, 56, 87, 89, 119] {
        cluster.script(0, &[code]);
        let reason = away(lane.deliver(&messages).await);
        assert!(reason.contains(&format!("({code})")), "{reason}");
    }
    for code in [10, 18] {
        cluster.script(0, &[code]);
        let reason = refused(lane.deliver(&messages).await);
        assert!(reason.contains(&format!("({code})")), "{reason}");
    }
    assert_eq!(lane.deliver(&messages).await, Ok(1));
}

#[tokio::test]
async fn batches_shrink_while_a_partition_is_slow() {
    let messages = spooled(&["1", "2", "3", "4", "5", "6", "7", "8"]);
    for code in [7, 20, SILENCE] {
        let cluster = Cluster::start(1, &[0]).await;
        let lane = cluster.lane(if code == SILENCE { SHORT } else { AMPLE });
        cluster.script(0, &[code, code]);
        away(lane.deliver(&messages).await);
        away(lane.deliver(&messages).await);
        assert_eq!(lane.deliver(&messages).await, Ok(2), "a quarter of eight, {code}");
        assert_eq!(lane.deliver(&messages[2..]).await, Ok(4), "batches grow again");
        assert_eq!(lane.deliver(&messages[6..]).await, Ok(2));
        assert_eq!(cluster.stored()[&0], ["1", "2", "3", "4", "5", "6", "7", "8"]);
    }
}

#[tokio::test]
async fn only_the_message_at_fault_is_refused() {
    let cluster = Cluster::start(1, &[0]).await;
    let lane = cluster.lane(AMPLE);
    let messages = spooled(&["1", "2", "3"]);
    // The batch, the first message and the second one.
    cluster.script(0, &[10, 0, 10]);
    assert_eq!(lane.deliver(&messages).await, Ok(1));
    cluster.script(0, &[10, 10]);
    refused(lane.deliver(&messages[1..]).await);
    assert_eq!(lane.deliver(&messages[2..]).await, Ok(1), "the second was set aside");
    assert_eq!(cluster.stored()[&0], ["1", "3"]);
}

#[tokio::test]
async fn a_lane_has_few_connections_and_reaches_all_leaders() {
    let count = LINKS_MAX + 2;
    let leaders: Vec<i32> = (0..).take(count).collect();
    let cluster = Cluster::start(count, &leaders).await;
    let partitions: Vec<usize> = (0..count).collect();
    let messages = spooled(&events(&partitions, count));
    let lane = cluster.lane(AMPLE);
    assert_eq!(lane.deliver(&messages).await, Ok(LINKS_MAX));
    assert_eq!(lane.deliver(&messages[LINKS_MAX..]).await, Ok(2));
    assert_eq!(cluster.stored().len(), count);
    assert!(cluster.stored().values().all(|it| it.len() == 1));
}

#[tokio::test]
async fn topics_without_leaders_are_away() {
    let messages = spooled(&["1"]);
    let cluster = Cluster::start(1, &[NO_LEADER]).await;
    let lane = cluster.lane(AMPLE);
    let reason = away(lane.deliver(&messages).await);
    assert!(reason.contains("a partition of t has no leader"), "{reason}");
    *cluster.topic.code.lock() = 3;
    let reason = away(lane.deliver(&messages).await);
    assert!(reason.contains("the topic t can't be used: UNKNOWN_TOPIC"), "{reason}");
    *cluster.topic.code.lock() = 0;
    cluster.topic.leaders.lock().clear();
    assert!(away(lane.deliver(&messages).await).contains("in part"));
    *cluster.topic.leaders.lock() = vec![0];
    assert_eq!(lane.deliver(&messages).await, Ok(1));
}

#[tokio::test]
async fn any_of_the_hosts_describes_the_cluster() {
    let cluster = Cluster::start(1, &[0]).await;
    let silent = FakeBroker::start(async |stream| {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    // Hosts that answer, and don't know the topic or its partitions.
    let unaware = Cluster::start(1, &[0]).await;
    *unaware.topic.code.lock() = 3;
    let partial = Cluster::start(1, &[]).await;
    let ports = [
        silent.port,
        closed_port().await,
        unaware.brokers[0].port,
        partial.brokers[0].port,
        cluster.brokers[0].port,
    ];
    for _ in 0..ports.len() {
        assert_eq!(kafka_lane(&ports, AMPLE).deliver(&spooled(&["1"])).await, Ok(1));
    }
    assert_eq!(cluster.stored()[&0].len(), ports.len());
}

#[tokio::test]
async fn credentials_are_sent_and_not_shown() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("password");
    std::fs::write(&file, "s3cret").unwrap();
    let cluster = Cluster::start(1, &[0]).await;
    let address = format!("kafka://127.0.0.1:{}/t", cluster.brokers[0].port);
    let settings = BrokerSettings { address: &address, user: Some("me"), ..Default::default() };
    let settings =
        BrokerSettings { password_file: Some(&file), kafka_sasl: Some("plain"), ..settings };
    let lane = lane(settings, AMPLE);
    let messages = spooled(&["1", "2"]);
    assert_eq!(lane.deliver(&messages[..1]).await, Ok(1));
    assert_eq!(cluster.topic.tokens.lock()[0], b"\0me\0s3cret");
    lane.rest().await;
    *cluster.topic.sasl_code.lock() = 58;
    let reason = away(lane.deliver(&messages[1..]).await);
    assert!(reason.contains("refuses the credentials: SASL_AUTHENTICATION_FAILED"), "{reason}");
    assert!(!reason.contains("s3cret"));
}

#[tokio::test]
async fn hostile_lengths_reserve_nothing() {
    let messages = spooled(&["1"]);
    let huge = RequestBody::default().i32(0).i32(i32::MAX);
    let negative = RequestBody::default().i32(0).i32(-2);
    for (length, body, expected) in [
        (Some(u32::MAX), RequestBody::default(), "a frame of 4294967295 bytes"),
        (Some(0), RequestBody::default(), "ends too early"),
        (None, huge, "ends too early"),
        (None, negative, "a negative number of items"),
    ] {
        let frame = RequestBody::default().i32(0).into_bytes_with(body);
        let length = length.unwrap_or(u32::try_from(frame.len()).unwrap());
        let bytes = Arc::new([&length.to_be_bytes()[..], &frame].concat());
        let broker = FakeBroker::start(move |mut stream| {
            let bytes = bytes.clone();
            async move {
                let _ = stream.read_u8().await;
                let _ = stream.write_all(&bytes).await;
                // The client ends the connection.
                while stream.read_u8().await.is_ok() {}
            }
        })
        .await;
        let reason = away(kafka_lane(&[broker.port], AMPLE).deliver(&messages).await);
        assert!(reason.contains(expected), "{reason}");
    }
}
