//! Own keys of a user through the console: of that user alone, as its policy allows, with records; and
//! the last count of a bucket in the reply to HeadBucket.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use martlet_tests::Setup;
use martlet_tests::s3::{Reply, S3, exchange, exchange_from};
use martlet_tests::server::Server;
use serde_json::{Value, json};
use tokio::time::sleep;

/// Browser that signed in with an access key.
struct Browser {
    console: SocketAddr,
    cookie: String,
    csrf: String,
}

fn console_of(server: &Server) -> SocketAddr {
    let printed = server.printed();
    let (_, url) = printed.split_once("Console for browsers: http://").unwrap();
    url.split_whitespace().next().unwrap().parse().unwrap()
}

fn value(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|_| panic!("{}", reply.text()))
}

fn asked(server: &Server, arguments: &[&str]) -> Value {
    let output = server.ask(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Makes the user `name` of the tenant `lab`, who may do everything with own keys, and a key.
fn make_user(setup: &Setup, server: &Server, name: &str) -> (String, String) {
    asked(server, &["user", "create", "--tenant", "lab", name]);
    put_policy(setup, server, name, &json!(["s3:*", "iam:*"]));
    make_key(server, name, &[])
}

/// Gives a user a policy that allows these actions on everything.
fn put_policy(setup: &Setup, server: &Server, name: &str, actions: &Value) {
    let file = setup.join(&format!("policy-{name}"));
    let statement = json!({"Effect": "Allow", "Action": actions, "Resource": "*"});
    std::fs::write(&file, json!({ "Statement": [statement] }).to_string()).unwrap();
    let file = file.to_str().unwrap();
    asked(server, &["user", "policy", "put", "--tenant", "lab", name, file]);
}

fn make_key(server: &Server, name: &str, more: &[&str]) -> (String, String) {
    let arguments = [&["key", "create", "--tenant", "lab", "--user", name], more].concat();
    let made = asked(server, &arguments);
    let line = made.as_array().map_or(&made, |lines| &lines[0]);
    let text = |name: &str| line[name].as_str().unwrap().to_owned();
    (text("access_key"), text("secret_key"))
}

impl Browser {
    async fn sign_in(server: &Server, (key, secret): &(String, String)) -> Self {
        let console = console_of(server);
        let browser = Self { console, cookie: String::new(), csrf: String::new() };
        let body = json!({ "key": key, "secret": secret }).to_string();
        let reply = browser.send("POST", "/session", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
        let csrf = value(&reply)["csrf"].as_str().unwrap().to_owned();
        Self { cookie, csrf, ..browser }
    }

    async fn send(&self, method: &str, target: &str, body: &str) -> Reply {
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", self.console.to_string())
            .header("content-type", "application/json")
            .header("content-length", body.len())
            .header("cookie", &self.cookie)
            .header("x-martlet-csrf", &self.csrf);
        let body = Full::new(Bytes::from(body.to_owned()));
        exchange(self.console, request.body(body).unwrap()).await.unwrap()
    }

    /// Makes a key, and returns the reply's fields.
    async fn make(&self) -> (String, String) {
        let reply = self.send("POST", "/own/keys", "").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let made = value(&reply);
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("access_key"), text("secret_key"))
    }

    async fn names(&self) -> Vec<String> {
        let reply = self.send("GET", "/own/keys", "").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(!reply.text().contains("secret"), "{}", reply.text());
        let list = value(&reply);
        let names = list["items"].as_array().unwrap().iter();
        names.map(|key| key["access_key"].as_str().unwrap().to_owned()).collect()
    }

    async fn delete(&self, key: &str) -> Reply {
        self.send("DELETE", &format!("/own/keys?access_key={key}"), "").await
    }

    async fn rotate(&self, key: &str) -> Reply {
        self.send("POST", "/own/keys/rotate", &json!({ "access_key": key }).to_string()).await
    }
}

async fn store() -> (Setup, Server) {
    let setup = Setup::new().flags(&["--console-address", "127.0.0.1:0"]);
    let server = setup.start().await;
    asked(&server, &["tenant", "create", "lab"]);
    (setup, server)
}

#[tokio::test]
async fn a_user_reaches_own_keys_alone_and_every_change_is_recorded() {
    let (setup, server) = store().await;
    let alice_key = make_user(&setup, &server, "alice");
    let bob_key = make_user(&setup, &server, "bob");
    let alice = Browser::sign_in(&server, &alice_key).await;
    let made = alice.make().await;
    let names = alice.names().await;
    assert!(names.len() == 2 && names.contains(&made.0), "{names:?}");
    let mut client = S3::with_keys(server.s3_address, &made.0, &made.1);
    client.make_bucket("train").await;
    let bob = Browser::sign_in(&server, &bob_key).await;
    assert_eq!(bob.names().await, std::slice::from_ref(&bob_key.0));
    for key in [&alice_key.0, &made.0, &"NOBODY".to_owned()] {
        assert_eq!(bob.delete(key).await.status, 404);
        assert_eq!(bob.rotate(key).await.status, 404);
    }
    let rotated = value(&alice.rotate(&made.0).await);
    assert_ne!(rotated["secret_key"].as_str().unwrap(), made.1);
    let own = alice.delete(&alice_key.0).await;
    assert!(own.status == 409 && own.text().contains("can't delete itself"), "{}", own.text());
    assert_eq!(alice.delete(&made.0).await.status, 200);
    assert_eq!(alice.names().await, std::slice::from_ref(&alice_key.0));
    let audit = setup.data_dir().join("audit/tenants/audit-1.jsonl");
    let audit = std::fs::read_to_string(audit).unwrap();
    let records: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |operation: &str, user: &str| {
        let is_it = |record: &&Value| {
            record["operation"] == operation
                && record["who"]["name"] == user
                && record["outcome"].is_string()
        };
        records.iter().filter(is_it).count()
    };
    assert_eq!(of("CreateAccessKey", "alice"), 1);
    assert_eq!((of("RotateAccessKey", "alice"), of("RotateAccessKey", "bob")), (1, 3));
    assert_eq!((of("DeleteAccessKey", "alice"), of("DeleteAccessKey", "bob")), (2, 3));
    assert!(audit.contains(&made.0) && !audit.contains(&made.1));
    let maker = records.iter().find(|record| record["operation"] == "CreateAccessKey").unwrap();
    assert_eq!(maker["who"]["key"], alice_key.0.as_str());
    // Names that are no keys are refused before they are recorded.
    let long = "a".repeat(60_000);
    assert_eq!(alice.rotate(&long).await.status, 400);
    let after = std::fs::read_to_string(setup.data_dir().join("audit/tenants/audit-1.jsonl"));
    assert_eq!(after.unwrap().len(), audit.len());
    // A session signs no more once its own key has a new secret.
    let own = value(&alice.rotate(&alice_key.0).await);
    assert_eq!(own["ends_session"], true);
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(alice.send("GET", "/own/keys", "").await.status, 403);
    let fresh = (alice_key.0, own["secret_key"].as_str().unwrap().to_owned());
    Browser::sign_in(&server, &fresh).await.names().await;
}

#[tokio::test]
async fn limits_of_a_key_bind_the_keys_that_it_makes() {
    let (setup, server) = store().await;
    let free = make_user(&setup, &server, "alice");
    // Two addresses, that of the tests among them, and not 127.0.0.2.
    let limited = make_key(&server, "alice", &["--network", "127.0.0.0/31"]);
    let browser = Browser::sign_in(&server, &limited).await;
    let (made, secret) = browser.make().await;
    let line = asked(&server, &["key", "list", "--tenant", "lab"]);
    let line = line.as_array().unwrap().iter().find(|line| line["access_key"] == made).unwrap();
    assert_eq!(line["networks"], json!(["127.0.0.0/31"]));
    let status_from = async |key: &str, secret: &str, local: Ipv4Addr| {
        let client = S3::with_keys(server.s3_address, key, secret);
        let request = client.request("GET", "/", Bytes::new());
        exchange_from(local, server.s3_address, request).await.unwrap().status
    };
    let outside = Ipv4Addr::new(127, 0, 0, 2);
    assert_eq!(status_from(&made, &secret, Ipv4Addr::LOCALHOST).await, 200);
    assert_eq!(status_from(&made, &secret, outside).await, 403);
    assert_eq!(status_from(&free.0, &free.1, outside).await, 200, "that key has no networks");
    let refused = browser.rotate(&free.0).await;
    assert!(refused.status == 409 && refused.text().contains("has limits"), "{}", refused.text());
    assert_eq!(browser.delete(&free.0).await.status, 409);
    assert_eq!(browser.delete(&made).await.status, 200, "its limits are equal");
    // A key that an operator disables makes, rotates and deletes none.
    let other = make_key(&server, "alice", &[]);
    asked(&server, &["key", "disable", &limited.0]);
    sleep(Duration::from_millis(1500)).await;
    for reply in [
        browser.send("POST", "/own/keys", "").await,
        browser.rotate(&limited.0).await,
        browser.delete(&other.0).await,
    ] {
        assert_eq!(reply.status, 403, "{}", reply.text());
    }
    let keys = asked(&server, &["key", "list", "--tenant", "lab"]);
    assert_eq!(keys.as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn requests_beyond_the_rate_of_a_key_are_not_recorded() {
    let (setup, server) = store().await;
    let own = make_user(&setup, &server, "alice");
    let browser = Browser::sign_in(&server, &own).await;
    asked(&server, &["key", "limit", &own.0, "--requests", "1"]);
    sleep(Duration::from_millis(1500)).await;
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..30 {
        match browser.delete("NOBODY").await.status {
            404 => admitted += 1,
            503 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert!(admitted > 0 && refused > 0, "{admitted} {refused}");
    let audit = setup.data_dir().join("audit/tenants/audit-1.jsonl");
    let audit = std::fs::read_to_string(audit).unwrap();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_end =
        |line: &Value| line["operation"] == "DeleteAccessKey" && line["outcome"].is_string();
    assert_eq!(lines.filter(is_end).count(), admitted);
}

#[tokio::test]
async fn policies_of_the_user_decide_about_own_keys() {
    let (setup, server) = store().await;
    let own = make_user(&setup, &server, "alice");
    let browser = Browser::sign_in(&server, &own).await;
    let (made, _) = browser.make().await;
    // A policy without an Allow for keys leaves none, and neither does no policy.
    put_policy(&setup, &server, "alice", &json!("s3:*"));
    sleep(Duration::from_millis(1500)).await;
    for reply in [
        browser.send("GET", "/own/keys", "").await,
        browser.send("POST", "/own/keys", "").await,
        browser.rotate(&made).await,
        browser.delete(&made).await,
    ] {
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert!(reply.text().contains("is not authorized to perform: iam:"), "{}", reply.text());
    }
    asked(&server, &["user", "policy", "delete", "--tenant", "lab", "alice"]);
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(browser.send("POST", "/own/keys", "").await.status, 403);
    // Keys of a tenant and the root key have no user.
    let made = asked(&server, &["key", "create", "--tenant", "lab"]);
    let line = made.as_array().map_or(&made, |lines| &lines[0]);
    let text = |name: &str| line[name].as_str().unwrap().to_owned();
    let tenant = Browser::sign_in(&server, &(text("access_key"), text("secret_key"))).await;
    assert_eq!(tenant.send("POST", "/own/keys", "").await.status, 403);
    // Requests without the token of the session change nothing.
    let stranger = Browser { csrf: String::new(), ..browser };
    assert_eq!(stranger.send("POST", "/own/keys", "").await.status, 403);
}

#[tokio::test]
async fn head_bucket_returns_the_last_count_to_who_may_list() {
    let (setup, server) = store().await;
    let alice = make_user(&setup, &server, "alice");
    let mut client = S3::with_keys(server.s3_address, &alice.0, &alice.1);
    client.make_bucket("train").await;
    client.put("/train/a", Bytes::from(vec![1; 2048])).await.unwrap();
    let output = server.ask(&["bucket", "quota", "train", "--bytes", "1GiB"]);
    assert!(output.status.success(), "{output:?}");
    let usage = [("x-martlet-usage", "true")];
    let mut found = None;
    for _ in 0..60 {
        let reply = client.send_with("HEAD", "/train", &usage, Bytes::new()).await.unwrap();
        assert_eq!(reply.status, 200);
        if reply.header("x-martlet-usage-objects") == "1" {
            found = Some(reply);
            break;
        }
        sleep(Duration::from_millis(500)).await;
    }
    let reply = found.expect("a bucket with a quota is counted every ten seconds");
    assert_eq!(reply.header("x-martlet-usage-bytes"), "2048");
    assert!(reply.header("x-martlet-usage-counted").parse::<u64>().unwrap() > 0);
    let plain = client.send("HEAD", "/train", Bytes::new()).await.unwrap();
    assert_eq!(plain.header("x-martlet-usage-objects"), "", "unless a request needs it");
    asked(&server, &["tenant", "create", "other"]);
    let made = asked(&server, &["key", "create", "--tenant", "other"]);
    let line = made.as_array().map_or(&made, |lines| &lines[0]);
    let text = |name: &str| line[name].as_str().unwrap();
    let mut stranger = S3::with_keys(server.s3_address, text("access_key"), text("secret_key"));
    let reply = stranger.send_with("HEAD", "/train", &usage, Bytes::new()).await.unwrap();
    assert_eq!(reply.status, 403);
    // Another account that may list the bucket sees no versions, and no count of them.
    let policy = json!({"Statement": [{"Effect": "Allow", "Action": "s3:ListBucket",
        "Principal": {"AWS": "arn:aws:iam::other:root"}, "Resource": "arn:aws:s3:::train"}]});
    let put = client.send("PUT", "/train?policy=", Bytes::from(policy.to_string())).await.unwrap();
    assert_eq!(put.status, 204, "{}", put.text());
    sleep(Duration::from_millis(1500)).await;
    let reply = stranger.send_with("HEAD", "/train", &usage, Bytes::new()).await.unwrap();
    assert_eq!((reply.status, reply.header("x-martlet-usage-bytes")), (200, ""));
}
