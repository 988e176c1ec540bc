//! `GetCheckpointRetention`: the dry run of the checkpoint worker, for access keys.

use martlet_proxy::{DefaultView, Role};
use serde_json::{Value, json};

use crate::world::{TestReply, World};

const RULES: &str = r#"{"rules": [{"pattern": "run-*/step-*/", "profile": "custom",
    "markers": ["done"], "keep": 1, "min_age": 3600}]}"#;
const ALL: &str = "/red-bkt?checkpoints&retention";

/// The tenant `red` with the bucket `red-bkt`, whose series `run-1/` has three sets.
async fn world() -> World {
    let world = World::new();
    world.tenant("red", "RED").await;
    world.tenant("blue", "BLUE").await;
    let put = |target: String, body: &'static str| world.call("PUT", &target).body(body).by("RED");
    put("/red-bkt".into(), "").send().await.expect(200);
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    put("/red-bkt?versioning".into(), versioning).send().await.expect(200);
    world.clock.advance_ms(3_000);
    put("/red-bkt?checkpoints".into(), RULES).send().await.expect(204);
    world.clock.advance_ms(3_000);
    for step in 1..=3 {
        let set = format!("/red-bkt/run-1/step-{step}/");
        put(format!("{set}a"), "bytes").send().await.expect(200);
        let marked = put(format!("{set}done"), "").send().await.expect(200);
        assert_eq!(marked.header("x-martlet-checkpoint"), "committed; generation=1");
        world.clock.advance_ms(1_000);
    }
    world
}

async fn by(world: &World, key: &'static str, target: &str) -> TestReply {
    world.call("GET", target).by(key).send().await
}

#[track_caller]
fn json_of(reply: &TestReply) -> Value {
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    serde_json::from_slice(&reply.bytes()).unwrap()
}

fn sets(page: &Value) -> Vec<&str> {
    let withdrawals = page["withdrawals"].as_array().unwrap().iter();
    withdrawals.map(|one| one["set"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_withdrawals_of_rules_are_named_with_their_times() {
    let world = world().await;
    let page = json_of(&by(&world, "RED", ALL).await);
    assert_eq!(sets(&page), ["run-1/step-1/", "run-1/step-2/"]);
    assert!(page["next"].is_null());
    let first = &page["withdrawals"][0];
    let set = json_of(&by(&world, "RED", "/red-bkt?checkpoint=run-1%2Fstep-1%2F").await);
    let changed_ms = set["generations"][0]["changed_ms"].as_u64().unwrap();
    let expected = json!({"set": "run-1/step-1/", "generation": 1,
        "reason": "later generations of the series are enough",
        "due_ms": changed_ms + 3_600_000, "deletes_objects": true});
    assert_eq!(*first, expected);
    let of_set = format!("{ALL}&prefix=run-1%2Fstep-1%2F");
    assert_eq!(sets(&json_of(&by(&world, "RED", &of_set).await)), ["run-1/step-1/"]);
    let newest = format!("{ALL}&prefix=run-1%2Fstep-3%2F");
    assert_eq!(json_of(&by(&world, "RED", &newest).await), json!({"withdrawals": []}));
    let behind = format!("{ALL}&after=run-1%2Fstep-3%2F");
    assert_eq!(json_of(&by(&world, "RED", &behind).await), json!({"withdrawals": []}));
    // It is a dry run.
    assert_eq!(json_of(&by(&world, "RED", ALL).await), page);
    let kept = by(&world, "RED", "/red-bkt--committed/run-1/step-1/a").await;
    assert_eq!(kept.expect(200).text(), "bytes");
}

#[tokio::test]
async fn a_hold_moves_the_time() {
    let world = world().await;
    let before = json_of(&by(&world, "RED", ALL).await)["withdrawals"][0]["due_ms"].clone();
    let hold = "/red-bkt?checkpoint=run-1%2Fstep-1%2F&hold=86400";
    world.call("PUT", hold).by("RED").send().await.expect(200);
    let after = json_of(&by(&world, "RED", ALL).await)["withdrawals"][0]["due_ms"].clone();
    assert!(after.as_u64().unwrap() > before.as_u64().unwrap() + 80_000_000, "{before} {after}");
}

#[tokio::test]
async fn later_pages_go_on_after_the_last_set() {
    let world = world().await;
    for step in 10..30 {
        let set = format!("/red-bkt/run-2/step-{step}/done");
        world.call("PUT", &set).by("RED").send().await.expect(200);
        world.clock.advance_ms(1_000);
    }
    let (mut found, mut target, mut count) = (Vec::new(), ALL.to_owned(), 0);
    loop {
        let page = json_of(&by(&world, "RED", &target).await);
        found.extend(sets(&page).into_iter().map(str::to_owned));
        count += 1;
        let Some(next) = page["next"].as_str() else { break };
        target = format!("{ALL}&after={}", next.replace('/', "%2F"));
    }
    found.sort();
    found.dedup();
    assert_eq!((found.len(), count), (21, 2));
}

#[tokio::test]
async fn it_needs_the_rights_to_read_sets_and_to_list() {
    let world = world().await;
    world.user("red", "reader", Role::ReadOnly, "READER").await;
    assert_eq!(sets(&json_of(&by(&world, "READER", ALL).await)).len(), 2);
    by(&world, "BLUE", ALL).await.refused(403, "AccessDenied");
    world.call("GET", ALL).send_unsigned().await.refused(403, "AccessDenied");
    let allow = async |actions: &str, condition: &str| {
        let document = format!(
            r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow",
                "Principal": {{"AWS": "blue"}}, "Action": {actions}, "Resource":
                "arn:aws:s3:::red-bkt"{condition}}}]}}"#
        );
        world.call("PUT", "/red-bkt?policy").by("RED").body(document).send().await.expect(204);
        world.clock.advance_ms(2_000);
    };
    let both = r#"["martlet:GetCheckpoint", "s3:ListBucket"]"#;
    for (actions, status) in [
        (r#""martlet:GetCheckpoint""#, 403),
        (r#""s3:ListBucket""#, 403),
        (r#"["martlet:GetCheckpointRules", "s3:ListBucket"]"#, 403),
        (both, 200),
    ] {
        allow(actions, "").await;
        by(&world, "BLUE", ALL).await.expect(status);
    }
    // A prefix of the policy is one of the request.
    let below = r#", "Condition": {"StringLike": {"s3:prefix": "run-1/*"}}"#;
    allow(both, below).await;
    by(&world, "BLUE", ALL).await.refused(403, "AccessDenied");
    let of_set = format!("{ALL}&prefix=run-1%2Fstep-1%2F");
    assert_eq!(sets(&json_of(&by(&world, "BLUE", &of_set).await)), ["run-1/step-1/"]);
}

#[tokio::test]
async fn the_view_has_it_and_nothing_else_falls_into_it() {
    let world = world().await;
    let page = json_of(&by(&world, "RED", ALL).await);
    let of_view = by(&world, "RED", "/red-bkt--committed?checkpoints&retention").await;
    assert_eq!(json_of(&of_view), page);
    world.accounts.keys().change_view("RED", DefaultView::Committed).await.unwrap();
    assert_eq!(json_of(&by(&world, "RED", ALL).await), page);
    world.accounts.keys().change_view("RED", DefaultView::Bucket).await.unwrap();
    for (method, target, status, code) in [
        ("GET", "/red-bkt?retention", 501, "NotImplemented"),
        ("PUT", ALL, 501, "NotImplemented"),
        ("DELETE", ALL, 501, "NotImplemented"),
        ("GET", "/red-bkt?checkpoints&retention&generation=1", 501, "NotImplemented"),
        ("GET", "/none-bkt?checkpoints&retention", 404, "NoSuchBucket"),
    ] {
        world.call(method, target).by("RED").send().await.refused(status, code);
    }
    let condition = world.call("GET", ALL).by("RED").header("if-match", "\"e\"");
    condition.send().await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn a_bucket_without_rules_plans_nothing() {
    let world = World::with_bucket().await;
    let reply = world.get("/bkt?checkpoints&retention").await;
    assert_eq!(json_of(&reply), json!({"withdrawals": []}));
}
