//! Archive for support as a reply of the admin API.
//!
//! Its parts are requested in the name of the request's principal. The routes of this process are called
//! in it, by a session of two minutes or the token of this process. Other processes get requests at
//! their admin addresses, by a session of two minutes that may read alone: an address may be of
//! another program, above all one of the loopback interface that a process elsewhere reports. So the
//! tokens of processes, which never end, are sent to none. Files of machines are not in the archive: logs
//! and doctor's findings belong to the command.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router, body};
use martlet_admin_api::jobs::{CENSUS, JOB, JOBS, JobLine};
use martlet_admin_api::principals::AdminRole;
use martlet_admin_api::{ErrorReply, SUPPORT_BUNDLE, accounts::ListPage};
use martlet_replicator::CensusReport;
use martlet_serving::access::{AdminAccess, AdminSecret, Principal, RouteAccess, SessionClaims};
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_serving::operator::{Operator, refuse};
use martlet_serving::settings::CommonSettings;
use martlet_serving::{AdminToken, Failure};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::archive::Archive;
use super::collect::{BYTES_MAX, BundleSource, SourcePart, TIME_MAX, collect};
use super::directory::Replier;
use super::relay;
use crate::admin::address::AdminAddress;
use crate::admin::client::{AdminCredential, AdminEndpoint};

const GZIP: &str = "application/gzip";
/// Length of the session by which other processes are queried.
const SESSION_MS: u64 = 120_000;
/// Length of a session of one path. Processes without accounts accept a revoked key's for as long.
const SCOPED_SESSION_MS: u64 = 30_000;
/// Time for one reply of this process.
const OWN_PATIENCE: Duration = Duration::from_secs(10);
/// Time for a connection to another process, with its TLS handshake.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Longest reply of a process.
pub(super) const OWN_BYTES_MAX: usize = 64 << 20;
pub(super) const NO_KEY: &str = "other processes are read for admin keys alone: sign in with one";
const NOT_HERE: &str =
    "doctor examines the machine on which it runs: run martlet doctor --json there";

/// Process whose admin API makes archives.
#[derive(Clone)]
pub(super) struct BundleProcess {
    pub(super) operator: Weak<Operator>,
    pub(super) token: AdminToken,
    /// Scheme of admin addresses, with its slashes; empty for TLS to other machines alone.
    pub(super) scheme: &'static str,
    /// Permit to make an archive.
    making: Arc<Semaphore>,
}

/// Returns the routes that make an archive and read other processes. `operator` is that of the whole process, and `token` one
/// that it and its cluster accept.
pub(crate) fn routes(
    operator: &Arc<Operator>,
    token: AdminToken,
    common: &CommonSettings,
) -> ApiRoutes {
    let summary = "Make an archive with the state of all reachable processes, without secrets; one at \
                   a time";
    let doc = ApiDoc::bytes(RouteAccess::Operate, summary, GZIP);
    let scheme = match common {
        CommonSettings { admin_tls_certificate: Some(_), .. } => "https://",
        CommonSettings { admin_allow_clear: true, .. } => "http://",
        _ => "",
    };
    let making = Arc::new(Semaphore::new(1));
    let process = BundleProcess { operator: Arc::downgrade(operator), token, scheme, making };
    let relay = relay::routes(process.clone());
    ApiRoutes::new().post(SUPPORT_BUNDLE, doc, make).with_state(process).merge(relay)
}

async fn make(
    State(process): State<BundleProcess>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let Ok(permit) = process.making.clone().try_acquire_owned() else {
        let sentence = "another archive is being made: request one afterwards";
        return refuse(StatusCode::CONFLICT, sentence);
    };
    let Some(source) = process.source(&principal) else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the process is starting or stopping");
    };
    // Requests of other processes wait, and parts are compressed.
    let made = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut archive = Archive::new(BYTES_MAX, TIME_MAX);
        collect(&source, &mut archive);
        archive.into_file()
    });
    match made.await {
        Ok(Ok((name, bytes))) => {
            let disposition = format!("attachment; filename=\"{name}\"");
            let headers =
                [(header::CONTENT_TYPE, GZIP), (header::CONTENT_DISPOSITION, &disposition)];
            (headers, bytes).into_response()
        }
        Ok(Err(error)) => {
            let sentence = format!("the archive can't be made: {error}");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &sentence)
        }
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the request failed"),
    }
}

impl BundleProcess {
    /// Returns the source of an archive for this principal; none unless the process is open.
    fn source(&self, principal: &Principal) -> Option<ProcessSource> {
        let operator = self.operator.upgrade()?;
        let (_, access) = operator.protected_routes()?;
        let address = format!("{}{}", self.scheme, operator.address()?);
        Some(ProcessSource {
            address: address.parse().ok()?,
            own: OwnRoutes {
                router: operator.router(),
                token: session_of(principal, &access, AdminRole::Operator, None)
                    .unwrap_or_else(|| self.token.to_text()),
            },
            reader: session_of(principal, &access, AdminRole::Viewer, None),
            runtime: Handle::current(),
        })
    }
}

/// Bound of a session that may do nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionScope<'a> {
    /// Path that the session may GET.
    pub(super) path: &'a str,
    /// Role and name of the process that accepts the session.
    pub(super) at: &'a str,
}

/// Returns the token of a new session of a principal; none for a principal without a key. A session
/// without a scope lasts two minutes, another one 30 seconds.
pub(super) fn session_of(
    principal: &Principal,
    access: &AdminAccess,
    role: AdminRole,
    scope: Option<SessionScope<'_>>,
) -> Option<String> {
    let (key, secret) = principal.key.as_ref().zip(access.secret.as_ref())?;
    let began_ms = access.clock.now_ms();
    Some(secret.seal(&SessionClaims {
        id: AdminSecret::new_session_id(key),
        key: key.clone(),
        role,
        tenant: None,
        tenant_id: None,
        began_ms,
        expires_ms: began_ms.saturating_add(scope.map_or(SESSION_MS, |_| SCOPED_SESSION_MS)),
        reads: scope.map(|scope| scope.path.to_owned()),
        at: scope.map(|scope| scope.at.to_owned()),
    }))
}

/// Routes of this process, and other processes over HTTP.
pub(super) struct ProcessSource {
    pub(super) address: AdminAddress,
    pub(super) own: OwnRoutes,
    /// Token of a session that may read, for other processes. None for principals without a key.
    pub(super) reader: Option<String>,
    pub(super) runtime: Handle,
}

/// Routes of this process, by a token that it accepts.
pub(super) struct OwnRoutes {
    pub(super) router: Router,
    /// Token of a session or of a secret, for this process alone.
    pub(super) token: String,
}

impl OwnRoutes {
    /// Calls a route of this process.
    ///
    /// # Errors
    /// A sentence: the route doesn't reply in time, refuses, or replies with more than `bytes_max` bytes.
    pub(super) async fn get(
        &self,
        target: &str,
        bytes_max: usize,
        patience: Duration,
    ) -> Result<Bytes, String> {
        let bearer = HeaderValue::try_from(format!("Bearer {}", self.token));
        let bearer = bearer.map_err(|error| error.to_string())?;
        let request = Request::get(target).header(header::AUTHORIZATION, bearer);
        let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
        let exchange = async {
            let reply = match self.router.clone().oneshot(request).await {
                Ok(reply) => reply,
                Err(never) => match never {},
            };
            let (head, content) = reply.into_parts();
            let bytes = body::to_bytes(content, bytes_max).await;
            Ok((head.status, bytes.map_err(|error| error.to_string())?))
        };
        let reply = tokio::time::timeout(patience, exchange).await;
        let (status, bytes) =
            reply.unwrap_or_else(|_| Err("this process does not answer in time".to_owned()))?;
        if status == StatusCode::OK {
            return Ok(bytes);
        }
        let refusal = serde_json::from_slice(&bytes).map(|ErrorReply { error }| error);
        Err(refusal.unwrap_or_else(|_| format!("this process answered {status}")))
    }
}

impl ProcessSource {
    /// Calls a route of this process.
    fn request_own(&self, target: &str, patience: Duration) -> Result<Vec<u8>, String> {
        let reply = self.runtime.block_on(self.own.get(target, OWN_BYTES_MAX, patience));
        reply.map(Into::into)
    }

    fn own_json<T: DeserializeOwned>(&self, target: &str) -> Result<T, String> {
        let bytes = self.request_own(target, OWN_PATIENCE)?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }

    /// Returns the report of the last census of this process that has ended.
    fn last_census(&self) -> Result<CensusReport, String> {
        let page: ListPage<JobLine> = self.own_json(JOBS)?;
        // The last job comes first.
        let ended = page.items.into_iter().find(|job| job.kind == CENSUS && job.state == "done");
        let ended =
            ended.ok_or("no census has ended in this process since its start: start one")?;
        let job: JobLine = self.own_json(&format!("{JOB}?id={}", ended.id))?;
        serde_json::from_value(job.detail.unwrap_or_default()).map_err(|error| error.to_string())
    }
}

impl BundleSource for ProcessSource {
    fn replier(&self) -> Replier<'_> {
        Replier { address: &self.address, is_here: true }
    }

    fn request(
        &self,
        address: &AdminAddress,
        path: &str,
        patience: Duration,
    ) -> Result<Vec<u8>, String> {
        if *address == self.address {
            return self.request_own(path, patience);
        }
        let reader = self.reader.clone().ok_or_else(|| NO_KEY.to_owned())?;
        let credential = AdminCredential::Session(reader);
        let endpoint = AdminEndpoint::of_process(address.clone(), credential);
        let reply = endpoint.and_then(|endpoint| {
            let endpoint = endpoint.patient(patience).connecting_within(CONNECT_PATIENCE);
            endpoint.bounded(OWN_BYTES_MAX).request_bytes(path)
        });
        reply.map(Into::into).map_err(|failure: Failure| failure.to_string())
    }

    fn doctor(&self) -> SourcePart<Value> {
        SourcePart { source: "a command".to_owned(), content: Err(NOT_HERE.to_owned()) }
    }

    fn census(&self) -> SourcePart<CensusReport> {
        SourcePart { source: "jobs of this process".to_owned(), content: self.last_census() }
    }

    fn logs(&self) -> Vec<SourcePart<Vec<u8>>> {
        Vec::new()
    }
}
