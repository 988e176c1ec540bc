//! Consistency headers: levels, replies, and tokens.

use crate::world::World;

#[tokio::test]
async fn every_reply_states_its_consistency_level() {
    let world = World::with_bucket().await;
    let requests = [
        ("PUT", "/bkt/key"),
        ("GET", "/bkt/key"),
        ("HEAD", "/bkt/key"),
        ("GET", "/bkt/key?tagging"),
        ("GET", "/bkt?list-type=2"),
        ("GET", "/bkt"),
        ("HEAD", "/bkt"),
        ("GET", "/bkt?location"),
        ("POST", "/bkt/key?uploads"),
        ("GET", "/bkt?uploads"),
        ("GET", "/bkt/nothing"),
        ("DELETE", "/bkt"),
        ("DELETE", "/bkt/key"),
        ("DELETE", "/bkt"),
        ("GET", "/bkt"),
        ("GET", "/"),
    ];
    for (method, target) in requests {
        for level in ["available", "strict"] {
            let call = world.call(method, target).header("x-martlet-consistency", level);
            let reply = call.send().await;
            assert_eq!(reply.header("x-martlet-consistency"), "quorum", "{method} {target}");
        }
    }
}

#[tokio::test]
async fn a_token_comes_back_and_is_honoured() {
    let world = World::with_bucket().await;
    let put = world.put("/bkt/key", "x").await;
    let token = put.header("x-martlet-stamp").to_owned();
    assert_eq!(token.split('-').count(), 4);
    assert_eq!(token.split('-').nth(2), Some("q"));
    for (method, target) in [("GET", "/bkt/key"), ("HEAD", "/bkt/key"), ("GET", "/bkt?list-type=2")]
    {
        let call = world.call(method, target).header("x-martlet-read-after", &token);
        call.send().await.expect(200);
    }
    let other = world.call("GET", "/bkt/other").header("x-martlet-read-after", &token);
    other.send().await.refused(400, "InvalidArgument");
    let copied = world.call("PUT", "/bkt/copy").header("x-amz-copy-source", "bkt/key").send().await;
    let copied = copied.expect(200).header("x-martlet-stamp").to_owned();
    assert_eq!(world.get("/bkt/copy").await.header("x-martlet-stamp"), copied);
    let gone = world.call("DELETE", "/bkt/key").send().await.expect(204);
    let gone = gone.header("x-martlet-stamp").to_owned();
    let after = world.call("GET", "/bkt/key").header("x-martlet-read-after", &gone).send().await;
    after.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn malformed_values_are_refused() {
    let world = World::with_bucket().await;
    world.put("/bkt/key", "x").await;
    let senseless = [
        ("x-martlet-consistency", "most"),
        ("x-martlet-consistency", "Strict"),
        ("x-martlet-read-after", "now"),
        ("x-martlet-read-after", "0-0-q-0"),
    ];
    for (name, value) in senseless {
        let reply = world.call("GET", "/bkt/key").header(name, value).send().await;
        reply.refused(400, "InvalidArgument");
    }
}

#[tokio::test]
async fn short_of_a_quorum_a_reply_is_503_with_when_to_try_again() {
    let world = World::with_bucket().await;
    world.put("/bkt/key", "x").await;
    world.node.set_offline(world.device, true);
    for level in ["available", "strict", "any"] {
        for (method, target) in [("GET", "/bkt/key"), ("PUT", "/bkt/key"), ("GET", "/bkt")] {
            let call = world.call(method, target).header("x-martlet-consistency", level);
            let reply = call.send().await;
            assert_eq!(reply.header("retry-after"), "1", "{level} {method}");
            reply.refused(503, "ServiceUnavailable");
        }
    }
}
