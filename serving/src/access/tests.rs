//! Gate of the admin API: each kind of credential, each rule, and attacks on both.

mod attacks;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode, header};
use martlet_admin_api::principals::AdminRole;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tower::ServiceExt;

use super::*;
use crate::AdminToken;
use crate::api::{ApiDoc, ApiRoutes};
use crate::audit::AuditLog;
use crate::metrics::Metrics;
use crate::operator::{AdminParts, Health, Operator, RoleCondition};

const NOW_MS: u64 = 1_795_833_000_000;
const HOUR_MS: u64 = 3_600_000;

/// Clock that a test moves.
#[derive(Debug)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct HealthyRole;

#[async_trait]
impl Health for HealthyRole {
    async fn condition(&self) -> RoleCondition {
        RoleCondition { serves: true, reasons: Vec::new() }
    }
}

/// Accounts in memory. Items named `own…` belong to the tenant `own`, `other…` to another.
#[derive(Default)]
struct TestAccounts {
    keys: Mutex<HashMap<String, AdminKeyState>>,
    lookups: AtomicUsize,
    is_out: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl AdminDirectory for TestAccounts {
    async fn key(&self, id: &str) -> Result<Option<Arc<AdminKeyState>>, String> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if self.is_out.load(Ordering::Relaxed) {
            return Err("no quorum".into());
        }
        Ok(self.keys.lock().get(id).cloned().map(Arc::new))
    }

    async fn owner(&self, target: &TenantTarget) -> Result<Option<String>, String> {
        let (TenantTarget::Tenant(name)
        | TenantTarget::Bucket(name)
        | TenantTarget::AccessKey(name)) = target;
        let owner = ["own", "other"].into_iter().find(|owner| name.starts_with(owner));
        Ok(owner.map(|owner| format!("id of {owner}")))
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Named {
    tenant: String,
}

/// Process with an open admin API, and the number of requests that reached a handler.
struct TestProcess {
    operator: Arc<Operator>,
    clock: Arc<TestClock>,
    accounts: Arc<TestAccounts>,
    secret: AdminSecret,
    reached: Arc<AtomicUsize>,
    folder: TempDir,
}

/// Kind of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    WithAccounts,
    Member,
}

/// Folder of the records of all but operators.
const TENANTS: &str = "tenants";
const TENANT: TenantField = TenantField::Tenant("tenant");
const PATHS: [(&str, RouteAccess); 4] = [
    ("/read", RouteAccess::Read),
    ("/operate", RouteAccess::Operate),
    ("/anyone", RouteAccess::Anyone),
    ("/tenant", RouteAccess::TenantRead(TENANT)),
];

async fn panics() -> String {
    panic!("a planned panic")
}

fn routes(reached: &Arc<AtomicUsize>) -> ApiRoutes {
    let handler = || {
        let reached = reached.clone();
        move || {
            reached.fetch_add(1, Ordering::Relaxed);
            async { "done" }
        }
    };
    let echo = |body: Bytes| async move { body };
    let change = ApiDoc::reply::<String>(RouteAccess::TenantChange(TENANT), "Change");
    let operate = ApiDoc::reply::<String>(RouteAccess::Operate, "Change");
    let mut routes = ApiRoutes::new()
        .put("/tenant", change.body::<Named>(), handler())
        .delete("/tenant", change, handler())
        .put("/operate", operate, handler())
        .post("/echo", operate, echo)
        .post("/compute", operate.computes(), echo)
        .post("/panics", operate, panics);
    for (path, access) in PATHS {
        routes = routes.get(path, ApiDoc::reply::<String>(access, "Read"), handler());
    }
    routes
}

impl TestProcess {
    async fn new(kind: Kind) -> Self {
        Self::with_log_in(kind, tempfile::tempdir().unwrap()).await
    }

    async fn with_log_in(kind: Kind, folder: TempDir) -> Self {
        let clock = Arc::new(TestClock(AtomicU64::new(NOW_MS)));
        let accounts = Arc::new(TestAccounts::default());
        let secret = AdminSecret::derive(&[7; 32]);
        let log = async |name: &str| {
            let folder = folder.path().join(name);
            Some(Arc::new(AuditLog::open(folder, "proxy p1", clock.clone()).await))
        };
        let (audit, tenant_audit) = (log("").await, log(TENANTS).await);
        let directory =
            (kind == Kind::WithAccounts).then(|| accounts.clone() as Arc<dyn AdminDirectory>);
        let access = AdminAccess {
            secret: Some(secret.clone()),
            directory,
            clock: clock.clone(),
            audit,
            tenant_audit,
            roles: vec!["proxy p1".to_owned(), "storage node n1".to_owned()],
        };
        let operator = Arc::new(Operator::new(vec![AdminToken::of(b"secret")]));
        let reached = Arc::new(AtomicUsize::default());
        operator.open(AdminParts {
            health: Arc::new(HealthyRole),
            metrics: Metrics::default(),
            routes: routes(&reached),
            access: Arc::new(access),
        });
        clock.0.store(NOW_MS + 2000, Ordering::Relaxed);
        Self { operator, clock, accounts, secret, reached, folder }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Makes a key. A tenant admin's tenant is `own`.
    fn key(&self, role: AdminRole) -> SigningKey {
        let id = AdminSecret::new_key_id();
        let own = TenantName { name: "own".into(), canonical_id: "id of own".into() };
        let state = AdminKeyState {
            name: role.to_string(),
            role,
            tenant: (role == AdminRole::TenantAdmin).then_some(own),
            created_ms: NOW_MS,
            expires_ms: Some(NOW_MS + 100 * HOUR_MS),
            sessions_from_ms: 0,
            ended: Vec::new(),
        };
        self.accounts.keys.lock().insert(id.clone(), state);
        SigningKey { secret: self.secret.key_secret(&id), id }
    }

    fn session(&self, key: &SigningKey, length_ms: u64) -> SessionClaims {
        let state = self.accounts.keys.lock()[&key.id].clone();
        SessionClaims {
            id: AdminSecret::new_session_id(&key.id),
            key: key.id.clone(),
            role: state.role,
            tenant: state.tenant.as_ref().map(|tenant| tenant.name.clone()),
            tenant_id: state.tenant.map(|tenant| tenant.canonical_id),
            began_ms: self.now_ms(),
            expires_ms: self.now_ms() + length_ms,
            reads: None,
            at: None,
        }
    }

    /// Returns the token of a session that may GET `/operate` of one process.
    fn reading(&self, key: &SigningKey, at: Option<&str>) -> String {
        let (reads, at) = (Some("/operate".to_owned()), at.map(str::to_owned));
        self.secret.seal(&SessionClaims { reads, at, ..self.session(key, 60_000) })
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let reply = self.operator.clone().router().oneshot(request).await.unwrap();
        let (head, body) = reply.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let id = head.headers.contains_key("x-martlet-request-id");
        Answer { status: head.status, text: String::from_utf8_lossy(&bytes).into_owned(), id }
    }

    async fn bearer(&self, method: &str, target: &str, token: &str) -> Answer {
        let request = Request::builder().method(method).uri(target);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn signed(&self, key: &SigningKey, method: &str, target: &str, body: &str) -> Answer {
        self.send(sign(key, method, target, body, self.now_ms())).await
    }

    /// Audit records in a folder of the log: operation and outcome.
    fn records(&self, folder: &str) -> Vec<String> {
        let path = self.folder.path().join(folder).join("audit-1.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        let lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let outcome = |line: serde_json::Value| {
            let outcome = line["outcome"].as_str()?.to_owned();
            Some(format!("{} {outcome}", line["operation"].as_str().unwrap()))
        };
        lines.filter_map(outcome).collect()
    }
}

#[derive(Debug)]
struct Answer {
    status: StatusCode,
    text: String,
    /// True if the reply has the id of the request.
    id: bool,
}

fn sign(key: &SigningKey, method: &str, target: &str, body: &str, at_ms: u64) -> Request<Body> {
    let method: Method = method.parse().unwrap();
    let unsigned = UnsignedRequest { method: &method, target, host: "n1", body: body.as_bytes() };
    let mut request = Request::builder().method(&method).uri(target).header("host", "n1");
    for (name, value) in key.sign(unsigned, at_ms) {
        request = request.header(name, value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

#[tokio::test]
async fn each_rule_admits_its_roles_and_names_them_to_others() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    for role in AdminRole::ALL {
        let key = process.key(role);
        let session = process.secret.seal(&process.session(&key, HOUR_MS));
        for (path, access) in PATHS {
            let target = format!("{path}?tenant=own");
            let by_key = process.signed(&key, "GET", &target, "").await;
            let by_session = process.bearer("GET", &target, &session).await;
            for answer in [by_key, by_session] {
                let expected =
                    if access.admits(role) { StatusCode::OK } else { StatusCode::FORBIDDEN };
                assert_eq!(answer.status, expected, "{role} {path}: {}", answer.text);
                let names_roles = answer.text.contains("this needs the role");
                assert_eq!(names_roles, expected == StatusCode::FORBIDDEN, "{}", answer.text);
            }
        }
    }
    let token = AdminToken::of(b"secret").to_text();
    for (path, _) in PATHS {
        assert_eq!(process.bearer("GET", path, &token).await.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_tenant_admin_reaches_its_own_tenant_alone() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let key = process.key(AdminRole::TenantAdmin);
    let status = async |method: &str, target: &str, body: &str| {
        process.signed(&key, method, target, body).await.status
    };
    for (method, target, body) in [
        ("GET", "/tenant?tenant=own", ""),
        ("GET", "/tenant?tenant=%6Fwn", ""),
        ("DELETE", "/tenant?tenant=own", ""),
        ("PUT", "/tenant?tenant=other", r#"{"tenant": "own"}"#),
    ] {
        assert_eq!(status(method, target, body).await, StatusCode::OK, "{method} {target} {body}");
    }
    let reached = process.reached.load(Ordering::Relaxed);
    for (method, target, body) in [
        ("GET", "/tenant?tenant=other", ""),
        ("GET", "/tenant?tenant=%6Fther", ""),
        ("GET", "/tenant?tenant=own&tenant=other", ""),
        ("GET", "/tenant?tenant=other&tenant=own", ""),
        ("GET", "/tenant?tenant=missing", ""),
        ("GET", "/tenant?tenant=id%20of%20own", ""),
        ("GET", "/tenant", ""),
        ("GET", "/tenant?tenant=", ""),
        ("GET", "/tenant?Tenant=own", ""),
        ("GET", "/tenant", r#"{"tenant": "own"}"#),
        ("DELETE", "/tenant?tenant=other", r#"{"tenant": "own"}"#),
        ("PUT", "/tenant?tenant=own", r#"{"tenant": "other"}"#),
        ("PUT", "/tenant?tenant=own", r#"{"tenant": "own", "tenant": "other"}"#),
        ("PUT", "/tenant?tenant=own", ""),
        ("PUT", "/tenant?tenant=own", r#"{"tenant": ["own"]}"#),
        ("GET", "/operate?tenant=own", ""),
    ] {
        let answer = status(method, target, body).await;
        assert_eq!(answer, StatusCode::FORBIDDEN, "{method} {target} {body}");
    }
    for target in ["/%74enant?tenant=own", "/tenant/?tenant=own", "//tenant?tenant=own", "/nothing"]
    {
        assert_eq!(status("GET", target, "").await, StatusCode::NOT_FOUND, "{target}");
    }
    assert_eq!(status("POST", "/tenant?tenant=own", "").await, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(process.reached.load(Ordering::Relaxed), reached, "no handler was reached");
}

#[tokio::test]
async fn members_without_accounts_accept_young_sessions_of_operators_and_viewers() {
    let process = TestProcess::new(Kind::Member).await;
    let [operator, viewer] = [AdminRole::Operator, AdminRole::Viewer].map(|it| process.key(it));
    let answer = async |claims: &SessionClaims| {
        process.bearer("GET", "/operate", &process.secret.seal(claims)).await
    };
    let session = process.session(&operator, 12 * HOUR_MS);
    assert_eq!(answer(&session).await.status, StatusCode::OK);
    let of_viewer = answer(&process.session(&viewer, HOUR_MS)).await;
    assert_eq!(of_viewer.status, StatusCode::FORBIDDEN, "{}", of_viewer.text);
    let reader = process.secret.seal(&process.session(&viewer, HOUR_MS));
    assert_eq!(process.bearer("GET", "/read", &reader).await.status, StatusCode::OK);
    let by_key = process.signed(&operator, "GET", "/operate", "").await;
    assert!(by_key.text.contains("begin a session at a proxy"), "{}", by_key.text);
    process.clock.0.fetch_add(5 * 60 * 1000 + 1, Ordering::Relaxed);
    let old = answer(&session).await;
    assert_eq!(old.status, StatusCode::UNAUTHORIZED);
    assert!(old.text.contains("first five minutes"), "{}", old.text);
    let token = AdminToken::of(b"secret").to_text();
    assert_eq!(process.bearer("GET", "/operate", &token).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_key_of_an_operator_has_sessions_that_may_read_alone() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let [operator, viewer] = [AdminRole::Operator, AdminRole::Viewer].map(|it| process.key(it));
    let status = async |path: &str, claims: &SessionClaims| {
        process.bearer("GET", path, &process.secret.seal(claims)).await.status
    };
    let reader = SessionClaims { role: AdminRole::Viewer, ..process.session(&operator, HOUR_MS) };
    assert_eq!(status("/read", &reader).await, StatusCode::OK);
    assert_eq!(status("/operate", &reader).await, StatusCode::FORBIDDEN);
    let more = SessionClaims { role: AdminRole::Operator, ..process.session(&viewer, HOUR_MS) };
    assert_eq!(status("/read", &more).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_session_of_one_path_gets_this_path_and_nothing_else() {
    for kind in [Kind::WithAccounts, Kind::Member] {
        let process = TestProcess::new(kind).await;
        let operator = process.key(AdminRole::Operator);
        let token = process.reading(&operator, Some("storage node n1"));
        let status =
            async |method: &str, path: &str| process.bearer(method, path, &token).await.status;
        assert_eq!(status("GET", "/operate").await, StatusCode::OK);
        assert_eq!(status("GET", "/operate?x=1").await, StatusCode::OK);
        assert_eq!(status("PUT", "/operate").await, StatusCode::FORBIDDEN);
        assert_eq!(status("GET", "/read").await, StatusCode::FORBIDDEN);
        assert_eq!(status("GET", "/operate/more").await, StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn a_session_of_one_path_is_for_one_process() {
    for kind in [Kind::WithAccounts, Kind::Member] {
        let process = TestProcess::new(kind).await;
        let operator = process.key(AdminRole::Operator);
        for (at, status) in [
            (Some("proxy p1"), StatusCode::OK),
            (Some("proxy p2"), StatusCode::FORBIDDEN),
            (Some("proxy p"), StatusCode::FORBIDDEN),
            (None, StatusCode::FORBIDDEN),
        ] {
            let token = process.reading(&operator, at);
            let answer = process.bearer("GET", "/operate", &token).await;
            assert_eq!(answer.status, status, "{at:?}: {}", answer.text);
            let names_both = answer.text.contains("this process is proxy p1, storage node n1");
            assert_eq!(names_both, status == StatusCode::FORBIDDEN, "{}", answer.text);
        }
    }
}

#[tokio::test]
async fn each_change_leaves_one_record_for_any_outcome() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let [viewer, operator] = [AdminRole::Viewer, AdminRole::Operator].map(|it| process.key(it));
    let done = process.signed(&operator, "PUT", "/operate", "{}").await;
    assert!(done.id, "the reply names the record");
    process.signed(&viewer, "PUT", "/operate", "{}").await;
    let failed = process.signed(&operator, "POST", "/panics", "").await;
    assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!process.signed(&operator, "GET", "/operate", "").await.id);
    process.signed(&operator, "PUT", "/nothing", "").await;
    assert_eq!(process.records(""), ["PUT /operate done", "POST /panics failed"]);
    assert_eq!(process.records(TENANTS), ["PUT /operate refused"], "they push no other out");
    let echoed = process.signed(&operator, "POST", "/echo", "the body").await;
    assert_eq!((echoed.status, echoed.text.as_str()), (StatusCode::OK, "the body"));
}

#[tokio::test]
async fn a_computation_is_for_its_roles_and_leaves_no_record() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let [viewer, operator] = [AdminRole::Viewer, AdminRole::Operator].map(|it| process.key(it));
    let computed = process.signed(&operator, "POST", "/compute", "a body").await;
    assert_eq!((computed.status, computed.text.as_str()), (StatusCode::OK, "a body"));
    assert!(!computed.id);
    let refused = process.signed(&viewer, "POST", "/compute", "a body").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    process.signed(&operator, "PUT", "/operate", "{}").await;
    assert_eq!(process.records(""), ["PUT /operate done"]);
    let outcomes = std::fs::read_to_string(process.folder.path().join("tenants/audit-1.jsonl"));
    assert!(outcomes.unwrap_or_default().is_empty(), "the refusal has no record either");
}

#[tokio::test]
async fn a_change_ends_though_its_client_leaves() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let key = process.key(AdminRole::Operator);
    let request = sign(&key, "PUT", "/operate", "{}", process.now_ms());
    let reply = process.operator.clone().router().oneshot(request);
    let mut reply = Box::pin(reply);
    // The client leaves as soon as the change was handed to its task.
    while process.reached.load(Ordering::Relaxed) == 0 {
        tokio::select! {
            biased;
            _ = &mut reply => break,
            () = tokio::task::yield_now() => {}
        }
    }
    drop(reply);
    while process.records("").is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(process.records(""), ["PUT /operate done"]);
}

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let key = process.key(AdminRole::Operator);
    let body = "x".repeat((1 << 20) + 1);
    let answer = process.signed(&key, "POST", "/echo", &body).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_full_audit_disk_refuses_changes_and_shows_in_readiness() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("audit-1.jsonl")).unwrap();
    let process = TestProcess::with_log_in(Kind::WithAccounts, folder).await;
    let key = process.key(AdminRole::Operator);
    let answer = process.signed(&key, "PUT", "/operate", "{}").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.text.contains("nothing was changed"), "{}", answer.text);
    assert_eq!(process.reached.load(Ordering::Relaxed), 0);
    assert_eq!(process.signed(&key, "GET", "/operate", "").await.status, StatusCode::OK);
    let readiness = process.operator.readiness().await;
    assert!(readiness.ready && readiness.reasons[0].contains("changes are refused"));
}
