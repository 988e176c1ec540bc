//! One recorded client: a connection, the calls, and what their answers mean.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use martlet_protocol::consistency::Given;
use tokio::time::{sleep, timeout};

use super::ways::{Way, Written};
use super::{PATIENCE, Recorded, Recorder, body_of, is_conditional, value_of};
use crate::checkers::{Call, Listing, Operation, Outcome, Value};
use crate::s3::{Lost, Reply, S3, encoded};

/// Keys that a page of a listing has at most.
const PAGE: usize = 1000;

/// A client of one proxy, or of another when that one is gone.
pub struct Client {
    recorder: Arc<Recorder>,
    number: u32,
    endpoints: Vec<SocketAddr>,
    proxy: usize,
    s3: S3,
    /// Whether it stays with its proxy when that one does not answer.
    pub is_loyal: bool,
    /// How it writes.
    pub way: Way,
    /// How long it waits for an answer.
    pub patience: Duration,
    /// Bytes of the bodies that it writes, beside their names.
    pub length: usize,
    /// Headers of every request, such as `x-martlet-consistency`.
    pub headers: Vec<(String, String)>,
    /// The last reply.
    pub reply: Option<Reply>,
}

impl Client {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        number: u32,
        endpoints: &[SocketAddr],
        proxy: usize,
    ) -> Self {
        Self {
            recorder,
            number,
            endpoints: endpoints.to_vec(),
            proxy,
            s3: S3::new(endpoints[proxy]),
            is_loyal: false,
            way: Way::default(),
            patience: PATIENCE,
            length: 100,
            headers: Vec::new(),
            reply: None,
        }
    }

    /// Asks for a level of consistency from now on.
    #[must_use]
    pub fn at_level(mut self, level: &str) -> Self {
        self.headers.retain(|(name, _)| name != "x-martlet-consistency");
        self.headers.push(("x-martlet-consistency".to_owned(), level.to_owned()));
        self
    }

    /// The status of the last reply; 0 where there was none.
    pub fn status(&self) -> u16 {
        self.reply.as_ref().map_or(0, |reply| reply.status)
    }

    /// A header of the last reply.
    pub fn header(&self, name: &str) -> String {
        self.reply.as_ref().map_or(String::new(), |reply| reply.header(name).to_owned())
    }

    /// A plain write; the value that it has.
    pub async fn put(&mut self, key: &str) -> (Value, Outcome) {
        let value = self.recorder.next_value();
        (value, self.call(key, Call::Put(value)).await)
    }

    /// A write if nothing is there.
    pub async fn create(&mut self, key: &str) -> (Value, Outcome) {
        let value = self.recorder.next_value();
        (value, self.call(key, Call::Create(value)).await)
    }

    /// A write if this value is there. Its `ETag` must be known.
    pub async fn replace(&mut self, key: &str, expected: Value) -> (Value, Outcome) {
        let value = self.recorder.next_value();
        (value, self.call(key, Call::Replace { expected, value }).await)
    }

    /// A plain delete.
    pub async fn delete(&mut self, key: &str) -> Outcome {
        self.call(key, Call::Delete).await
    }

    /// A delete if this value is there. Its `ETag` must be known.
    pub async fn delete_if(&mut self, key: &str, expected: Value) -> Outcome {
        self.call(key, Call::DeleteIf(expected)).await
    }

    /// A read.
    pub async fn get(&mut self, key: &str) -> Outcome {
        self.call(key, Call::Get).await
    }

    /// Reads until there is an answer; each try is recorded.
    pub async fn get_surely(&mut self, key: &str) -> Option<Value> {
        let begun = Instant::now();
        loop {
            if let Outcome::Read(value) = self.get(key).await {
                return value;
            }
            let reply = self.reply.as_ref().map(Reply::text);
            assert!(begun.elapsed() < 2 * PATIENCE, "{key} can't be read: {reply:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whether the `ETag` of a value is known, so that conditions can name it.
    pub fn knows(&self, value: Value) -> bool {
        self.recorder.etag(value).is_some()
    }

    async fn call(&mut self, key: &str, call: Call) -> Outcome {
        let target = format!("/{}/{}", self.recorder.bucket, encoded(key));
        let method = match call {
            Call::Get => "GET",
            Call::Delete | Call::DeleteIf(_) | Call::DeleteIfThere(_) => "DELETE",
            _ => "PUT",
        };
        let body = call.writes().map(|value| body_of(value, self.length)).unwrap_or_default();
        let condition = self.condition(&call);
        let invoked_at = self.recorder.now();
        let written = match call.writes() {
            Some(value) => self.write(&target, &value.to_string(), condition, body).await,
            None => Written::Answered(self.send(method, &target, condition, body).await),
        };
        let (reply, outcome) = match written {
            Written::NotBegun => (Err("it did not begin".to_owned()), Outcome::Failed),
            Written::Answered(reply) => {
                let outcome = match &reply {
                    Ok(reply) if call == Call::Get => self.read(key, reply),
                    Ok(reply) => self.written(&call, reply),
                    Err(_) => Outcome::Unknown,
                };
                (reply, outcome)
            }
        };
        self.record(key, call, invoked_at, outcome.clone(), reply, Vec::new()).await;
        outcome
    }

    fn condition(&self, call: &Call) -> Option<(String, String)> {
        match call {
            Call::Create(_) => Some(("if-none-match".to_owned(), "*".to_owned())),
            Call::Replace { expected, .. }
            | Call::DeleteIf(expected)
            | Call::DeleteIfThere(expected) => {
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
    ) -> Result<Reply, Lost> {
        let more: Vec<(String, String)> = more.into_iter().collect();
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .chain(&more)
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let asked = self.s3.send_with(method, target, &headers, body);
        match timeout(self.patience, asked).await {
            Ok(reply) => reply,
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    fn read(&self, key: &str, reply: &Reply) -> Outcome {
        match reply.status {
            200 => {
                let value = value_of(&reply.body);
                let length = reply.body.len();
                let value = value.unwrap_or_else(|| panic!("{key}: {length} bytes of no value"));
                self.recorder.learn(reply.header("etag"), value);
                Outcome::Read(Some(value))
            }
            404 => Outcome::Read(None),
            500 | 503 => Outcome::Unknown,
            status => panic!("{key}: {status} {}", reply.text()),
        }
    }

    fn written(&self, call: &Call, reply: &Reply) -> Outcome {
        match reply.status {
            200 | 204 => {
                if let Some(value) = call.writes() {
                    self.recorder.learn(reply.header("etag"), value);
                }
                Outcome::Done
            }
            412 | 404 if is_conditional(call) => Outcome::Refused,
            // It says that the key was being changed, and not what is there.
            409 if is_conditional(call) => Outcome::Failed,
            500 | 503 => Outcome::Unknown,
            status => panic!("{call}: {status} {}", reply.text()),
        }
    }

    async fn record(
        &mut self,
        key: &str,
        call: Call,
        invoked_at: u64,
        outcome: Outcome,
        reply: Result<Reply, Lost>,
        listed: Vec<(String, String)>,
    ) {
        let given = reply.as_ref().map_or(Given::Quorum, |reply| given(reply, &outcome));
        let (client, key, returned_at) = (self.number, key.to_owned(), self.recorder.now());
        let operation = Operation { client, key, call, invoked_at, returned_at, outcome, given };
        self.recorder.record(Recorded { operation, listed });
        if reply.is_err() {
            self.reconnect().await;
        }
        self.reply = reply.ok();
    }

    /// Goes on with another proxy, if it may.
    async fn reconnect(&mut self) {
        if !self.is_loyal {
            self.proxy = (self.proxy + 1) % self.endpoints.len();
        }
        self.s3 = S3::new(self.endpoints[self.proxy]);
        sleep(Duration::from_millis(20)).await;
    }

    /// One page of a listing.
    pub async fn list(&mut self, prefix: &str, after: &str, keys_max: usize) -> Outcome {
        let target = format!(
            "/{}?list-type=2&max-keys={keys_max}&prefix={}&start-after={}",
            self.recorder.bucket,
            encoded(prefix),
            encoded(after)
        );
        let invoked_at = self.recorder.now();
        let reply = self.send("GET", &target, None, Bytes::new()).await;
        let (mut outcome, mut listed) = (Outcome::Unknown, Vec::new());
        if let Ok(reply) = reply.as_ref().as_ref()
            && reply.status == 200
        {
            let truncated = reply.all("IsTruncated") == ["true"];
            let after = after.to_owned();
            outcome = Outcome::Listed(Listing { after, truncated, ..Listing::default() });
            let etags = reply.all("ETag").into_iter().map(|etag| etag.replace("&quot;", "\""));
            listed = reply.all("Key").into_iter().zip(etags).collect();
            assert_eq!(listed.len(), reply.all("Key").len(), "{}", reply.text());
        }
        let result = outcome.clone();
        self.record(prefix, Call::List, invoked_at, outcome, reply, listed).await;
        result
    }

    /// All pages of a listing; pages that are not answered are asked for again.
    pub async fn list_all(&mut self, prefix: &str) -> Vec<String> {
        let (begun, mut keys) = (Instant::now(), Vec::<String>::new());
        loop {
            let after = keys.last().cloned().unwrap_or_default();
            if let Outcome::Listed(page) = self.list(prefix, &after, PAGE).await {
                keys.extend(self.reply.as_ref().map(|reply| reply.all("Key")).unwrap_or_default());
                if !page.truncated {
                    return keys;
                }
            }
            assert!(begun.elapsed() < 2 * PATIENCE, "{prefix:?} can't be listed");
        }
    }
}

/// What a reply rests on. An answer without the header would be a promise that nobody made.
fn given(reply: &Reply, outcome: &Outcome) -> Given {
    let all = [Given::Quorum, Given::Any, Given::Degraded];
    let header = reply.header("x-martlet-consistency");
    let found = all.into_iter().find(|given| given.name() == header);
    let is_answer = !matches!(outcome, Outcome::Unknown | Outcome::Failed);
    let status = reply.status;
    assert!(found.is_some() || !is_answer, "{status} without x-martlet-consistency: {header:?}");
    found.unwrap_or_default()
}
