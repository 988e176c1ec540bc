//! Clients of a simulation: each makes one call after the other through random proxies, and records
//! the outcomes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::entry::{Attributes, Marks, Object};
use martlet_protocol::{AchievedLevel, Level};
use martlet_proxy::{
    ConsistencyOptions, CopyObject, ETagCondition, ListObjects, ObjectRead, PutObject, ReadAfter,
    ReadConditions, Result, Selection, Session, WriteConditions, WrittenObject,
};
use martlet_tests::checkers::{Invocation, ListedKey, Listing, Response, Value};
use tokio::time::{Instant, sleep, sleep_until};

use super::chance::SharedRng;
use super::cluster::{SimulatedCluster, SimulatedProxy};
use super::load::{Loads, ObjectAction};
use super::payload;
use super::record::{BegunOperation, RunRecord};
use super::reduction::{OperationId, Reduction};
use super::versions::is_absence;

/// The bucket of every run.
pub(crate) const BUCKET: &str = "bucket";

/// Levels that clients request; mostly the bucket's default.
const LEVELS: [Option<Level>; 6] =
    [None, None, None, Some(Level::Strict), Some(Level::Available), Some(Level::Any)];

/// One client.
#[derive(Clone)]
pub(crate) struct SimulatedClient {
    pub(crate) number: u32,
    pub(crate) simulated: Arc<SimulatedCluster>,
    pub(crate) record: Arc<RunRecord>,
    pub(crate) chance: SharedRng,
    pub(crate) keys: Arc<[String]>,
    /// Timeout of every call.
    pub(crate) deadline: Duration,
    /// Level of all calls; random if `None`.
    pub(crate) level: Option<Level>,
    /// True if the bucket keeps versions.
    pub(crate) keeps_versions: bool,
    /// True if the bucket has checkpoint sets.
    pub(crate) has_sets: bool,
    /// Requests that all clients of the run make.
    pub(crate) loads: Arc<Loads>,
}

/// A proxy and a session with it.
pub(crate) struct ProxyRoute {
    pub(crate) proxy: Arc<SimulatedProxy>,
    pub(crate) session: Session,
    level: Option<Level>,
}

/// Attributes that contain the value.
pub(crate) fn attributes(value: Value) -> Attributes {
    let user_metadata = vec![("value".to_owned(), value.0.to_string())];
    Attributes { user_metadata, ..Attributes::default() }
}

/// Value of the write that made an object.
pub(crate) fn value_of(object: &Object) -> Option<Value> {
    let all = &object.attributes.user_metadata;
    let (_, value) = all.iter().find(|(name, _)| name == "value")?;
    value.parse().ok().map(Value)
}

/// Conditions of a call.
fn conditions(call: &Invocation, tag: Option<String>) -> WriteConditions {
    let if_match = tag.map(|tag| ETagCondition::OneOf(vec![tag]));
    let if_none_match = matches!(call, Invocation::Create(_)).then_some(ETagCondition::Any);
    WriteConditions { if_match, if_none_match }
}

impl SimulatedClient {
    /// Makes so many random calls, with pauses. Each has a generator of its own, and a time before
    /// which it doesn't begin, so that a call that is left out changes few others.
    pub(crate) async fn work(&self, operations: u64, pause_ms: u64, reduction: &Reduction) {
        let mut begins = Instant::now();
        for number in 0..operations {
            begins += Duration::from_millis(self.chance.below(pause_ms + 1));
            let one = Self { chance: self.chance.fork(), ..self.clone() };
            if reduction.has_operation(OperationId { client: self.number, number }) {
                sleep_until(begins).await;
                Box::pin(one.something()).await;
            }
        }
    }

    async fn something(&self) {
        if self.has_sets {
            return self.something_with_sets().await;
        }
        let key = self.keys[self.chance.index(self.keys.len())].clone();
        if self.keeps_versions && self.chance.per_mille(100) {
            return self.remove_an_old_version(key).await;
        }
        match self.loads.objects.pick(&self.chance) {
            ObjectAction::Put => self.put(key, Invocation::Put(self.record.value())).await,
            ObjectAction::Get => drop(self.get(key).await),
            ObjectAction::Delete => self.delete(key, Invocation::Delete).await,
            ObjectAction::Create => self.put(key, Invocation::Create(self.record.value())).await,
            ObjectAction::Replace => self.replace(key).await,
            ObjectAction::DeleteFound => self.delete_found(key).await,
            ObjectAction::List => self.list().await,
            ObjectAction::Upload => Box::pin(self.upload(key)).await,
            ObjectAction::Copy => self.copy(key).await,
        }
    }

    pub(crate) fn moment(&self) -> u64 {
        self.simulated.network.trace.moment()
    }

    pub(crate) fn begin(&self, key: &str, call: &Invocation) -> BegunOperation {
        let (client, key, call) = (self.number, key.to_owned(), call.clone());
        let invoked_at = self.moment();
        self.simulated.network.trace.note(format_args!("client {client} {key}: {call}"));
        BegunOperation { client, key, call, invoked_at }
    }

    /// Returns a random proxy with a session.
    pub(crate) fn route(&self, read_after: Option<ReadAfter>) -> ProxyRoute {
        let proxy = self.simulated.proxy(self.chance.index(self.simulated.proxies()));
        let chosen = self.chance.pick(&LEVELS);
        let level = self.level.or(chosen);
        let session = proxy.store.session(ConsistencyOptions { level, read_after });
        ProxyRoute { proxy, session, level }
    }

    /// Waits for the reply. Returns `None` when the proxy crashes, or after the deadline.
    pub(crate) async fn wait<T>(
        &self,
        route: &ProxyRoute,
        answer: impl Future<Output = Result<T>>,
    ) -> Option<Result<T>> {
        tokio::select! {
            biased;
            () = route.proxy.crashed() => None,
            answer = answer => Some(answer),
            () = sleep(self.deadline) => None,
        }
    }

    /// Consistency of a session's replies.
    pub(crate) fn given(&self, route: &ProxyRoute) -> AchievedLevel {
        let given = route.session.given();
        if route.level == Some(Level::Strict) && given != AchievedLevel::Quorum {
            self.record.surprise(format!("a strict request was given {given}"));
        }
        given
    }

    fn written(
        &self,
        begun: BegunOperation,
        route: &ProxyRoute,
        answer: Option<&Result<WrittenObject>>,
    ) {
        let returned_at = self.moment();
        let outcome = match answer {
            None => Response::Unknown,
            Some(Ok(written)) => {
                let value = begun.call.writes().expect("it is a write");
                self.record.tag(value, written.object.etag.to_string());
                // Rules may remove the versions of sets.
                if !self.has_sets {
                    self.record.versions.written(&begun.key, value, written);
                }
                self.note_token(route, &begun.key, written.stamp);
                Response::Done
            }
            Some(Err(error)) => self.record.failure(error, &begun.call),
        };
        self.record.operation(begun.end(returned_at, outcome, self.given(route)));
    }

    pub(crate) fn note_token(&self, route: &ProxyRoute, key: &str, stamp: martlet_protocol::Stamp) {
        self.record.token(key, route.session.token(BUCKET, key, stamp));
    }

    async fn put(&self, key: String, call: Invocation) {
        let value = call.writes().expect("a put writes");
        let body = payload::bytes(value, payload::size(&self.chance));
        self.put_body(key, call, body).await;
    }

    /// Writes a body that names its value.
    pub(crate) async fn put_body(
        &self,
        key: String,
        call: Invocation,
        body: Bytes,
    ) -> Option<WrittenObject> {
        let tag = match &call {
            Invocation::Replace { expected, .. } => self.record.tag_of(*expected),
            _ => None,
        };
        let value = call.writes().expect("a put writes");
        let put = PutObject {
            attributes: attributes(value),
            body: payload::incoming(body),
            conditions: conditions(&call, tag),
        };
        let route = self.route(None);
        let begun = self.begin(&key, &call);
        let put = Box::pin(route.session.put(BUCKET, &key, put));
        let answer = self.wait(&route, put).await;
        self.written(begun, &route, answer.as_ref());
        answer?.ok()
    }

    /// Deletes a key, whatever it has.
    pub(crate) async fn delete_at(&self, key: String) {
        self.delete(key, Invocation::Delete).await;
    }

    /// Reads a key, and replaces the value that it found.
    async fn replace(&self, key: String) {
        let Some(expected) = self.get(key.clone()).await else { return };
        if self.record.tag_of(expected).is_some() {
            sleep(Duration::from_millis(self.chance.below(100))).await;
            self.put(key, Invocation::Replace { expected, value: self.record.value() }).await;
        }
    }

    async fn delete_found(&self, key: String) {
        let Some(expected) = self.get(key.clone()).await else { return };
        if self.record.tag_of(expected).is_some() {
            let there = self.keeps_versions;
            let delete = if there { Invocation::DeleteIfThere } else { Invocation::DeleteIf };
            self.delete(key, delete(expected)).await;
        }
    }

    /// Deletes a key. A delete that finds nothing is recorded as a read.
    async fn delete(&self, key: String, call: Invocation) {
        let tag = match &call {
            Invocation::DeleteIf(expected) | Invocation::DeleteIfThere(expected) => {
                self.record.tag_of(*expected)
            }
            _ => None,
        };
        let conditions = conditions(&call, tag);
        let route = self.route(None);
        let mut begun = self.begin(&key, &call);
        let answer = self.wait(&route, route.session.delete(BUCKET, &key, &conditions)).await;
        let returned_at = self.moment();
        let outcome = match answer {
            None => Response::Unknown,
            Some(Ok(deleted)) if deleted.stamp.is_some() => Response::Done,
            Some(Ok(_)) => {
                begun.call = Invocation::Get;
                Response::Read(None)
            }
            Some(Err(error)) => self.record.failure(&error, &call),
        };
        self.record.operation(begun.end(returned_at, outcome, self.given(&route)));
    }

    /// Reads a key; returns the value that it found.
    pub(crate) async fn get(&self, key: String) -> Option<Value> {
        let tokens = self.record.tokens(&key);
        let after = (self.chance.per_mille(300) && !tokens.is_empty())
            .then(|| tokens[self.chance.index(tokens.len())]);
        let route = self.route(after.map(|(token, _)| token));
        let begun = self.begin(&key, &Invocation::Get);
        let answer = self.wait(&route, self.read(&route, &key)).await;
        let returned_at = self.moment();
        let (outcome, found) = match answer {
            Some(Ok((value, stamp))) => {
                if let Some((token, _)) = after.filter(|(token, _)| token.stamp > stamp) {
                    let said = format!("{key:?} at {stamp} was read after {token}");
                    self.record.surprise(said);
                }
                self.note_token(&route, &key, stamp);
                (Response::Read(Some(value)), Some(value))
            }
            Some(Err(error)) if is_absence(&error) => (Response::Read(None), None),
            Some(Err(error)) => {
                self.record.failure(&error, &Invocation::Get);
                (Response::Failed, None)
            }
            None => (Response::Failed, None),
        };
        self.record.operation(begun.end(returned_at, outcome, self.given(&route)));
        found
    }

    async fn read(
        &self,
        route: &ProxyRoute,
        key: &str,
    ) -> Result<(Value, martlet_protocol::Stamp)> {
        let conditions = ReadConditions::default();
        let read = route.session.get(BUCKET, key, Selection::Whole, &conditions).await?;
        let (object, stamp) = (read.object.clone(), read.stamp);
        let body = collect(read).await?;
        let value = value_of(&object).unwrap_or(Value(0));
        let body_of = payload::value_of(&body);
        if object.size != body.len() as u64 || !self.record.may_have_body(value, body_of) {
            let said = format!("{key:?} is {value} and has a body of {body_of:?}");
            self.record.surprise(said);
        }
        self.record.tag(value, object.etag.to_string());
        Ok((value, stamp))
    }

    async fn list(&self) {
        let prefix = self.chance.pick(&["", "", "b/"]);
        let after = self.chance.per_mille(300).then(|| {
            let key = &self.keys[self.chance.index(self.keys.len())];
            key.clone()
        });
        let limit = usize::try_from(self.chance.between(1, 8)).expect("a small number");
        self.list_from(prefix, after, limit).await;
    }

    /// Requests a page of a listing.
    pub(crate) async fn list_from(&self, prefix: &str, after: Option<String>, limit: usize) {
        let list = ListObjects { prefix: prefix.into(), after, limit, ..ListObjects::default() };
        let begins = list.after.clone().unwrap_or_default();
        let route = self.route(None);
        let begun = self.begin(prefix, &Invocation::List);
        let answer = self.wait(&route, route.session.list(BUCKET, list)).await;
        let returned_at = self.moment();
        let outcome = match answer {
            Some(Ok(page)) => {
                let found = page.objects.iter();
                let found = found
                    .map(|(key, object)| ListedKey { key: key.clone(), value: value_of(object) });
                let (found, truncated) = (found.collect(), page.next.is_some());
                Response::Listed(Listing { after: begins, found, truncated })
            }
            Some(Err(error)) => {
                self.record.failure(&error, &Invocation::List);
                Response::Failed
            }
            None => Response::Failed,
        };
        self.record.operation(begun.end(returned_at, outcome, self.given(&route)));
    }

    /// Copies from a key that sorts before this one. So no body returns to an earlier key, where
    /// two writes would have equal `ETag`s. The copy has a value of its own.
    async fn copy(&self, key: String) {
        let source = self.keys[self.chance.index(self.keys.len())].clone();
        if source >= key {
            return;
        }
        let value = self.record.value();
        let call = match self.chance.below(3) {
            0 => Invocation::Create(value),
            _ => Invocation::Put(value),
        };
        self.record.is_copy(value);
        let copy = CopyObject {
            source: (BUCKET.to_owned(), source),
            source_version: None,
            source_conditions: ReadConditions::default(),
            attributes: Some(attributes(value)),
            tags: None,
            marks: Marks::default(),
            storage_class: None,
            checksum: None,
            conditions: conditions(&call, None),
        };
        let route = self.route(None);
        let begun = self.begin(&key, &call);
        match self.wait(&route, Box::pin(route.session.copy(BUCKET, &key, copy))).await {
            // The source did not exist.
            Some(Err(error)) if is_absence(&error) => {
                let returned_at = self.moment();
                self.record.operation(begun.end(
                    returned_at,
                    Response::Failed,
                    AchievedLevel::Quorum,
                ));
            }
            answer => self.written(begun, &route, answer.as_ref()),
        }
    }
}

pub(crate) async fn collect(read: ObjectRead) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut body = read.body.expect("a GET has a body");
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}
