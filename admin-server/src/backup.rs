//! Admin API of backups: records of accounts and buckets, rings, comparison and restore.
//!
//! A backup has what only operators may read, so each route is theirs. Beginning a backup and each
//! restored record leave audit records; a record is restored by one request, so that its name is in
//! one.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use futures::stream::{self, StreamExt};
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::backup::{
    self as wire, BackupLine, CompareReply, CompareRequest, PAGE_MAX, RecordLine, RecordVerdict,
    RestoreRequest, RingFile, VerdictState,
};
use martlet_protocol::PolicyId;
use martlet_proxy::{
    Accounts, BackupRecord, Error, ObjectStore, RecordKind, RecordPage, RecordState,
};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::timeout;

use crate::api::{ApiError, ApiResult, read};

/// Concurrent reads of one comparison.
const READS_AT_ONCE: usize = 16;
/// Items on a page that names no number.
const PAGE_DEFAULT: usize = 100;
/// Time for the estimate of the number of buckets.
const ESTIMATE_TIME: Duration = Duration::from_secs(5);
/// Name of the ring of entries.
const INDEX: &str = "index";
/// Begin of the names of rings of extents.
const DATA: &str = "data-";

/// Routes of `martlet admin backup`. `root_key` is the access key of the root identity.
pub fn routes(accounts: Accounts, store: ObjectStore, root_key: &str) -> ApiRoutes {
    let operate = RouteAccess::Operate;
    let begin = ApiDoc::reply::<BackupLine>(operate, "Begin a backup: its kinds and rings");
    let records = ApiDoc::reply::<ListPage<RecordLine>>(
        operate,
        "List the records of a kind, in pages, with sealed secrets",
    );
    let ring = ApiDoc::reply::<RingFile>(operate, "Show the file of a ring in use");
    let compare = ApiDoc::reply::<CompareReply>(
        operate,
        "Compare records of a backup with the cluster, without a change",
    );
    let restore = ApiDoc::reply::<RecordVerdict>(operate, "Restore a record of a backup");
    ApiRoutes::new()
        .post(wire::BACKUP, begin, self::begin)
        .get(wire::RECORDS, records.query::<RecordsQuery>(), self::records)
        .get(wire::RING, ring.query::<RingQuery>(), self::ring)
        .post(wire::COMPARE, compare.body::<CompareRequest>(), self::compare)
        .put(wire::RECORD, restore.body::<RestoreRequest>(), self::restore)
        .with_state(BackupApi { accounts, store, root_key: root_key.to_owned() })
}

#[derive(Clone)]
struct BackupApi {
    accounts: Accounts,
    store: ObjectStore,
    root_key: String,
}

#[derive(Deserialize, JsonSchema)]
struct RecordsQuery {
    /// Kind of the records.
    kind: String,
    /// `next` of the page before.
    after: Option<String>,
    /// Maximum number of items that the page examines, 1 to 500. Default: 100.
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
struct RingQuery {
    /// Name of the ring: `index`, or `data-` and the number of a policy.
    ring: String,
}

async fn begin(State(api): State<BackupApi>) -> ApiResult {
    let cluster = api.store.topology().cluster();
    let buckets = timeout(ESTIMATE_TIME, api.accounts.backups().expected_buckets()).await;
    let buckets = buckets.ok().and_then(Result::ok);
    let data = cluster.policies().map(|ring| format!("{DATA}{}", ring.identity().policy.0));
    let line = BackupLine {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_ms: api.accounts.backups().now_ms(),
        kinds: RecordKind::ALL.map(|kind| kind.name().to_owned()).to_vec(),
        rings: std::iter::once(INDEX.to_owned()).chain(data).collect(),
        expected: buckets
            .map(|buckets| (RecordKind::Bucket.name().to_owned(), buckets))
            .into_iter()
            .collect(),
    };
    Ok(Json(line).into_response())
}

async fn records(State(api): State<BackupApi>, Query(request): Query<RecordsQuery>) -> ApiResult {
    let limit = request.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ApiError::bad(format!("limit must be 1 to {PAGE_MAX}")));
    }
    let kind: RecordKind = request.kind.parse()?;
    let page = api.accounts.backups().list(kind, request.after.as_deref(), limit).await?;
    let RecordPage { items, next } = page;
    Ok(Json(ListPage { items: items.into_iter().map(line).collect(), next }).into_response())
}

async fn ring(
    State(api): State<BackupApi>,
    Query(RingQuery { ring: name }): Query<RingQuery>,
) -> ApiResult {
    let cluster = api.store.topology().cluster();
    let unknown = || ApiError::missing(format!("there is no ring {name}"));
    let ring = if name == INDEX {
        cluster.index()
    } else {
        let policy = name.strip_prefix(DATA).and_then(|number| number.parse().ok());
        cluster.data(PolicyId(policy.ok_or_else(unknown)?)).map_err(|_| unknown())?
    };
    let (epoch, file) = (ring.epoch(), hex::encode(ring.encode()));
    Ok(Json(RingFile { ring: name, epoch, file }).into_response())
}

async fn compare(State(api): State<BackupApi>, body: Bytes) -> ApiResult {
    let CompareRequest { records } = read(&body)?;
    if records.len() > PAGE_MAX {
        return Err(ApiError::bad(format!("at most {PAGE_MAX} records are compared at once")));
    }
    let comparisons: Vec<_> = records.into_iter().map(|record| api.verdict(record)).collect();
    let verdicts: Vec<Result<RecordVerdict, ApiError>> =
        stream::iter(comparisons).buffered(READS_AT_ONCE).collect().await;
    let verdicts = verdicts.into_iter().collect::<Result<_, _>>()?;
    Ok(Json(CompareReply { verdicts }).into_response())
}

async fn restore(State(api): State<BackupApi>, body: Bytes) -> ApiResult {
    let RestoreRequest { kind, name, replace, record } = read(&body)?;
    if (&kind, &name) != (&record.kind, &record.name) {
        return Err(ApiError::bad("kind and name must be those of the record"));
    }
    let record = api.record(record)?;
    let state = api.accounts.backups().restore(&record, replace).await.map_err(conflict)?;
    Ok(Json(RecordVerdict { state: verdict_state(state), reason: None }).into_response())
}

impl BackupApi {
    async fn verdict(&self, line: RecordLine) -> Result<RecordVerdict, ApiError> {
        let refused =
            |reason: String| RecordVerdict { state: VerdictState::Refused, reason: Some(reason) };
        let record = match self.record(line) {
            Ok(record) => record,
            Err(ApiError(_, reason)) => return Ok(refused(reason)),
        };
        match self.accounts.backups().compare(&record).await {
            Ok(state) => Ok(RecordVerdict { state: verdict_state(state), reason: None }),
            // Without a quorum nothing is known of any record.
            Err(error @ Error::Backend(_)) => Err(error.into()),
            Err(error) => Ok(refused(error.to_string())),
        }
    }

    fn record(&self, line: RecordLine) -> Result<BackupRecord, ApiError> {
        let RecordLine { kind, name, written_ms, content } = line;
        let kind: RecordKind = kind.parse()?;
        if kind == RecordKind::Key && name == self.root_key {
            let sentence = "the access key is the root access key here, which has no tenant";
            return Err(ApiError(StatusCode::CONFLICT, sentence.to_owned()));
        }
        Ok(BackupRecord { kind, name, written_ms, content })
    }
}

/// Turns the error of a restore into a refusal. An item that another one lacks is a conflict.
fn conflict(error: Error) -> ApiError {
    match error {
        Error::NoSuchAccount(sentence) => {
            ApiError(StatusCode::CONFLICT, format!("{sentence}: restore accounts first"))
        }
        Error::BucketExists { .. } | Error::EntityTooLarge { .. } | Error::QuotaExceeded(_) => {
            ApiError(StatusCode::CONFLICT, error.to_string())
        }
        error => error.into(),
    }
}

fn line(record: BackupRecord) -> RecordLine {
    let BackupRecord { kind, name, written_ms, content } = record;
    RecordLine { kind: kind.name().to_owned(), name, written_ms, content }
}

fn verdict_state(state: RecordState) -> VerdictState {
    match state {
        RecordState::Same => VerdictState::Same,
        RecordState::Missing => VerdictState::Missing,
        RecordState::Older => VerdictState::Older,
        RecordState::Newer => VerdictState::Newer,
        RecordState::Deleted => VerdictState::Deleted,
    }
}
