//! Builders of rings by the admin API: equal to those of `martlet ring`, for operators alone, and kept
//! nowhere.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use martlet_tests::Setup;
use martlet_tests::s3::{Reply, SECRET_KEY, exchange};
use martlet_tests::server::{Server, finished, martlet};
use serde_json::{Value, json};

const PATH: &str = "/admin/v1/ring-builder";

/// Sends a request with the token of the root secret.
async fn post(server: &Server, body: String) -> Reply {
    let token = blake3::derive_key("martlet admin token v1", SECRET_KEY.as_bytes());
    let request = Request::post(PATH)
        .header("host", server.admin_address.to_string())
        .header("authorization", format!("Bearer {}", hex::encode(token)))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    exchange(server.admin_address, request).await.unwrap()
}

async fn reply(server: &Server, request: &Value) -> Value {
    let reply = post(server, request.to_string()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

/// Runs `martlet ring` on the builder of a folder. Returns its answer as JSON, or its refusal.
fn ring(folder: &Path, arguments: &[&str]) -> Result<Value, String> {
    let builder = folder.join("data.builder");
    let builder = builder.to_str().unwrap();
    let output = finished(martlet(&["ring", builder, "--json", "--who", "root"]).args(arguments));
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).unwrap());
    }
    let text = String::from_utf8(output.stderr).unwrap();
    Err(text.trim().trim_start_matches("martlet: ").to_owned())
}

/// Builder file without times and checksum.
fn timeless(text: &str) -> Value {
    let mut file: Value = serde_json::from_str(text).unwrap();
    file.as_object_mut().unwrap().remove("blake3");
    for list in ["history", "moves"] {
        for item in file[list].as_array_mut().unwrap() {
            assert!(item["at_ms"].as_u64().unwrap() > 0);
            item["at_ms"] = json!(0);
        }
    }
    file
}

/// A command of `martlet ring`, and the step that it is.
struct Pair {
    command: &'static [&'static str],
    step: Value,
}

fn pair(command: &'static [&'static str], step: Value) -> Pair {
    Pair { command, step }
}

/// Steps that change devices and settings. The rings of the commands are rebalanced before.
fn pairs() -> Vec<Pair> {
    let device = |place: &str, weight: f64, meta: &str| json!({ "place": place, "weight": weight, "meta": meta });
    vec![
        pair(
            &["add", "r1z1-a@10.0.0.1:6200/sdb", "2000", "r1z4-d@10.0.0.4:6200/sda", "500"],
            json!({ "step": "add", "devices": [
                device("r1z1-a@10.0.0.1:6200/sdb", 2000.0, ""),
                device("r1z4-d@10.0.0.4:6200/sda", 500.0, ""),
            ] }),
        ),
        pair(
            &["add", "r1z4-d@10.0.0.4:6200/<img src=x>", "1", "--meta", "ünïcode \"7\""],
            json!({ "step": "add", "devices": [
                device("r1z4-d@10.0.0.4:6200/<img src=x>", 1.0, "ünïcode \"7\""),
            ] }),
        ),
        pair(
            &["set-weight", "r1z1", "1500.5"],
            json!({ "step": "set-weight", "devices": "r1z1", "weight": 1500.5 }),
        ),
        pair(
            &["set-info", "d4", "--address", "10.0.0.44:6200", "--name", "sdz", "--meta", "new"],
            json!({ "step": "set-info", "device": "d4", "address": "10.0.0.44:6200", "name": "sdz",
                "meta": "new" }),
        ),
        pair(
            &["drain", "d1", "--steps", "2"],
            json!({ "step": "drain", "devices": ["d1"], "steps": 2 }),
        ),
        pair(&["remove", "d5"], json!({ "step": "remove", "devices": ["d5"] })),
        pair(&["set-overload", "0.1"], json!({ "step": "set-overload", "overload": 0.1 })),
        pair(&["set-replicas", "2.5"], json!({ "step": "set-replicas", "replicas": 2.5 })),
        pair(&["set-min-part-hours", "7"], json!({ "step": "set-min-part-hours", "hours": 7 })),
        pair(&["increase-part-power"], json!({ "step": "increase-part-power" })),
        pair(
            &["pretend-min-part-hours-passed"],
            json!({ "step": "pretend-min-part-hours-passed" }),
        ),
        pair(&["settle"], json!({ "step": "settle" })),
    ]
}

fn devices() -> [&'static str; 9] {
    [
        "add",
        "r1z1-a@10.0.0.1:6200/sda",
        "4000",
        "r1z2-b@10.0.0.2:6200/sda",
        "4000",
        "r1z3-c@10.0.0.3:6200/sda",
        "4000",
        "r1z3-c@10.0.0.3:6200/sdb",
        "4000",
    ]
}

/// Makes a builder and its first ring. Returns the content of its file.
fn first(folder: &Path) -> String {
    ring(folder, &["create", "--part-power", "8", "--min-part-hours", "0"]).unwrap();
    ring(folder, &devices()).unwrap();
    ring(folder, &["rebalance"]).unwrap();
    fs::read_to_string(folder.join("data.builder")).unwrap()
}

#[tokio::test]
async fn steps_have_the_results_of_the_commands() {
    let server = Setup::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let text = first(folder.path());
    let pairs = pairs();
    let mut sentences = Vec::new();
    for Pair { command, .. } in &pairs {
        let answer = ring(folder.path(), command).unwrap();
        sentences.push((answer["done"].clone(), answer["notes"].clone()));
    }
    let steps: Vec<&Value> = pairs.iter().map(|pair| &pair.step).collect();
    let request = json!({ "source": { "builder": text }, "steps": steps, "with_builder": true });
    let edited = reply(&server, &request).await;
    let lines = edited["steps"].as_array().unwrap();
    let got: Vec<_> = lines.iter().map(|it| (it["done"].clone(), it["notes"].clone())).collect();
    assert_eq!(got, sentences);
    let file = fs::read_to_string(folder.path().join("data.builder")).unwrap();
    assert_eq!(timeless(edited["builder"].as_str().unwrap()), timeless(&file));

    // Plan, rebalance and ring file.
    let usage =
        json!({ "0": { "used": 3000, "capacity": 4000 }, "4": { "used": 3000, "capacity": 4000 } });
    let by_name = json!({ "d0": usage["0"], "d4": usage["4"] });
    let usage_file = folder.path().join("usage.json");
    fs::write(&usage_file, by_name.to_string()).unwrap();
    let options =
        ["--usage", usage_file.to_str().unwrap(), "--bandwidth", "1kB", "--high-water", "0.5"];
    let planned = ring(folder.path(), &[&["plan"], &options[..]].concat()).unwrap();
    let made = ring(folder.path(), &["rebalance"]).unwrap();
    ring(folder.path(), &["write-ring"]).unwrap();
    let request = json!({
        "source": { "builder": file },
        "plan": { "usage": usage, "bytes_per_s": 1000, "high_water": 0.5 },
        "rebalance": true,
        "with_builder": true,
        "with_ring": true,
    });
    let done = reply(&server, &request).await;
    assert_plan(&done["plan"], &planned);
    assert_eq!(done["steps"][0]["done"], made["done"]);
    assert_eq!(done["steps"][0]["notes"], made["notes"]);
    let file = fs::read_to_string(folder.path().join("data.builder")).unwrap();
    assert_eq!(timeless(done["builder"].as_str().unwrap()), timeless(&file));
    let encoded = STANDARD.encode(fs::read(folder.path().join("data.ring")).unwrap());
    assert!(done["ring"]["file"] == encoded, "the ring files differ");
    let shown = ring(folder.path(), &["show"]).unwrap();
    assert_eq!(done["balance"], shown["figures"]["balance"]);
    assert_eq!(done["dispersion"], shown["figures"]["dispersion"]);
    assert_eq!(
        done["devices"].as_array().unwrap().len(),
        shown["devices"].as_array().unwrap().len()
    );
}

/// Compares a plan with the JSON of the command.
fn assert_plan(plan: &Value, command: &Value) {
    for name in ["epoch", "moved", "placed", "locked", "balance", "dispersion", "rebalances_to_go"]
    {
        assert_eq!(plan[name], command["report"][name], "{name}");
    }
    for name in ["partitions", "replicas", "bytes", "hours", "warnings"] {
        assert_eq!(plan[name], command["plan"][name], "{name}");
    }
    assert!(!plan["warnings"].as_array().unwrap().is_empty());
    let moving = |it: &&Value| it["coming"].as_u64().unwrap() + it["going"].as_u64().unwrap() > 0;
    let of_command: Vec<&Value> =
        command["plan"]["devices"].as_array().unwrap().iter().filter(moving).collect();
    let devices = plan["devices"].as_array().unwrap();
    assert_eq!(devices.len(), of_command.len());
    for (device, other) in devices.iter().zip(of_command) {
        assert_eq!((&device["device"], &device["place"]), (&other["id"], &other["name"]));
        for name in ["before", "after", "coming", "going", "bytes_in", "bytes_out", "hours", "peak"]
        {
            assert_eq!(device[name], other[name], "{name} of {device}");
        }
    }
}

#[tokio::test]
async fn refusals_have_the_words_of_the_commands() {
    let server = Setup::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let text = first(folder.path());
    for Pair { command, step } in [
        pair(
            &["set-weight", "d9", "1"],
            json!({ "step": "set-weight", "devices": "d9", "weight": 1 }),
        ),
        pair(
            &["set-weight", "d1", "-1"],
            json!({ "step": "set-weight", "devices": "d1", "weight": -1 }),
        ),
        pair(&["set-info", "d1"], json!({ "step": "set-info", "device": "d1" })),
        pair(
            &["set-info", "r1", "--meta", "x"],
            json!({ "step": "set-info", "device": "r1", "meta": "x" }),
        ),
        pair(&["remove", "d0"], json!({ "step": "remove", "devices": ["d0"] })),
        pair(&["set-replicas", "99"], json!({ "step": "set-replicas", "replicas": 99 })),
        pair(
            &["add", "r1z1-b@10.0.0.1:6200/sda", "1"],
            json!({ "step": "add", "devices": [{ "place": "r1z1-b@10.0.0.1:6200/sda", "weight": 1 }] }),
        ),
        pair(
            &["add", "nowhere", "1"],
            json!({ "step": "add", "devices": [{ "place": "nowhere", "weight": 1 }] }),
        ),
    ] {
        let words = ring(folder.path(), command).unwrap_err();
        let request = json!({ "source": { "builder": text }, "steps": [step] });
        let refused = post(&server, request.to_string()).await;
        let refusal: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(refused.status, 400, "{refusal}");
        assert_eq!(
            (&refusal["error"], &refusal["step"]),
            (&json!(words), &json!(0)),
            "{command:?}"
        );
    }
    for body in [String::new(), "{\"source\":".repeat(1000), "x".repeat(1 << 20)] {
        assert_eq!(post(&server, body).await.status, 400);
    }
    let too_large = post(&server, " ".repeat((32 << 20) + 1)).await;
    assert_eq!(too_large.status, 413, "{}", too_large.text());
    let health = server.admin("/readyz").await.unwrap();
    assert_eq!(health.status, 200, "{}", health.text());
}
