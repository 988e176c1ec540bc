//! OpenAPI document of the admin API: each documented operation has a route, each path of the admin
//! API is documented, and all references lead somewhere.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use martlet_tests::Setup;
use martlet_tests::s3::{Reply, SECRET_KEY, exchange};
use serde_json::Value;

const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Paths that the crate of the messages names.
fn named_paths() -> BTreeSet<String> {
    let mut files = Vec::new();
    rust_files(&repository().join("admin-api/src"), &mut files);
    let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
    let mut paths = BTreeSet::new();
    for text in texts {
        let quoted = text.split('"').skip(1).step_by(2);
        paths.extend(quoted.filter(|it| it.starts_with("/admin/v1/")).map(str::to_owned));
    }
    paths
}

async fn asked(address: SocketAddr, method: &str, path: &str) -> Reply {
    let token = blake3::derive_key("martlet admin token v1", SECRET_KEY.as_bytes());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", address.to_string())
        .header("authorization", format!("Bearer {}", hex::encode(token)))
        .body(Full::new(Bytes::new()))
        .unwrap();
    exchange(address, request).await.unwrap()
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_consoles_types_are_made_of_this_document() {
    let server = Setup::new().start().await;
    let output = server.ask(&["openapi"]);
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kept = fs::read_to_string(repository().join("console/web/admin-api.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert!(
        document == kept,
        "console/web/admin-api.json is of another version: write there the output of martlet admin \
         openapi for a server, and run make console"
    );
}

#[tokio::test]
async fn routes_and_document_are_the_same_set() {
    let server = Setup::new().start().await;
    let output = server.ask(&["openapi"]);
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut operations = 0;
    let mut ids = BTreeSet::new();
    for (path, methods) in paths {
        // Without parameters, operations that change something are refused.
        let target = path.replace(['{', '}'], "");
        for method in METHODS {
            let reply = asked(server.admin_address, method, &target).await;
            let is_route = reply.status != 405;
            let described = &methods[method.to_lowercase()];
            assert_eq!(is_route, described.is_object(), "{method} {path}: {}", reply.status);
            if let Some(id) = described["operationId"].as_str() {
                let is_known = reply.status != 404 || reply.text().contains("\"error\"");
                assert!(is_known, "{method} {path} has no route");
                assert!(ids.insert(id.to_owned()), "{id} is the name of two operations");
                operations += 1;
            }
        }
    }
    assert!(operations > 40, "{operations}");
    for path in named_paths() {
        assert!(paths.contains_key(&path), "{path} has no description");
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("PageOfBucketSummary"), "{:?}", schemas.keys());
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    assert_eq!(asked(server.admin_address, "GET", "/admin/v1/nothing").await.status, 404);
}

#[test]
fn no_route_of_the_admin_api_is_without_a_description() {
    let mut files = Vec::new();
    rust_files(&repository().join("admin-server/src"), &mut files);
    let of_roles =
        ["membership/src/status.rs", "src/process/admin_status.rs", "src/server/operator.rs"];
    files.extend(of_roles.map(|name| repository().join(name)));
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("Router::new"), "{} has routes of its own", path.display());
    }
}
