//! Checkpoint rules and sets of a bucket.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use martlet_admin_api::checkpoints::{
    GenerationLine, RetiredLine, RulesLine, SetLine, SetPage, WithdrawnLine,
};
use martlet_proxy::{Generation, GenerationState, SetState};
use serde::Deserialize;

use super::{BucketQuery, BucketsState};
use crate::api::{ApiResult, read};

/// Sets in one page.
const PAGE: usize = 100;

#[derive(Deserialize)]
pub(super) struct SetsQuery {
    bucket: String,
    after: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct SetQuery {
    bucket: String,
    set: String,
}

#[derive(Deserialize)]
pub(super) struct Withdrawal {
    bucket: String,
    set: String,
    generation: Option<u64>,
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
    let (sets, more) = api.store.checkpoints().sets(&bucket, after.as_deref(), PAGE).await?;
    let next = sets.last().filter(|_| more).map(|last| last.name.clone());
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
    Query(SetQuery { bucket, set }): Query<SetQuery>,
) -> ApiResult {
    let retired = api.store.checkpoints().would_retire(&bucket, &set).await?;
    let line = |(set, generation)| RetiredLine { set, generation };
    Ok(Json(retired.into_iter().map(line).collect::<Vec<_>>()).into_response())
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
