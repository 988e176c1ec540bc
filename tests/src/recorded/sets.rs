//! Recorded clients of checkpoint sets: they save, read the view, purge, withdraw and hold, and record
//! requests and replies for [`crate::checkers::sets`].
//!
//! A shard names its value in its first line. A marker is a pickle that names two shards and its
//! value, as `torch.distributed.checkpoint` writes it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use martlet_protocol::consistency::AchievedLevel;
use md5::{Digest, Md5};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::bodies::{body_of, value_of};
use crate::checkers::sets::{Objects, SetCall, SetHistory, SetOperation, SetReply, SetRules};
use crate::checkers::{self, History, Invocation, Operation, Response, Value};
use crate::s3::{LostReply, Reply, S3, encoded};

/// Maximum time to wait for a reply.
const PATIENCE: Duration = Duration::from_secs(20);
/// Name of the marker below a folder, and those of the shards.
pub const MARKER: &str = ".metadata";
/// Names of the shards that each marker names.
pub const SHARDS: [&str; 2] = ["__0_0.distcp", "__1_0.distcp"];
/// Message of a read of the view whose version isn't there.
const GONE: &str = "a version that the view names";

/// Order in which the objects of a set are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadOrder {
    /// Shards, then the marker, as frameworks save.
    MarkerLast,
    /// By name, as `aws s3 sync` sends them: the marker goes first.
    ByName,
    /// By name, backwards.
    Backwards,
    /// All at once.
    AtOnce,
}

/// Records of all clients of a bucket with sets.
pub struct SetRecorder {
    begun: Instant,
    bucket: String,
    rules: SetRules,
    values: AtomicU64,
    clients: AtomicU32,
    objects: Mutex<Vec<Operation>>,
    sets: Mutex<Vec<SetOperation>>,
    etags: Mutex<HashMap<String, Value>>,
}

/// A client of sets, which changes to the next proxy when a connection fails.
pub struct SetClient {
    recorder: Arc<SetRecorder>,
    number: u32,
    endpoints: Vec<SocketAddr>,
    proxy: usize,
    s3: S3,
    /// True if the client stays with its proxy.
    pub is_loyal: bool,
}

/// The marker of a value.
fn marker_of(value: Value) -> Bytes {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("names are short");
        [&[b'\x8c', length], text.as_bytes()].concat()
    };
    let value = format!("{:>12}", value.0);
    let texts = [SHARDS[0], SHARDS[1], &value].map(text).concat();
    [b"\x80\x04", &texts[..], b"."].concat().into()
}

/// The value of a whole marker or shard.
fn value_in(body: &[u8]) -> Option<Value> {
    let tail = body.strip_suffix(b".").and_then(|body| body.last_chunk::<12>());
    let text = tail.and_then(|tail| std::str::from_utf8(tail).ok());
    let value = text.and_then(|text| text.trim_start().parse().ok()).map(Value);
    value.filter(|value| marker_of(*value) == body).or_else(|| value_of(body))
}

/// Folder of a set in the view.
fn folder_of(set: &str, number: Option<u64>) -> String {
    match number {
        None => set.to_owned(),
        Some(number) => format!("{}@{number}/", set.trim_end_matches('/')),
    }
}

/// Reply in the header of a marker's write.
fn outcome_of(header: &str) -> SetReply {
    let (state, rest) = header.split_once("; ").unwrap_or((header, ""));
    let number = rest.strip_prefix("generation=");
    let number = number.and_then(|rest| rest.split(';').next()).and_then(|it| it.parse().ok());
    match (state, number) {
        ("committed", Some(number)) => SetReply::Committed(number),
        ("pending", number) => SetReply::Pending(number),
        ("refused", _) => SetReply::Refused,
        _ => panic!("the outcome of a marker is {header:?}"),
    }
}

impl SetRecorder {
    /// Makes a recorder for a bucket whose sets have two shards and a marker. Of these series so many
    /// generations are kept.
    pub fn new(bucket: &str, series: &[&str], keep: usize) -> Arc<Self> {
        let keep = series.iter().map(|series| ((*series).to_owned(), keep)).collect();
        let named = SHARDS.map(str::to_owned).to_vec();
        Arc::new(Self {
            begun: Instant::now(),
            bucket: bucket.to_owned(),
            rules: SetRules { marker: MARKER.to_owned(), named, keep },
            values: AtomicU64::new(1),
            clients: AtomicU32::new(1),
            objects: Mutex::default(),
            sets: Mutex::default(),
            etags: Mutex::default(),
        })
    }

    /// Returns a client of one of several proxies.
    pub fn client(self: &Arc<Self>, endpoints: &[SocketAddr], proxy: usize) -> SetClient {
        let proxy = proxy % endpoints.len();
        SetClient {
            recorder: self.clone(),
            number: self.clients.fetch_add(1, Ordering::Relaxed),
            endpoints: endpoints.to_vec(),
            proxy,
            s3: S3::new(endpoints[proxy]),
            is_loyal: false,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }

    /// Number of requests that were answered `committed`.
    pub fn commits(&self) -> usize {
        let sets = self.sets.lock();
        sets.iter().filter(|it| matches!(it.reply, SetReply::Committed(_))).count()
    }

    /// Checks all that was recorded, and prints counts.
    pub fn check(&self) {
        let begun = Instant::now();
        let bucket = History { operations: self.objects.lock().clone() };
        let sets = SetHistory { rules: self.rules.clone(), operations: self.sets.lock().clone() };
        checkers::sets::check(&sets, &bucket.firm()).unwrap_or_else(|it| panic!("{it}"));
        checkers::check(&bucket).unwrap_or_else(|it| panic!("{it}"));
        let count =
            |is: fn(&SetReply) -> bool| sets.operations.iter().filter(|it| is(&it.reply)).count();
        println!(
            "{} requests on objects and {} on sets are right: {} committed, {} pending, {} refused, {} \
             listings and {} objects of the view, {} open; looking took {:?}",
            bucket.operations.len(),
            sets.operations.len(),
            count(|it| matches!(it, SetReply::Committed(_))),
            count(|it| matches!(it, SetReply::Pending(_))),
            count(|it| matches!(it, SetReply::Refused)),
            count(|it| matches!(it, SetReply::Listed(objects) if !objects.is_empty())),
            count(|it| matches!(it, SetReply::Found(_))),
            count(|it| matches!(it, SetReply::Unknown)),
            begun.elapsed(),
        );
    }
}

impl SetClient {
    async fn send(&mut self, method: &str, target: &str, body: Bytes) -> Result<Reply, LostReply> {
        // Degraded replies would prove nothing (rule A1).
        let headers = [("x-martlet-consistency", "strict")];
        let sent = self.s3.send_with(method, target, &headers, body);
        let reply = match timeout(PATIENCE, sent).await {
            Ok(reply) => reply,
            Err(_) => Err("no answer in time".to_owned()),
        };
        if reply.is_err() {
            if !self.is_loyal {
                self.proxy = (self.proxy + 1) % self.endpoints.len();
            }
            self.s3 = S3::new(self.endpoints[self.proxy]);
            sleep(Duration::from_millis(20)).await;
        }
        reply
    }

    fn note(&self, key: &str, call: Invocation, invoked_at: u64, outcome: Response) {
        let (client, key, returned_at) = (self.number, key.to_owned(), self.recorder.now());
        let given = AchievedLevel::Quorum;
        let operation = Operation { client, key, call, invoked_at, returned_at, outcome, given };
        self.recorder.objects.lock().push(operation);
    }

    fn note_set(&self, set: &str, call: SetCall, invoked_at: u64, reply: SetReply) -> SetReply {
        let (client, set, returned_at) = (self.number, set.to_owned(), self.recorder.now());
        let result = reply.clone();
        let operation = SetOperation { client, set, call, invoked_at, returned_at, reply };
        self.recorder.sets.lock().push(operation);
        result
    }

    fn target(&self, key: &str) -> String {
        format!("/{}/{}", self.recorder.bucket, encoded(key))
    }

    /// Writes an object; returns the reply if it was stored.
    async fn put(&mut self, key: &str, value: Value, body: Bytes) -> Option<Reply> {
        let md5 = hex::encode(Md5::digest(&body));
        self.recorder.etags.lock().insert(md5, value);
        let (target, invoked_at) = (self.target(key), self.recorder.now());
        let reply = self.send("PUT", &target, body).await;
        let (outcome, reply) = match reply {
            Ok(reply) if reply.status == 200 => (Response::Done, Some(reply)),
            Ok(reply) if reply.status < 500 => panic!("{key}: {} {}", reply.status, reply.text()),
            _ => (Response::Unknown, None),
        };
        self.note(key, Invocation::Put(value), invoked_at, outcome);
        reply
    }

    fn value(&self) -> Value {
        Value(self.recorder.values.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes a shard of so many bytes.
    pub async fn put_shard(&mut self, key: &str, length: usize) -> Option<(Value, String, usize)> {
        let value = self.value();
        let body = body_of(value, length);
        let size = body.len();
        let reply = self.put(key, value, body).await?;
        Some((value, reply.header("etag").to_owned(), size))
    }

    /// Writes the marker of a set.
    pub async fn put_marker(&mut self, set: &str) -> SetReply {
        let (value, invoked_at) = (self.value(), self.recorder.now());
        let key = format!("{set}{MARKER}");
        let reply = match self.put(&key, value, marker_of(value)).await {
            Some(reply) => outcome_of(reply.header("x-martlet-checkpoint")),
            None => SetReply::Unknown,
        };
        self.note_set(set, SetCall::Marker(value), invoked_at, reply)
    }

    /// Saves a set in an order; returns the reply to its marker.
    pub async fn save(&mut self, set: &str, length: usize, order: UploadOrder) -> SetReply {
        let shards = SHARDS.map(|name| format!("{set}{name}"));
        match order {
            UploadOrder::MarkerLast => {
                for shard in &shards {
                    self.put_shard(shard, length).await;
                }
                self.put_marker(set).await
            }
            UploadOrder::ByName => {
                let reply = self.put_marker(set).await;
                for shard in &shards {
                    self.put_shard(shard, length).await;
                }
                reply
            }
            UploadOrder::Backwards => {
                for shard in shards.iter().rev() {
                    self.put_shard(shard, length).await;
                }
                self.put_marker(set).await
            }
            UploadOrder::AtOnce => {
                let client = |by| self.recorder.client(&self.endpoints, self.proxy + by);
                let (mut one, mut other) = (client(0), client(1));
                let (_, _, reply) = futures::join!(
                    one.put_shard(&shards[0], length),
                    other.put_shard(&shards[1], length),
                    self.put_marker(set)
                );
                reply
            }
        }
    }

    /// Deletes an object of the bucket.
    pub async fn delete(&mut self, key: &str) {
        let (target, invoked_at) = (self.target(key), self.recorder.now());
        let outcome = match self.send("DELETE", &target, Bytes::new()).await {
            Ok(reply) if reply.status == 204 => Response::Done,
            Ok(reply) if reply.status < 500 => panic!("{key}: {} {}", reply.status, reply.text()),
            _ => Response::Unknown,
        };
        self.note(key, Invocation::Delete, invoked_at, outcome);
    }

    /// Reads an object of the bucket.
    pub async fn get(&mut self, key: &str) {
        let (target, invoked_at) = (self.target(key), self.recorder.now());
        let outcome = match self.send("GET", &target, Bytes::new()).await {
            Ok(reply) if reply.status == 200 => Response::Read(Some(whole(key, &reply))),
            Ok(reply) if reply.status == 404 => Response::Read(None),
            Ok(reply) if reply.status < 500 => panic!("{key}: {} {}", reply.status, reply.text()),
            _ => Response::Failed,
        };
        self.note(key, Invocation::Get, invoked_at, outcome);
    }

    /// Lists a set in the view: a generation, or the newest.
    pub async fn list_view(&mut self, set: &str, number: Option<u64>) -> SetReply {
        let folder = folder_of(set, number);
        let bucket = &self.recorder.bucket;
        let target =
            format!("/{bucket}--committed?list-type=2&max-keys=1000&prefix={}", encoded(&folder));
        let invoked_at = self.recorder.now();
        let reply = match self.send("GET", &target, Bytes::new()).await {
            Ok(reply) if reply.status == 200 => SetReply::Listed(self.listed(&folder, &reply)),
            Ok(reply) if reply.status < 500 => panic!("{folder}: {}", reply.text()),
            _ => SetReply::Unknown,
        };
        self.note_set(set, SetCall::List(number), invoked_at, reply)
    }

    fn listed(&self, folder: &str, reply: &Reply) -> Objects {
        let etags = self.recorder.etags.lock();
        let value = |etag: &String| {
            let md5 = etag.replace("&quot;", "").replace('"', "");
            etags.get(&md5).copied().unwrap_or_else(|| panic!("{md5} is nobody's"))
        };
        let rest = |key: &String| key.strip_prefix(folder).expect("it was asked for").to_owned();
        let (keys, values) = (reply.all("Key"), reply.all("ETag"));
        keys.iter().map(rest).zip(values.iter().map(value)).collect()
    }

    /// Reads an object of a set in the view.
    pub async fn get_view(&mut self, set: &str, rest: &str, generation: Option<u64>) -> SetReply {
        let key = format!("{}{rest}", folder_of(set, generation));
        let target = format!("/{}--committed/{}", self.recorder.bucket, encoded(&key));
        let invoked_at = self.recorder.now();
        let reply = match self.send("GET", &target, Bytes::new()).await {
            Ok(reply) if reply.status == 200 => SetReply::Found(whole(&key, &reply)),
            Ok(reply) if reply.status == 404 => SetReply::Absent,
            Ok(reply) if reply.status < 500 => panic!("{key}: {} {}", reply.status, reply.text()),
            Ok(reply) if reply.text().contains(GONE) => SetReply::Gone,
            _ => SetReply::Unknown,
        };
        let call = SetCall::Get { rest: rest.to_owned(), generation };
        self.note_set(set, call, invoked_at, reply)
    }

    /// Numbers of a set's committed generations.
    pub async fn numbers(&mut self, set: &str) -> Vec<u64> {
        let target = format!("/{}?checkpoint={}", self.recorder.bucket, encoded(set));
        let reply = self.send("GET", &target, Bytes::new()).await;
        let Some(reply) = reply.ok().filter(|reply| reply.status == 200) else { return Vec::new() };
        let state: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        let all = state["generations"].as_array().cloned().unwrap_or_default();
        let committed = all.iter().filter(|it| it["state"] == "committed");
        committed.filter_map(|it| it["generation"].as_u64()).collect()
    }

    /// Publishes objects of a folder that no rule covers as a set.
    pub async fn publish(&mut self, folder: &str, set: &str, length: usize) {
        let (mut objects, mut named) = (Objects::new(), Vec::new());
        for name in SHARDS {
            let key = format!("{folder}{name}");
            let Some((value, etag, size)) = self.put_shard(&key, length).await else { return };
            objects.insert(name.to_owned(), value);
            named.push(serde_json::json!({"key": key, "etag": etag, "size": size}));
        }
        let target =
            format!("/{}?as={}&checkpoint={}", self.recorder.bucket, encoded(set), encoded(folder));
        let invoked_at = self.recorder.now();
        let document = serde_json::to_vec(&named).unwrap();
        let reply = match self.send("POST", &target, document.into()).await {
            Ok(reply) if reply.status == 200 => outcome_of(reply.header("x-martlet-checkpoint")),
            // Another client writes the folder.
            Ok(reply) if reply.status == 409 => SetReply::Refused,
            Ok(reply) if reply.status < 500 => panic!("{set}: {} {}", reply.status, reply.text()),
            _ => SetReply::Unknown,
        };
        self.note_set(set, SetCall::Commit(objects), invoked_at, reply);
    }

    /// Withdraws a generation.
    pub async fn withdraw(&mut self, set: &str, number: u64) {
        let bucket = &self.recorder.bucket;
        let target = format!("/{bucket}?checkpoint={}&generation={number}", encoded(set));
        let invoked_at = self.recorder.now();
        let reply = match self.send("DELETE", &target, Bytes::new()).await {
            Ok(reply) if reply.text().contains("\"withdrawn\":1") => SetReply::Done,
            _ => SetReply::Unknown,
        };
        self.note_set(set, SetCall::Withdraw(Some(number)), invoked_at, reply);
    }

    /// Holds a generation for an hour.
    pub async fn hold(&mut self, set: &str, number: u64) {
        let bucket = &self.recorder.bucket;
        let target = format!("/{bucket}?checkpoint={}&generation={number}&hold=3600", encoded(set));
        let invoked_at = self.recorder.now();
        let reply = match self.send("PUT", &target, Bytes::new()).await {
            Ok(reply) if reply.status == 200 => SetReply::Done,
            _ => SetReply::Unknown,
        };
        self.note_set(set, SetCall::Hold(number), invoked_at, reply);
    }

    /// Deletes noncurrent versions below a prefix for good. Pinned ones are refused. Returns the
    /// number of both.
    pub async fn purge(&mut self, prefix: &str) -> (usize, usize) {
        let bucket = self.recorder.bucket.clone();
        let target = format!("/{bucket}?prefix={}&versions=", encoded(prefix));
        let Ok(reply) = self.send("GET", &target, Bytes::new()).await else { return (0, 0) };
        let (mut deleted, mut refused) = (0, 0);
        for version in reply.all("Version") {
            let part = |name: &str| {
                let (_, rest) = version.split_once(&format!("<{name}>"))?;
                rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_owned())
            };
            if part("IsLatest").as_deref() != Some("false") {
                continue;
            }
            let (Some(key), Some(id)) = (part("Key"), part("VersionId")) else { continue };
            let target = format!("{}?versionId={}", self.target(&key), encoded(&id));
            match self.send("DELETE", &target, Bytes::new()).await {
                Ok(reply) if reply.status == 204 => deleted += 1,
                Ok(reply) if reply.status == 403 => refused += 1,
                _ => {}
            }
        }
        (deleted, refused)
    }
}

/// The value of a whole body; another body fails the test.
fn whole(key: &str, reply: &Reply) -> Value {
    let length = reply.body.len();
    value_in(&reply.body).unwrap_or_else(|| panic!("{key}: {length} bytes of no value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_and_shards_name_their_values() {
        assert_eq!(value_in(&marker_of(Value(7))), Some(Value(7)));
        assert_eq!(value_in(&marker_of(Value(7))[1..]), None);
        assert_eq!(value_in(&body_of(Value(7), 30)), Some(Value(7)));
    }

    #[test]
    fn outcomes_are_read_from_the_header() {
        for (header, reply) in [
            ("committed; generation=4", SetReply::Committed(4)),
            ("pending; generation=2; reason=\"x\"", SetReply::Pending(Some(2))),
            ("pending; reason=\"generation=3;\"", SetReply::Pending(None)),
            ("refused; reason=\"x\"", SetReply::Refused),
        ] {
            assert_eq!(outcome_of(header), reply, "{header}");
        }
    }
}
