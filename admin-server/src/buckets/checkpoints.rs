//! Checkpoint rules and sets of a bucket.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use martlet_admin_api::checkpoints::{
    GenerationLine, RetentionPage, RetiredLine, RulesLine, SetLine, SetPage, WithdrawnLine,
};
use martlet_proxy::{Generation, GenerationState, PlannedWithdrawal, SetState};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{BucketQuery, BucketsState};
use crate::api::{ApiResult, read};

/// Sets in one page.
const PAGE: usize = 100;

#[derive(Deserialize, JsonSchema)]
pub(super) struct SetsQuery {
    /// Name of the bucket.
    bucket: String,
    /// `next` of the page before.
    after: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct RetentionQuery {
    /// Name of the bucket.
    bucket: String,
    /// Set of a series; all sets of the bucket without one.
    set: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Withdrawal {
    /// Name of the bucket.
    bucket: String,
    /// Name of the set.
    set: String,
    /// Number of the generation. Default: all of them.
    generation: Option<u64>,
    /// True deletes their objects too.
    #[serde(default)]
    delete_objects: bool,
}

pub(super) async fn rules(
    State(api): BucketsState,
    Query(BucketQuery { bucket }): Query<BucketQuery>,
) -> ApiResult {
    let rules = api.store.checkpoints().rules(&bucket).await?;
    let rules = rules.map(|document| String::from_utf8_lossy(&document).into_owned());
    Ok(Json(RulesLine { bucket, rules }).into_response())
}

pub(super) async fn set_rules(State(api): BucketsState, body: Bytes) -> ApiResult {
    let line: RulesLine = read(&body)?;
    let sets = api.store.checkpoints();
    match &line.rules {
        Some(rules) => sets.set_rules(&line.bucket, rules.clone().into_bytes()).await?,
        None => sets.delete_rules(&line.bucket).await?,
    }
    Ok(Json(line).into_response())
}

pub(super) async fn sets(
    State(api): BucketsState,
    Query(SetsQuery { bucket, after }): Query<SetsQuery>,
) -> ApiResult {
    let (sets, next) = api.store.checkpoints().sets(&bucket, after.as_deref(), PAGE).await?;
    let sets = sets.into_iter().map(set_line).collect();
    Ok(Json(SetPage { sets, next }).into_response())
}

pub(super) async fn withdraw(
    State(api): BucketsState,
    Query(request): Query<Withdrawal>,
) -> ApiResult {
    let Withdrawal { bucket, set, generation, delete_objects } = request;
    let sets = api.store.checkpoints();
    let withdrawn = sets.withdraw(&bucket, &set, generation, delete_objects).await?;
    Ok(Json(WithdrawnLine { withdrawn }).into_response())
}

pub(super) async fn retention(
    State(api): BucketsState,
    Query(RetentionQuery { bucket, set, after }): Query<RetentionQuery>,
) -> ApiResult {
    let sets = api.store.checkpoints();
    let (planned, next) = match set {
        Some(set) => sets.would_retire(&bucket, &set, after.as_deref()).await?,
        None => sets.plan(&bucket, "", after.as_deref()).await?,
    };
    let withdrawals = planned.into_iter().map(retired_line).collect();
    Ok(Json(RetentionPage { withdrawals, next }).into_response())
}

fn retired_line(planned: PlannedWithdrawal) -> RetiredLine {
    let PlannedWithdrawal { set, number, reason, due_ms, deletes_objects } = planned;
    RetiredLine { set, generation: number, reason, due_ms, deletes_objects }
}

fn set_line(state: SetState) -> SetLine {
    let generations = state.generations.into_iter().map(generation_line).collect();
    SetLine { set: state.name, generations }
}

fn generation_line(generation: Generation) -> GenerationLine {
    let state = match generation.state {
        GenerationState::Pending => "pending",
        GenerationState::Pinning => "pinning",
        GenerationState::Committed => "committed",
        GenerationState::Removing => "removing",
    };
    GenerationLine {
        generation: generation.number,
        state: state.to_owned(),
        objects: generation.objects,
        bytes: generation.bytes,
        noted_ms: generation.noted_ms,
        held_until_ms: generation.held_until_ms,
        reason: generation.reason,
    }
}
