//! Principals of the admin API: every route of the document with each role, for its own and for
//! another tenant; audit records of every change; keys, sessions and their end by commands.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use martlet_serving::access::{SigningKey, UnsignedRequest};
use martlet_tests::Setup;
use martlet_tests::s3::{Reply, S3, SECRET_KEY, encoded, exchange};
use martlet_tests::server::{Server, finished, martlet};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

/// Text in every secret field of requests, which no audit record may have.
const CANARY: &str = "canary-canary-canary";
const PATIENCE: Duration = Duration::from_secs(20);
/// Roles in the order of their requests. Tenant admins delete what operators would delete, too.
const ROLES: [&str; 3] = ["viewer", "tenant-admin", "operator"];

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}"))
}

/// Runs a command with the root secret.
fn asked(server: &Server, arguments: &[&str]) -> Value {
    let output = server.ask(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Makes an admin key by a command with the root secret.
fn key(server: &Server, role: &str) -> SigningKey {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let mut arguments = vec!["key", "create", "--role", role, "--name", role];
    arguments.extend(["--key-file", file.to_str().unwrap()]);
    if role == "tenant-admin" {
        arguments.extend(["--tenant", "own"]);
    }
    asked(server, &arguments);
    SigningKey { id: id_of(&file), secret: value_of(&file, "MARTLET_ADMIN_SECRET=") }
}

#[expect(clippy::disallowed_methods, reason = "signatures carry the time of the server's clock")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

async fn signed(
    server: &Server,
    key: &SigningKey,
    method: &str,
    target: &str,
    body: &str,
) -> Reply {
    let (address, method) = (server.admin_address, method.parse::<Method>().unwrap());
    let host = address.to_string();
    let unsigned = UnsignedRequest { method: &method, target, host: &host, body: body.as_bytes() };
    let headers = key.sign(unsigned, now_ms());
    let mut request = Request::builder().method(method).uri(target).header("host", &host);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let body = Full::new(Bytes::from(body.to_owned()));
    exchange(address, request.body(body).unwrap()).await.unwrap()
}

async fn unsigned(server: &Server, method: &str, target: &str) -> Reply {
    unsigned_at(server.admin_address, method, target).await
}

/// Records of an audit folder that have an outcome.
fn records(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("audit-1.jsonl")).unwrap();
    // A torn line is no record.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["outcome"].is_string()).collect()
}

/// Operation of the document.
struct Operation {
    method: String,
    path: String,
    roles: Vec<String>,
    /// Field that names the tenant, a bucket or an access key of the tenant.
    tenant_field: Option<String>,
    has_body: bool,
    /// True if it changes nothing, though its method is POST.
    computes: bool,
}

impl Operation {
    fn is_change(&self) -> bool {
        self.method != "GET" && !self.computes
    }

    /// Target and body of a request for what belongs to `tenant`.
    fn request(&self, tenant: &str) -> (String, String) {
        let Some(field) = &self.tenant_field else {
            return (self.path.clone(), self.body(Map::new()));
        };
        let value = match field.as_str() {
            "tenant" => tenant.to_owned(),
            "bucket" | "name" => format!("{tenant}-bucket"),
            "access_key" => format!("KEYOF{tenant}"),
            other => panic!("{other} leads to no tenant"),
        };
        if self.has_body {
            let fields = [(field.clone(), Value::from(value))].into_iter().collect();
            return (self.path.clone(), self.body(fields));
        }
        (format!("{}?{field}={}", self.path, encoded(&value)), String::new())
    }

    fn body(&self, mut fields: Map<String, Value>) -> String {
        if !self.has_body {
            return String::new();
        }
        for secret in ["secret_key", "secret", "token", "policy", "trust", "rules"] {
            fields.insert(secret.to_owned(), Value::from(CANARY));
        }
        Value::Object(fields).to_string()
    }
}

/// Operations behind the gate. The deletion of access keys comes last, for others need the keys.
fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            let Some(roles) = about["x-roles"].as_array() else {
                assert_eq!(about["security"], json!([]), "{method} {path} has no rule");
                continue;
            };
            operations.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                roles: roles.iter().map(|role| role.as_str().unwrap().to_owned()).collect(),
                tenant_field: about["x-tenant-of"].as_str().map(str::to_owned),
                has_body: about["requestBody"].is_object(),
                computes: about["x-computes"] == true,
            });
        }
    }
    operations.sort_by_key(|it| it.method == "DELETE" && it.path == "/admin/v1/key");
    operations
}

/// Makes two tenants with an access key and a bucket each.
async fn tenants(server: &Server) {
    for tenant in ["own", "other"] {
        asked(server, &["tenant", "create", tenant]);
        let access_key = format!("KEYOF{tenant}");
        let secret = format!("secret of {tenant}");
        let arguments = ["key", "create", "--tenant", tenant, "--access-key", &access_key];
        asked(server, &[&arguments[..], &["--secret-key", &secret]].concat());
        let mut client = S3::with_keys(server.s3_address, &access_key, &secret);
        client.make_bucket(&format!("{tenant}-bucket")).await;
    }
}

#[tokio::test]
async fn every_route_admits_its_roles_and_every_change_leaves_one_record() {
    let setup = Setup::new();
    let server = setup.start().await;
    tenants(&server).await;
    let of_operators = setup.data_dir().join("audit");
    let of_tenants = of_operators.join("tenants");
    let keys = ROLES.map(|role| (role, key(&server, role)));
    let document = asked(&server, &["openapi"]);
    let operations = operations(&document);
    assert!(operations.len() > 50, "{}", operations.len());
    for operation in &operations {
        let Operation { method, path, .. } = operation;
        let refused = unsigned(&server, method, path).await;
        assert_eq!(refused.status, 401, "{method} {path}");
        assert!(refused.text().contains("use martlet admin"), "{}", refused.text());
        for (role, key) in &keys {
            for tenant in ["own", "other"] {
                let folder = if *role == "operator" { &of_operators } else { &of_tenants };
                let before = records(folder).len();
                let (target, body) = operation.request(tenant);
                let reply = signed(&server, key, method, &target, &body).await;
                let is_own = operation.tenant_field.is_none() || tenant == "own";
                let is_admitted = operation.roles.iter().any(|it| it == role)
                    && (*role != "tenant-admin" || is_own);
                let (status, text) = (reply.status, reply.text());
                let about = format!("{role} {method} {target} {body}: {status} {text}");
                assert_ne!(status, 401, "{about}");
                assert_eq!(status == 403, !is_admitted, "{about}");
                assert!(is_admitted || text.contains("this needs the role"), "{about}");
                let records = records(folder);
                assert_eq!(records.len() - before, usize::from(operation.is_change()), "{about}");
                if operation.is_change() {
                    let record = records.last().unwrap();
                    assert_eq!(record["operation"], format!("{method} {path}"), "{about}");
                    assert_eq!(record["status"], status, "{about}");
                    assert_eq!(record["who"]["key"], key.id, "{about}");
                    assert_eq!(record["id"], reply.header("x-martlet-request-id"), "{about}");
                    let outcome = if status < 300 { "done" } else { "refused" };
                    assert!(status >= 500 || record["outcome"] == outcome, "{about}: {record}");
                }
            }
        }
    }
    let all = [&of_operators, &of_tenants]
        .map(|folder| fs::read_to_string(folder.join("audit-1.jsonl")).unwrap())
        .concat();
    assert!(!all.contains("canary") && !all.contains(SECRET_KEY));
    for (_, key) in &keys {
        assert!(!all.contains(&key.secret));
    }
    assert!(!server.logged().contains("canary"), "{}", server.logged());
    let shown = asked(&server, &["key", "list", "--admin"]);
    assert_eq!(shown.as_array().unwrap().len(), 3, "no refused request made a key: {shown}");
}

/// Runs `martlet admin` with a key file.
fn by_key(server: &Server, file: &Path, arguments: &[&str]) -> Output {
    let address = server.admin_address.to_string();
    let mut command = martlet(&["admin", "--admin-address", &address, "--admin-key-file"]);
    finished(command.arg(file).args(arguments))
}

fn by_session(server: &Server, token: &str, arguments: &[&str]) -> Output {
    let address = server.admin_address.to_string();
    let mut command = martlet(&["admin", "--admin-address", &address]);
    finished(command.env("MARTLET_ADMIN_SESSION", token).args(arguments))
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn key_file(setup: &Setup, server: &Server, role: &str, by: Option<&Path>) -> PathBuf {
    let file = setup.join(&format!("{role}.key"));
    let mut arguments = vec!["key", "create", "--role", role, "--name", role, "--expires", "1d"];
    if role == "tenant-admin" {
        arguments.extend(["--tenant", "own"]);
    }
    arguments.extend(["--key-file", file.to_str().unwrap()]);
    let output = match by {
        Some(by) => by_key(server, by, &arguments),
        None => server.ask(&arguments),
    };
    assert!(!printed(&output).contains("secret"), "{output:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    file
}

fn id_of(file: &Path) -> String {
    value_of(file, "MARTLET_ADMIN_KEY=")
}

fn value_of(file: &Path, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
}

/// Waits until a command fails.
async fn until_refused(what: &str, run: impl Fn() -> Output) -> String {
    let begun = Instant::now();
    loop {
        let output = run();
        if !output.status.success() {
            return complaint(&output);
        }
        assert!(begun.elapsed() < PATIENCE, "{what} is accepted");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn keys_and_sessions_work_survive_a_restart_and_end() {
    let setup = Setup::new();
    let mut server = setup.start().await;
    asked(&server, &["tenant", "create", "own"]);
    let operator = key_file(&setup, &server, "operator", None);
    // From here on, tokens of secrets are refused.
    server.stop().await;
    let setup = setup.flags(&["--admin-allow-token", "false"]);
    let mut server = setup.start().await;
    let refusal = complaint(&server.ask(&["status"]));
    assert!(refusal.contains("--admin-key-file"), "{refusal}");
    assert!(printed(&by_key(&server, &operator, &["status"])).contains("is ready"));

    let admin = key_file(&setup, &server, "tenant-admin", Some(&operator));
    let users = ["user", "create", "--tenant", "own", "ann"];
    assert!(printed(&by_key(&server, &admin, &users)).contains("ann"));
    let refusal = complaint(&by_key(&server, &admin, &["tenant", "list"]));
    assert!(refusal.contains("this needs the role viewer or operator"), "{refusal}");
    let token = printed(&by_key(&server, &operator, &["session", "begin", "--for", "2h"]));
    let token = token.trim().to_owned();
    let shown = printed(&by_session(&server, &token, &["session", "show"]));
    assert!(shown.starts_with("operator by session"), "{shown}");
    let refusal = complaint(&by_session(&server, &token, &["session", "begin"]));
    assert!(refusal.contains("sign the request by an admin key"), "{refusal}");

    server.stop().await;
    let server = setup.start().await;
    assert!(by_session(&server, &token, &["status"]).status.success(), "it survives a restart");
    let other = printed(&by_key(&server, &operator, &["session", "begin"])).trim().to_owned();
    printed(&by_session(&server, &other, &["session", "end"]));
    let refusal =
        until_refused("an ended session", || by_session(&server, &other, &["status"])).await;
    assert!(refusal.contains("the session was ended"), "{refusal}");
    assert!(by_session(&server, &token, &["status"]).status.success());

    let records = printed(&by_session(&server, &token, &["audit", "--what", "ann"]));
    assert!(records.contains("tenant-admin of own (tenant-admin)"), "{records}");
    assert!(records.contains("POST /admin/v1/users") && records.contains("done 200"), "{records}");
    let of_tenant = printed(&by_key(&server, &admin, &["audit", "--json"]));
    let of_tenant: Vec<Value> =
        of_tenant.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!of_tenant.is_empty());
    // An operator's change of the tenant is a record of the tenant too.
    let is_own = |it: &Value| [&it["who"], &it["target"]].iter().any(|of| of["tenant"] == "own");
    assert!(of_tenant.iter().all(is_own), "{of_tenant:?}");

    printed(&by_key(&server, &operator, &["key", "revoke", &id_of(&admin)]));
    let status = || by_key(&server, &admin, &["session", "show"]);
    let refusal = until_refused("a revoked key", status).await;
    assert!(refusal.contains("revoked"), "{refusal}");
    printed(&by_session(&server, &token, &["key", "revoke", &id_of(&operator)]));
    until_refused("a session of a revoked key", || by_session(&server, &token, &["status"])).await;
}

#[tokio::test]
async fn a_killed_server_knows_the_changes_that_it_did_not_end() {
    let setup = Setup::new();
    let mut server = setup.start().await;
    asked(&server, &["tenant", "create", "own"]);
    server.kill();
    let path = setup.data_dir().join("audit/audit-1.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let begun = text.lines().next().unwrap().replace(r#""id":""#, r#""id":"lost"#);
    assert!(begun.contains("POST /admin/v1/tenants") && !begun.contains("outcome"), "{begun}");
    fs::write(&path, format!("{text}{begun}\n{{\"v\":1,\"id\":\"torn")).unwrap();
    let server = setup.start().await;
    let outcomes: Vec<String> = records(&setup.data_dir().join("audit"))
        .iter()
        .map(|record| text_of(record, "outcome"))
        .collect();
    assert_eq!(outcomes, ["done", "unknown"]);
    assert_eq!(server.metric("martlet_audit_writable").await, 1);
}

fn text_of(value: &Value, name: &str) -> String {
    text(value, name).to_owned()
}

#[tokio::test]
async fn s3_requests_that_configure_buckets_are_recorded_apart() {
    let setup = Setup::new();
    let server = setup.start().await;
    tenants(&server).await;
    let mut own = S3::with_keys(server.s3_address, "KEYOFown", "secret of own");
    let policy = format!(r#"{{"Version": "{CANARY}"}}"#);
    let refused = own.put("/own-bucket?policy=", policy.into()).await.unwrap();
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(own.delete("/other-bucket").await.unwrap().status, 403);
    own.put("/own-bucket/key", Bytes::from("x")).await.unwrap();
    own.get("/own-bucket?policy=").await.unwrap();
    let anonymous = unsigned_at(server.s3_address, "DELETE", "/own-bucket").await;
    assert_eq!(anonymous.status, 403, "{}", anonymous.text());

    let folder = setup.data_dir().join("audit/tenants");
    let lines: Vec<String> = records(&folder)
        .iter()
        .map(|record| {
            let [operation, outcome] = ["operation", "outcome"].map(|name| text(record, name));
            let (who, bucket) = (&record["who"]["tenant"], &record["target"]["bucket"]);
            format!("{operation} {outcome} {who} {bucket}")
        })
        .collect();
    let expected = [
        r#"CreateBucket done "own" "own-bucket""#,
        r#"CreateBucket done "other" "other-bucket""#,
        r#"PutBucketPolicy refused "own" "own-bucket""#,
        r#"DeleteBucket refused "own" "other-bucket""#,
    ];
    assert_eq!(lines, expected);
    let all = fs::read_to_string(folder.join("audit-1.jsonl")).unwrap();
    assert!(!all.contains("canary"), "{all}");
    let shown = printed(&server.ask(&["audit", "--what", "other-bucket"]));
    assert!(shown.contains("other of other (s3)") && shown.contains("CreateBucket"), "{shown}");
}

async fn unsigned_at(address: std::net::SocketAddr, method: &str, target: &str) -> Reply {
    let request = Request::builder().method(method).uri(target);
    let request = request.header("host", address.to_string());
    exchange(address, request.body(Full::default()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn without_an_audit_log_changes_are_refused_and_requests_of_clients_are_not() {
    let setup = Setup::new();
    let place = setup.join("place");
    fs::write(&place, "a file in place of the folder").unwrap();
    let folder = place.join("audit");
    let setup = setup.flags(&["--audit-log", folder.to_str().unwrap()]);
    let mut server = setup.start().await;
    let refusal = complaint(&server.ask(&["tenant", "create", "own"]));
    assert!(refusal.contains("nothing was changed"), "{refusal}");
    let refused = server.client().put("/bucket", Bytes::new()).await.unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("nothing was changed"), "{}", refused.text());
    assert_eq!(server.metric("martlet_audit_writable").await, 0);
    assert!(server.metric("martlet_audit_failures_total").await >= 1);
    let readiness = server.admin("/readyz").await.unwrap();
    assert_eq!(readiness.status, 200, "clients of S3 are served");
    assert!(readiness.text().contains("changes are refused"), "{}", readiness.text());
    fs::remove_file(&place).unwrap();
    asked(&server, &["tenant", "create", "own"]);
    server.client().make_bucket("bucket").await;
    assert_eq!(server.metric("martlet_audit_writable").await, 1);
    server.stop().await;
    fs::rename(&place, setup.join("aside")).unwrap();
    fs::write(&place, "a file again").unwrap();
    let server = setup.start().await;
    let mut client = server.client();
    assert_eq!(client.put("/bucket/key", Bytes::from("x")).await.unwrap().status, 200);
    assert_eq!(client.get("/bucket/key").await.unwrap().status, 200, "objects need no log");
    drop(server);

    let off = Setup::new().flags(&["--audit-log", "off"]);
    let server = off.start().await;
    asked(&server, &["tenant", "create", "own"]);
    assert!(!off.data_dir().join("audit").exists());
    let refusal = complaint(&server.ask(&["audit"]));
    assert!(refusal.contains("set audit_log"), "{refusal}");
}
