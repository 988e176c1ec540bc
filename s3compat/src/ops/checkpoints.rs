//! Checkpoint rules of a bucket, and its checkpoint sets. These operations and their JSON documents
//! are this store's own.

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use martlet_proxy::{
    CheckpointOutcome, GenerationState, NamedObject, NewCommit, PlannedWithdrawal,
};
use s3s::S3Result;
use serde::{Deserialize, Serialize};

use super::operations::Operations;
use super::settings::missing;
use crate::errors::{internal, s3_error};
use crate::fields::{malformed_query, query_text, query_value, required_query};
use crate::reply::Reply;
use crate::request::OperationRequest;

/// State of the generation that a write made.
const CHECKPOINT: HeaderName = HeaderName::from_static("x-martlet-checkpoint");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An object that a commit names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireObject {
    key: String,
    etag: String,
    size: u64,
}

/// Reply to a commit.
#[derive(Serialize)]
struct WireOutcome {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// A set in a reply.
#[derive(Serialize)]
struct WireSet {
    set: String,
    generations: Vec<WireGeneration>,
}

/// A generation in a reply. Times are in milliseconds since 1970.
#[derive(Serialize)]
struct WireGeneration {
    generation: u64,
    state: &'static str,
    objects: u64,
    bytes: u64,
    noted_ms: u64,
    changed_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_until_ms: Option<u64>,
}

/// Page of withdrawals that are to come.
#[derive(Serialize)]
struct WireRetention {
    withdrawals: Vec<WirePlanned>,
    /// Name of a set, after which the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Withdrawal that is to come. Times are in milliseconds since 1970.
#[derive(Serialize)]
struct WirePlanned {
    set: String,
    generation: u64,
    reason: String,
    due_ms: u64,
    deletes_objects: bool,
}

/// Reply to a withdrawal.
#[derive(Serialize)]
struct WireWithdrawn {
    withdrawn: u64,
}

/// Reply to a hold.
#[derive(Serialize)]
struct WireHold {
    generation: u64,
}

fn json<T: Serialize>(value: &T) -> S3Result<Reply> {
    let mut reply = Reply::empty(StatusCode::OK);
    reply.body = serde_json::to_vec(value).map_err(|_| internal())?.into();
    reply.headers.insert(CONTENT_TYPE, JSON);
    Ok(reply)
}

impl From<CheckpointOutcome> for WireOutcome {
    fn from(outcome: CheckpointOutcome) -> Self {
        match outcome {
            CheckpointOutcome::Committed { generation } => {
                Self { state: "committed", generation: Some(generation), reason: None }
            }
            CheckpointOutcome::Pending { generation, reason } => {
                Self { state: "pending", generation, reason: Some(reason) }
            }
            CheckpointOutcome::Refused { reason } => {
                Self { state: "refused", generation: None, reason: Some(reason) }
            }
        }
    }
}

fn state_name(state: GenerationState) -> &'static str {
    match state {
        GenerationState::Pending => "pending",
        GenerationState::Pinning => "pinning",
        GenerationState::Committed => "committed",
        GenerationState::Removing => "removing",
    }
}

/// Adds the state of the generation that a marker made.
pub(super) fn with_outcome(reply: Reply, outcome: Option<&CheckpointOutcome>) -> S3Result<Reply> {
    reply.with_header(CHECKPOINT, outcome.map(CheckpointOutcome::to_string))
}

impl Operations {
    pub(super) async fn get_bucket_checkpoints(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let rules = self.store.checkpoints().rules(request.bucket()).await.map_err(s3_error)?;
        let rules = rules.ok_or_else(|| {
            missing("NoSuchCheckpointConfiguration", "The bucket has no checkpoint rules")
        })?;
        let mut reply = Reply::empty(StatusCode::OK);
        reply.body = rules.into();
        reply.headers.insert(CONTENT_TYPE, JSON);
        Ok(reply)
    }

    pub(super) async fn put_bucket_checkpoints(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let document = request.document().to_vec();
        self.store.checkpoints().set_rules(request.bucket(), document).await.map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn delete_bucket_checkpoints(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.store.checkpoints().delete_rules(request.bucket()).await.map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn get_checkpoint(&self, request: &OperationRequest) -> S3Result<Reply> {
        let query = request.query()?;
        let set = required_query(&query, "checkpoint")?;
        let state = self.store.checkpoints().set(request.bucket(), set).await.map_err(s3_error)?;
        let generations = state.generations.into_iter().map(|it| WireGeneration {
            generation: it.number,
            state: state_name(it.state),
            objects: it.objects,
            bytes: it.bytes,
            noted_ms: it.noted_ms,
            changed_ms: it.changed_ms,
            reason: it.reason,
            held_until_ms: Some(it.held_until_ms).filter(|until_ms| *until_ms > 0),
        });
        json(&WireSet { set: state.name, generations: generations.collect() })
    }

    /// Dry run of the worker: nothing is changed.
    pub(super) async fn get_checkpoint_retention(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let query = request.query()?;
        let prefix = query.get("prefix").unwrap_or_default();
        let plan = self.store.checkpoints().plan(request.bucket(), prefix, query.get("after"));
        let (withdrawals, next) = Box::pin(plan).await.map_err(s3_error)?;
        let withdrawals = withdrawals.into_iter().map(|planned| {
            let PlannedWithdrawal { set, number, reason, due_ms, deletes_objects } = planned;
            WirePlanned { set, generation: number, reason, due_ms, deletes_objects }
        });
        json(&WireRetention { withdrawals: withdrawals.collect(), next })
    }

    pub(super) async fn commit_checkpoint(&self, request: &OperationRequest) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let query = request.query()?;
        let folder = required_query(&query, "checkpoint")?.to_owned();
        let objects: Vec<WireObject> =
            serde_json::from_slice(request.document()).map_err(|error| {
                let why = format!("the list of objects is malformed: {error}");
                s3_error(martlet_proxy::Error::InvalidArgument(why))
            })?;
        let named = |WireObject { key, etag, size }| NamedObject { key, etag, size };
        let objects = objects.into_iter().map(named).collect();
        let commit = NewCommit { folder, published_as: query_text(&query, "as"), objects };
        let sets = self.store.checkpoints();
        let outcome = sets.commit(request.bucket(), &commit).await.map_err(s3_error)?;
        if let CheckpointOutcome::Refused { reason } = outcome {
            return Err(s3_error(martlet_proxy::Error::CheckpointConflict(reason)));
        }
        let text = outcome.to_string();
        json(&WireOutcome::from(outcome))?.with_header(CHECKPOINT, Some(text))
    }

    pub(super) async fn delete_checkpoint(&self, request: &OperationRequest) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let query = request.query()?;
        let set = required_query(&query, "checkpoint")?;
        let generation = query_value(&query, "generation")?;
        let deletes_objects = match query.get("objects") {
            None | Some("keep") => false,
            Some("delete") => true,
            Some(other) => return Err(malformed_query("objects", other)),
        };
        let sets = self.store.checkpoints();
        let withdrawn = sets.withdraw(request.bucket(), set, generation, deletes_objects).await;
        json(&WireWithdrawn { withdrawn: withdrawn.map_err(s3_error)? })
    }

    pub(super) async fn hold_checkpoint(&self, request: &OperationRequest) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let query = request.query()?;
        let set = required_query(&query, "checkpoint")?;
        let generation = query_value(&query, "generation")?;
        let seconds: u64 = query_value(&query, "hold")?.unwrap_or_default();
        let hold_ms = seconds.saturating_mul(1000);
        let sets = self.store.checkpoints();
        let held = sets.hold(request.bucket(), set, generation, hold_ms).await;
        json(&WireHold { generation: held.map_err(s3_error)? })
    }
}
