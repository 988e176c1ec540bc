//! Clients that write sets: saves in several orders, explicit commits, deletes, purges, withdrawals
//! and holds.

use martlet_proxy::{NamedObject, NewCommit, WrittenObject};
use martlet_tests::checkers::Invocation;
use martlet_tests::checkers::sets::{SetCall, SetReply};

use super::{
    BUCKET, BegunSetOperation, MARKER, PUBLISHED, SETS, SHARDS, UNRULED, is_ambiguous, objects_of,
    reply_of,
};
use crate::client::SimulatedClient;
use crate::load::SetAction;
use crate::payload;

/// Time for which holds last: longer than every run.
const HOLD_MS: u64 = 24 * 3_600_000;

impl SimulatedClient {
    /// Makes a random request on sets and their objects.
    pub(crate) async fn something_with_sets(&self) {
        let set = self.chance.pick(&SETS);
        let any_set = self.chance.pick(&[SETS[0], SETS[1], PUBLISHED]);
        let key = self.keys[self.chance.index(self.keys.len())].clone();
        match self.loads.sets.pick(&self.chance) {
            SetAction::Save => self.save(set).await,
            SetAction::ListView => self.list_view(any_set, None).await,
            SetAction::GetView => self.get_view(any_set, None).await,
            SetAction::ReadByNumber => self.read_by_number(any_set).await,
            SetAction::GetObject => drop(self.get(key).await),
            SetAction::ListObjects => self.list_from("", None, 100).await,
            SetAction::DeleteObject => {
                let rest = self.chance.pick(&[MARKER, SHARDS[1]]);
                self.delete_at(format!("{set}{rest}")).await;
            }
            SetAction::RemoveOldVersion => self.remove_an_old_version(key).await,
            SetAction::Publish => self.publish().await,
            SetAction::Withdraw => self.withdraw(any_set).await,
            SetAction::DeleteSet => {
                for name in SHARDS.into_iter().chain([MARKER]) {
                    self.delete_at(format!("{set}{name}")).await;
                }
            }
            SetAction::Hold => self.hold(any_set).await,
        }
    }

    pub(super) fn begin_set(&self, set: &str, call: SetCall) -> BegunSetOperation {
        let (client, set, invoked_at) = (self.number, set.to_owned(), self.moment());
        self.simulated.network.trace.note(format_args!("client {client} {set}: {call:?}"));
        BegunSetOperation { client, set, call, invoked_at }
    }

    pub(super) fn end_set(&self, begun: BegunSetOperation, reply: SetReply) {
        let operation = begun.end(self.moment(), reply);
        self.simulated.network.trace.note(format_args!("{operation}"));
        self.record.sets.record(operation);
    }

    /// Saves a set: all shards or one of them, in the order of the framework or of a copy tool.
    async fn save(&self, set: &str) {
        if self.chance.per_mille(300) {
            self.delete_at(format!("{set}{MARKER}")).await;
        }
        let [one, other] = SHARDS;
        let order = match self.chance.below(10) {
            0..6 => vec![one, other, MARKER],
            6..8 => vec![other, MARKER],
            8 => vec![MARKER, one, other],
            _ => vec![one, MARKER, other],
        };
        for name in order {
            match name {
                MARKER => self.write_marker(set).await,
                shard => drop(self.write_shard(format!("{set}{shard}")).await),
            }
        }
    }

    async fn write_shard(&self, key: String) -> Option<(Invocation, WrittenObject)> {
        let value = self.record.value();
        let body = payload::bytes(value, payload::size(&self.chance));
        self.record.sets.body(value, &body);
        let call = Invocation::Put(value);
        let written = Box::pin(self.put_body(key, call.clone(), body)).await?;
        Some((call, written))
    }

    async fn write_marker(&self, set: &str) {
        let value = self.record.value();
        let body = payload::marker(value);
        self.record.sets.body(value, &body);
        let begun = self.begin_set(set, SetCall::Marker(value));
        let (key, call) = (format!("{set}{MARKER}"), Invocation::Put(value));
        let written = Box::pin(self.put_body(key, call, body)).await;
        if written.as_ref().is_some_and(|written| written.checkpoint.is_none()) {
            self.record.surprise(format!("a marker of {set:?} has no outcome"));
        }
        let outcome = written.and_then(|written| written.checkpoint);
        let reply = outcome.as_ref().map_or(SetReply::Unknown, reply_of);
        let number = match reply {
            SetReply::Committed(number) => Some(number),
            _ => None,
        };
        self.end_set(begun, reply);
        if let Some(number) = number.filter(|_| self.chance.per_mille(500)) {
            self.list_view(set, Some(number)).await;
        }
    }

    /// Writes two objects outside of all rules, and publishes them as a set.
    async fn publish(&self) {
        let (mut objects, mut named) = (Vec::new(), Vec::new());
        for name in SHARDS {
            let key = format!("{UNRULED}{name}");
            let Some((call, written)) = self.write_shard(key.clone()).await else { return };
            let (etag, size) = (written.object.etag.to_string(), written.object.size);
            named.push(NamedObject { key: key.clone(), etag, size });
            objects.extend(call.writes().map(|value| (key, value)));
        }
        let objects = objects_of(UNRULED, objects);
        let begun = self.begin_set(PUBLISHED, SetCall::Commit(objects));
        let route = self.route(None);
        let published_as = Some(PUBLISHED.to_owned());
        let commit = NewCommit { folder: UNRULED.to_owned(), published_as, objects: named };
        let sets = route.session.checkpoints();
        let reply = match self.wait(&route, Box::pin(sets.commit(BUCKET, &commit))).await {
            Some(Ok(outcome)) => reply_of(&outcome),
            Some(Err(martlet_proxy::Error::CheckpointConflict(_))) => SetReply::Refused,
            Some(Err(error)) => self.unknown("a commit", &error),
            None => SetReply::Unknown,
        };
        self.end_set(begun, reply);
    }

    /// Reply of a failed request.
    pub(super) fn unknown(&self, what: &str, error: &martlet_proxy::Error) -> SetReply {
        self.simulated.network.trace.note(format_args!("{what} failed: {error}"));
        if !is_ambiguous(error) {
            self.record.surprise(format!("{what} failed: {error} ({error:?})"));
        }
        SetReply::Unknown
    }

    async fn withdraw(&self, set: &str) {
        let Some(number) = self.some_number(set).await else { return };
        let number = (!self.chance.per_mille(300)).then_some(number);
        let deletes_objects = self.chance.per_mille(500);
        let begun = self.begin_set(set, SetCall::Withdraw(number));
        let route = self.route(None);
        let sets = route.session.checkpoints();
        let withdrawn = Box::pin(sets.withdraw(BUCKET, set, number, deletes_objects));
        let reply = match self.wait(&route, withdrawn).await {
            Some(Ok(withdrawn)) if withdrawn > 0 => SetReply::Done,
            // It was withdrawn before.
            Some(Ok(_) | Err(martlet_proxy::Error::NoSuchKey)) | None => SetReply::Unknown,
            Some(Err(error)) => self.unknown("a withdrawal", &error),
        };
        self.end_set(begun, reply);
    }

    async fn hold(&self, set: &str) {
        let Some(number) = self.some_number(set).await else { return };
        let begun = self.begin_set(set, SetCall::Hold(number));
        let route = self.route(None);
        let sets = route.session.checkpoints();
        let held = Box::pin(sets.hold(BUCKET, set, Some(number), HOLD_MS));
        let reply = match self.wait(&route, held).await {
            Some(Ok(_)) => SetReply::Done,
            Some(Err(martlet_proxy::Error::NoSuchKey)) | None => SetReply::Unknown,
            Some(Err(error)) => self.unknown("a hold", &error),
        };
        self.end_set(begun, reply);
    }
}
