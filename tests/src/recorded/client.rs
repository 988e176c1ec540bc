//! A recorded client: one connection, its calls, and the interpretation of replies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use martlet_protocol::consistency::AchievedLevel;
use tokio::time::{sleep, timeout};

use super::bodies::{body_of, value_of};
use super::recorder::{RecordedOperation, Recorder};
use super::write_methods::{WriteAttempt, WriteMethod};
use crate::checkers::{Invocation, Listing, Operation, Response, Value};
use crate::cluster::TestCluster;
use crate::s3::{LostReply, Reply, S3, encoded};

/// Maximum time to wait for a reply.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of keys of a listing page.
const PAGE: usize = 1000;

/// A client of one proxy, which changes to the next proxy when a connection fails.
pub struct RecordedClient {
    recorder: Arc<Recorder>,
    number: u32,
    endpoints: Vec<SocketAddr>,
    proxy: usize,
    s3: S3,
    /// True if the client stays with its proxy after a failed connection.
    pub is_loyal: bool,
    /// Way in which the client writes.
    pub way: WriteMethod,
    /// Timeout of a request.
    pub patience: Duration,
    /// Bytes of the bodies that the client writes, without their names.
    pub length: usize,
    /// Headers of every request, such as `x-martlet-consistency`.
    pub headers: Vec<(String, String)>,
    /// The last reply.
    pub reply: Option<Reply>,
}

impl Recorder {
    /// Returns a client of one of a cluster's proxies.
    pub fn client(self: &Arc<Self>, cluster: &TestCluster, proxy: usize) -> RecordedClient {
        let number = self.next_client();
        let endpoints = cluster.endpoints();
        RecordedClient::new(self.clone(), number, &endpoints, proxy % endpoints.len())
    }
}

impl RecordedClient {
    fn new(recorder: Arc<Recorder>, number: u32, endpoints: &[SocketAddr], proxy: usize) -> Self {
        Self {
            recorder,
            number,
            endpoints: endpoints.to_vec(),
            proxy,
            s3: S3::new(endpoints[proxy]),
            is_loyal: false,
            way: WriteMethod::default(),
            patience: PATIENCE,
            length: 100,
            headers: Vec::new(),
            reply: None,
        }
    }

    /// Requests a consistency level from now on.
    #[must_use]
    pub fn at_level(mut self, level: &str) -> Self {
        self.headers.retain(|(name, _)| name != "x-martlet-consistency");
        self.headers.push(("x-martlet-consistency".to_owned(), level.to_owned()));
        self
    }

    /// Status of the last reply; 0 without a reply.
    pub fn status(&self) -> u16 {
        self.reply.as_ref().map_or(0, |reply| reply.status)
    }

    /// Returns a header of the last reply; empty if absent.
    pub fn header(&self, name: &str) -> String {
        self.reply.as_ref().map_or(String::new(), |reply| reply.header(name).to_owned())
    }

    /// Writes a new value unconditionally.
    pub async fn put(&mut self, key: &str) -> (Value, Response) {
        let value = self.recorder.next_value();
        (value, self.call(key, Invocation::Put(value)).await)
    }

    /// Writes a new value if the key is absent.
    pub async fn create(&mut self, key: &str) -> (Value, Response) {
        let value = self.recorder.next_value();
        (value, self.call(key, Invocation::Create(value)).await)
    }

    /// Writes a new value if the key has the value `expected`. The recorder must know its `ETag`.
    pub async fn replace(&mut self, key: &str, expected: Value) -> (Value, Response) {
        let value = self.recorder.next_value();
        (value, self.call(key, Invocation::Replace { expected, value }).await)
    }

    /// Deletes a key unconditionally.
    pub async fn delete(&mut self, key: &str) -> Response {
        self.call(key, Invocation::Delete).await
    }

    /// Deletes a key if it has the value `expected`. The recorder must know its `ETag`.
    pub async fn delete_if(&mut self, key: &str, expected: Value) -> Response {
        self.call(key, Invocation::DeleteIf(expected)).await
    }

    /// Reads a key.
    pub async fn get(&mut self, key: &str) -> Response {
        self.call(key, Invocation::Get).await
    }

    /// Reads until there is a reply; each attempt is recorded. Panics after 40 s.
    pub async fn get_surely(&mut self, key: &str) -> Option<Value> {
        let begun = Instant::now();
        loop {
            if let Response::Read(value) = self.get(key).await {
                return value;
            }
            let reply = self.reply.as_ref().map(Reply::text);
            assert!(begun.elapsed() < 2 * PATIENCE, "{key} can't be read: {reply:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns true if the `ETag` of a value is known, so that conditions can name it.
    pub fn knows(&self, value: Value) -> bool {
        self.recorder.etag(value).is_some()
    }

    async fn call(&mut self, key: &str, call: Invocation) -> Response {
        let target = format!("/{}/{}", self.recorder.bucket(), encoded(key));
        let method = match call {
            Invocation::Get => "GET",
            Invocation::Delete | Invocation::DeleteIf(_) | Invocation::DeleteIfThere(_) => "DELETE",
            _ => "PUT",
        };
        let body = call.writes().map(|value| body_of(value, self.length)).unwrap_or_default();
        let condition = self.condition(&call);
        let invoked_at = self.recorder.now();
        let written = match call.writes() {
            Some(value) => self.write(&target, &value.to_string(), condition, body).await,
            None => WriteAttempt::Answered(self.send(method, &target, condition, body).await),
        };
        let (reply, outcome) = match written {
            WriteAttempt::NotBegun => (Err("it did not begin".to_owned()), Response::Failed),
            WriteAttempt::Answered(reply) => {
                let outcome = match &reply {
                    Ok(reply) if call == Invocation::Get => self.read(key, reply),
                    Ok(reply) => self.written(&call, reply),
                    Err(_) => Response::Unknown,
                };
                (reply, outcome)
            }
        };
        self.record(key, call, invoked_at, outcome.clone(), reply, Vec::new()).await;
        outcome
    }

    fn condition(&self, call: &Invocation) -> Option<(String, String)> {
        match call {
            Invocation::Create(_) => Some(("if-none-match".to_owned(), "*".to_owned())),
            Invocation::Replace { expected, .. }
            | Invocation::DeleteIf(expected)
            | Invocation::DeleteIfThere(expected) => {
                let etag = self.recorder.etag(*expected);
                Some(("if-match".to_owned(), etag.expect("the ETag was seen before")))
            }
            _ => None,
        }
    }

    pub(super) async fn send(
        &mut self,
        method: &str,
        target: &str,
        more: impl IntoIterator<Item = (String, String)>,
        body: Bytes,
    ) -> Result<Reply, LostReply> {
        let more: Vec<(String, String)> = more.into_iter().collect();
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .chain(&more)
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let sent = self.s3.send_with(method, target, &headers, body);
        match timeout(self.patience, sent).await {
            Ok(reply) => reply,
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    fn read(&self, key: &str, reply: &Reply) -> Response {
        match reply.status {
            200 => {
                let value = value_of(&reply.body);
                let length = reply.body.len();
                let value = value.unwrap_or_else(|| panic!("{key}: {length} bytes of no value"));
                self.recorder.learn(reply.header("etag"), value);
                Response::Read(Some(value))
            }
            404 => Response::Read(None),
            500 | 503 => Response::Unknown,
            status => panic!("{key}: {status} {}", reply.text()),
        }
    }

    fn written(&self, call: &Invocation, reply: &Reply) -> Response {
        match reply.status {
            200 | 204 => {
                if let Some(value) = call.writes() {
                    self.recorder.learn(reply.header("etag"), value);
                }
                Response::Done
            }
            412 | 404 if is_conditional(call) => Response::Refused,
            // The key was being changed; the reply does not contain its state.
            409 if is_conditional(call) => Response::Failed,
            500 | 503 => Response::Unknown,
            status => panic!("{call}: {status} {}", reply.text()),
        }
    }

    async fn record(
        &mut self,
        key: &str,
        call: Invocation,
        invoked_at: u64,
        outcome: Response,
        reply: Result<Reply, LostReply>,
        listed: Vec<(String, String)>,
    ) {
        let given = reply.as_ref().map_or(AchievedLevel::Quorum, |reply| given(reply, &outcome));
        let (client, key, returned_at) = (self.number, key.to_owned(), self.recorder.now());
        let operation = Operation { client, key, call, invoked_at, returned_at, outcome, given };
        self.recorder.record(RecordedOperation { operation, listed });
        if reply.is_err() {
            self.reconnect().await;
        }
        self.reply = reply.ok();
    }

    /// Reconnects, to the next proxy unless the client is loyal.
    async fn reconnect(&mut self) {
        if !self.is_loyal {
            self.proxy = (self.proxy + 1) % self.endpoints.len();
        }
        self.s3 = S3::new(self.endpoints[self.proxy]);
        sleep(Duration::from_millis(20)).await;
    }

    /// Requests one page of a listing.
    pub async fn list(&mut self, prefix: &str, after: &str, keys_max: usize) -> Response {
        let target = format!(
            "/{}?list-type=2&max-keys={keys_max}&prefix={}&start-after={}",
            self.recorder.bucket(),
            encoded(prefix),
            encoded(after)
        );
        let invoked_at = self.recorder.now();
        let reply = self.send("GET", &target, None, Bytes::new()).await;
        let (mut outcome, mut listed) = (Response::Unknown, Vec::new());
        if let Ok(reply) = reply.as_ref().as_ref()
            && reply.status == 200
        {
            let truncated = reply.all("IsTruncated") == ["true"];
            let after = after.to_owned();
            outcome = Response::Listed(Listing { after, truncated, ..Listing::default() });
            let etags = reply.all("ETag").into_iter().map(|etag| etag.replace("&quot;", "\""));
            listed = reply.all("Key").into_iter().zip(etags).collect();
            assert_eq!(listed.len(), reply.all("Key").len(), "{}", reply.text());
        }
        let result = outcome.clone();
        self.record(prefix, Invocation::List, invoked_at, outcome, reply, listed).await;
        result
    }

    /// Requests all pages of a listing; pages without a reply are requested again. Panics after 40
    /// s.
    pub async fn list_all(&mut self, prefix: &str) -> Vec<String> {
        let (begun, mut keys) = (Instant::now(), Vec::<String>::new());
        loop {
            let after = keys.last().cloned().unwrap_or_default();
            if let Response::Listed(page) = self.list(prefix, &after, PAGE).await {
                keys.extend(self.reply.as_ref().map(|reply| reply.all("Key")).unwrap_or_default());
                if !page.truncated {
                    return keys;
                }
            }
            assert!(begun.elapsed() < 2 * PATIENCE, "{prefix:?} can't be listed");
        }
    }
}

/// Returns the consistency of a reply. An answer without the header would promise nothing, so it
/// panics.
fn given(reply: &Reply, outcome: &Response) -> AchievedLevel {
    let all = [AchievedLevel::Quorum, AchievedLevel::Any, AchievedLevel::Degraded];
    let header = reply.header("x-martlet-consistency");
    let found = all.into_iter().find(|given| given.name() == header);
    let is_answer = !matches!(outcome, Response::Unknown | Response::Failed);
    let status = reply.status;
    assert!(found.is_some() || !is_answer, "{status} without x-martlet-consistency: {header:?}");
    found.unwrap_or_default()
}

/// Returns true for a conditional write.
fn is_conditional(call: &Invocation) -> bool {
    !call.is_plain() && call.leaves().is_some()
}
