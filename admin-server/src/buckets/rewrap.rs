//! Rewrap of one page of a bucket's data keys under the first master key. The caller requests the
//! next page.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::rewrap::{PAGE, RewrapLine};
use martlet_protocol::VersionId;
use martlet_proxy::{Error, ObjectStore, Rewrapped};
use martlet_replicator::{Foreground, WorkerPace};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::sleep;

use super::{BucketsState, refuse, refused};

/// Pause between two checks of clients' latency.
const REST: Duration = Duration::from_millis(50);
/// Number of checks before a page goes on despite waiting clients: 2 s in all.
const RESTS_MAX: u32 = 40;

#[derive(Deserialize, JsonSchema)]
pub(super) struct RewrapRequest {
    /// Name of the bucket.
    bucket: String,
    /// `after_key` of the page before.
    after_key: Option<String>,
    /// `after_version` of the page before.
    after_version: Option<String>,
}

pub(super) async fn rewrap(
    State(api): BucketsState,
    Query(request): Query<RewrapRequest>,
) -> Response {
    let version = request.after_version.as_deref().map(str::parse::<VersionId>).transpose();
    let Ok(version) = version else {
        return refuse(StatusCode::BAD_REQUEST, "the version id is malformed");
    };
    yield_to_clients(&api.foreground).await;
    match page(&api.store, &request.bucket, request.after_key.map(|key| (key, version))).await {
        Ok(line) => Json(line).into_response(),
        Err(Error::NoMasterKey) => {
            let sentence = "this process has no master key to wrap data keys with";
            refuse(StatusCode::CONFLICT, sentence)
        }
        Err(error) => refused(&error),
    }
}

async fn yield_to_clients(foreground: &Foreground) {
    let budget = WorkerPace::default().latency_budget;
    for _ in 0..RESTS_MAX {
        if foreground.latency() <= budget {
            return;
        }
        sleep(REST).await;
    }
}

async fn page(
    store: &ObjectStore,
    bucket: &str,
    after: Option<(String, Option<VersionId>)>,
) -> Result<RewrapLine, Error> {
    let Rewrapped { seen, changed, failed, failure, next } =
        store.data_keys().rewrap(bucket, after, PAGE).await?;
    let uploads =
        if next.is_none() { store.data_keys().outdated_uploads(bucket).await? } else { 0 };
    let (after_key, after_version) = next.map_or((None, None), |(key, id)| (Some(key), id));
    Ok(RewrapLine {
        bucket: bucket.to_owned(),
        seen,
        rewrapped: changed,
        failed,
        failure,
        uploads,
        after_key,
        after_version: after_version.map(|id| id.to_string()),
    })
}
