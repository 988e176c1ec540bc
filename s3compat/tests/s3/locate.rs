//! Locate: the places of an object's bytes, and the tokens that grant them.

use futures::StreamExt;
use martlet_protocol::extent_token::{ExtentGrant, ExtentTokenKey, GrantedRead, TokenRefusal};
use martlet_protocol::{Backend, Network};
use martlet_proxy::Rate;
use serde_json::Value;

use crate::world::{DATA_URL, NOW_MS, TestReply, TestRequest, World};

const LENGTH: usize = 2_500_000;

fn large() -> Vec<u8> {
    (0..LENGTH).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

async fn world() -> (World, ExtentTokenKey) {
    let (world, key) = World::with_bucket().await.with_data_port();
    world.put("/bkt/large", large()).await;
    (world, key)
}

#[track_caller]
fn json(reply: &TestReply) -> Value {
    assert_eq!((reply.status, reply.header("x-martlet-locate")), (200, "1"), "{reply:?}");
    serde_json::from_slice(&reply.bytes()).unwrap()
}

async fn located(request: TestRequest<'_>) -> Value {
    json(&request.send().await)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Grants of all holders of all pieces.
fn grants(key: &ExtentTokenKey, located: &Value) -> Vec<ExtentGrant> {
    let extents = located["extents"].as_array().unwrap().iter();
    let pieces = extents.flat_map(|extent| extent["pieces"].as_array().unwrap());
    let holders = pieces.flat_map(|piece| piece["holders"].as_array().unwrap());
    holders.map(|holder| key.open(holder["token"].as_str().unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn nothing_is_located_while_no_node_has_a_data_port() {
    let world = World::with_bucket().await;
    world.put("/bkt/large", large()).await;
    world.get("/bkt/large?locate").await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn the_places_and_tokens_are_those_of_the_bytes() {
    let (world, key) = world().await;
    let head = world.call("HEAD", "/bkt/large").send().await.expect(200);
    let reply = world.get("/bkt/large?locate").await;
    assert_eq!(reply.header("content-type"), "application/json");
    for name in ["etag", "last-modified", "x-martlet-stamp", "x-martlet-consistency"] {
        assert_eq!(reply.header(name), head.header(name), "{name}");
    }
    let located = json(&reply);
    assert_eq!(number(&located["size"]), LENGTH as u64);
    assert_eq!(located["etag"].as_str(), Some(head.header("etag")));
    assert_eq!(located["stamp"].as_str(), Some(head.header("x-martlet-stamp")));
    assert_eq!(number(&located["expires_ms"]), NOW_MS + 60_000);
    assert_eq!((located["direct"].as_bool(), located["reason"].is_null()), (Some(true), true));
    assert!(located["next"].is_null() && located["versionId"].is_null());
    let mut found = Vec::new();
    for extent in located["extents"].as_array().unwrap() {
        assert_eq!(number(&extent["offset"]), found.len() as u64);
        assert!(extent["code"].is_null());
        let [piece] = &extent["pieces"].as_array().unwrap()[..] else { panic!("{extent}") };
        assert_eq!((number(&piece["piece"]), number(&piece["from"])), (0, 0));
        let [holder] = &piece["holders"].as_array().unwrap()[..] else { panic!("{piece}") };
        let url = format!("{DATA_URL}/x/{}", piece["id"].as_str().unwrap());
        assert_eq!((holder["url"].as_str(), holder["host_id"].as_str()), (Some(&*url), Some("0f")));
        let grant = key.open(holder["token"].as_str().unwrap()).unwrap();
        assert_eq!(grant.extent.to_string(), extent["id"].as_str().unwrap());
        assert_eq!((grant.first, grant.last), (0, number(&extent["length"]) - 1));
        assert_eq!((grant.device, grant.tenant.as_str()), (world.device, "alice"));
        let mut bytes =
            world.node.read_extent(grant.device, grant.extent, 0..grant.last + 1).await.unwrap();
        let begin = found.len();
        while let Some(chunk) = bytes.next().await {
            found.extend_from_slice(&chunk.unwrap());
        }
        let hash = blake3::hash(&found[begin..]).to_hex();
        assert_eq!(extent["blake3"].as_str(), Some(hash.as_str()));
    }
    assert!(found == large());
}

#[tokio::test]
async fn a_range_is_granted_in_whole_blocks() {
    let (world, key) = world().await;
    let ranged = |range: &str| world.call("GET", "/bkt/large?locate").header("range", range);
    let middle = located(ranged("bytes=70000-70009")).await;
    let [grant] = &grants(&key, &middle)[..] else { panic!("{middle}") };
    assert_eq!((grant.first, grant.last), (65_536, 131_071));
    assert_eq!(number(&middle["extents"][0]["length"]), LENGTH as u64, "of the whole extent");
    let tail = located(ranged("bytes=-1")).await;
    assert_eq!(grants(&key, &tail)[0].last, LENGTH as u64 - 1);
    let beyond = ranged("bytes=2500000-").send().await;
    beyond.refused(416, "InvalidRange");
    world.get("/bkt/large?locate&partNumber=1").await.refused(501, "NotImplemented");
}

#[tokio::test]
async fn conditions_and_versions_hold_as_for_a_read() {
    let (world, _) = world().await;
    let etag = world.get("/bkt/large?locate").await.header("etag").to_owned();
    let by =
        |name: &str, value: &str| world.call("GET", "/bkt/large?locate").header(name, value).send();
    json(&by("if-match", &etag).await);
    by("if-match", "\"other\"").await.refused(412, "PreconditionFailed");
    by("if-none-match", &etag).await.expect(304);
    world.get("/bkt/nothing?locate").await.refused(404, "NoSuchKey");
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    world.call("PUT", "/bkt?versioning").body(on).send().await.expect(200);
    let first = world.put("/bkt/large", large()).await.header("x-amz-version-id").to_owned();
    let second = world.put("/bkt/large", vec![1; 20_000]).await;
    let newest = world.get("/bkt/large?locate").await;
    assert_eq!(json(&newest)["versionId"].as_str(), Some(second.header("x-amz-version-id")));
    let old = world.get(&format!("/bkt/large?locate&versionId={first}")).await;
    assert_eq!(number(&json(&old)["size"]), LENGTH as u64);
    world.call("DELETE", "/bkt/large").send().await.expect(204);
    world.get("/bkt/large?locate").await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn indirect_objects_have_a_reason() {
    let (world, _) = world().await;
    world.put("/bkt/empty", "").await;
    let empty = located(world.call("GET", "/bkt/empty?locate")).await;
    assert_eq!(
        (empty["direct"].as_bool(), empty["extents"].as_array().unwrap().len()),
        (Some(true), 0)
    );
    world.put("/bkt/inline", "few bytes").await;
    let inline = located(world.call("GET", "/bkt/inline?locate")).await;
    assert_eq!(
        (inline["direct"].as_bool(), inline["reason"].as_str()),
        (Some(false), Some("inline"))
    );
    assert_eq!(inline["extents"].as_array().unwrap().len(), 0);
    let with_key = |call| crate::encryption::with_key(call, [7; 32]);
    with_key(world.call("PUT", "/bkt/sealed")).body(large()).send().await.expect(200);
    let sealed = located(with_key(world.call("GET", "/bkt/sealed?locate"))).await;
    assert_eq!(sealed["reason"].as_str(), Some("encrypted"));
    world.get("/bkt/sealed?locate").await.refused(400, "InvalidRequest");
    // A tenant with a rate of bytes.
    world.tenant("team", "TEAM").await;
    world.call("PUT", "/mine").by("TEAM").send().await.expect(200);
    world.call("PUT", "/mine/k").by("TEAM").body(large()).send().await.expect(200);
    let mine = || world.call("GET", "/mine/k?locate").by("TEAM");
    assert_eq!(located(mine()).await["direct"].as_bool(), Some(true));
    let limit = |rate: &mut Rate| rate.bytes = Some(1 << 40);
    world.accounts.tenants().change_rate("team", limit).await.unwrap();
    let limited = located(mine()).await;
    assert_eq!(limited["reason"].as_str(), Some("rate-limited"));
    assert_eq!(limited["extents"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn only_readers_of_the_object_get_tokens() {
    let (world, key) = world().await;
    let by_bob = || world.call("GET", "/bkt/large?locate").by("BOB").from("192.0.2.7");
    by_bob().send().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/large?locate").send_unsigned().await.refused(403, "AccessDenied");
    let policy = |condition: &str| {
        format!(
            r#"{{"Version": "2012-10-17", "Statement": {{"Effect": "Allow",
            "Principal": {{"CanonicalUser": "bob"}}, "Action": "s3:GetObject",
            "Resource": "arn:aws:s3:::bkt/*"{condition}}}}}"#
        )
    };
    world.call("PUT", "/bkt?policy").body(policy("")).send().await.expect(204);
    let [free] = &grants(&key, &located(by_bob()).await)[..] else { panic!("one holder") };
    assert_eq!((free.tenant.as_str(), free.networks.len()), ("bob", 0));
    by_bob().by("ALICE").send().await.expect(200);
    // A policy that asks for the address binds the token to it.
    let from = r#", "Condition": {"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}}"#;
    world.call("PUT", "/bkt?policy").body(policy(from)).send().await.expect(204);
    let [bound] = &grants(&key, &located(by_bob()).await)[..] else { panic!("one holder") };
    let address = "192.0.2.7".parse().unwrap();
    assert_eq!(bound.networks, [vec![Network::of_address(address)]]);
    let read = |peer: &str| GrantedRead {
        extent: bound.extent,
        range: 0..1,
        peer: peer.parse().ok(),
        now_ms: NOW_MS,
    };
    assert_eq!(bound.check(&read("192.0.2.7")), Ok(()));
    assert_eq!(bound.check(&read("192.0.2.8")), Err(TokenRefusal::Network));
}

/// Tokens and bytes travel by the connection to the data port, so that connection needs what a policy asks of the request's.
#[tokio::test]
async fn a_policy_that_depends_on_tls_names_no_data_port_in_clear() {
    let denied_in_clear = r#""Bool": {"aws:SecureTransport": "false"}"#;
    let denied_by_version = r#""NumericLessThan": {"s3:TlsVersion": "1.3"}"#;
    for (url, condition, holders) in [
        (DATA_URL, None, 1),
        (DATA_URL, Some(denied_in_clear), 0),
        ("https://n1:9002", Some(denied_in_clear), 1),
        (DATA_URL, Some(denied_by_version), 0),
        ("https://n1:9002", Some(denied_by_version), 0),
    ] {
        let (world, key) = World::with_bucket().await.with_data_port_at(url);
        world.put("/bkt/large", large()).await;
        if let Some(condition) = condition {
            let policy = format!(
                r#"{{"Version": "2012-10-17", "Statement": {{"Effect": "Deny", "Principal": "*",
                "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/*",
                "Condition": {{{condition}}}}}}}"#
            );
            world.call("PUT", "/bkt?policy").body(policy).send().await.expect(204);
        }
        let secure = located(world.call("GET", "/bkt/large?locate").over_tls()).await;
        assert_eq!(grants(&key, &secure).len(), holders, "{url} {condition:?}");
        let reason = (holders == 0).then_some("tls");
        assert_eq!(
            (secure["direct"].as_bool(), secure["reason"].as_str()),
            (Some(holders > 0), reason)
        );
        let in_clear = world.call("GET", "/bkt/large?locate").send().await;
        match condition {
            None => assert_eq!(grants(&key, &json(&in_clear)).len(), holders),
            Some(_) if condition == Some(denied_in_clear) => {
                in_clear.refused(403, "AccessDenied");
            }
            // A connection in clear has no version.
            Some(_) => assert_eq!(grants(&key, &json(&in_clear)).len(), 0),
        }
    }
}

#[tokio::test]
async fn tokens_keep_the_networks_of_the_key_and_its_tenant() {
    let (world, key) = world().await;
    let [of_tenant, of_key] =
        ["10.0.0.0/8", "10.1.0.0/16"].map(|it| vec![it.parse::<Network>().unwrap()]);
    world.accounts.tenants().create("team", None, of_tenant.clone()).await.unwrap();
    world.key_within("team", None, "TEAM", of_key.clone()).await;
    let by_team = |method, target: &str| world.call(method, target).by("TEAM").from("10.1.1.1");
    by_team("PUT", "/mine").send().await.expect(200);
    by_team("PUT", "/mine/k").body(large()).send().await.expect(200);
    let [grant] = &grants(&key, &located(by_team("GET", "/mine/k?locate")).await)[..] else {
        panic!("one holder")
    };
    assert_eq!(grant.networks.len(), 2);
    assert!(grant.networks.contains(&of_tenant) && grant.networks.contains(&of_key));
}

#[tokio::test]
async fn long_objects_come_in_pages() {
    let (world, _) = world().await;
    let upload = world.call("POST", "/bkt/parts?uploads").send().await.expect(200).one("UploadId");
    let mut document = String::from("<CompleteMultipartUpload>");
    let body = "x".repeat(16);
    for number in 1..=1003 {
        let part = world.call("PUT", &format!("/bkt/parts?partNumber={number}&uploadId={upload}"));
        let etag = part.body(body.clone()).send().await.expect(200).header("etag").to_owned();
        let part = format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        document.push_str(&part);
    }
    document.push_str("</CompleteMultipartUpload>");
    let done = world.call("POST", &format!("/bkt/parts?uploadId={upload}")).body(document);
    let etag = done.send().await.expect(200).one("ETag").replace("&quot;", "\"");
    let first = located(world.call("GET", "/bkt/parts?locate")).await;
    assert_eq!(
        (first["extents"].as_array().unwrap().len(), number(&first["next"])),
        (1000, 16_000)
    );
    let rest = world.call("GET", "/bkt/parts?locate").header("range", "bytes=16000-");
    let rest = located(rest.header("if-match", &etag)).await;
    assert_eq!((rest["extents"].as_array().unwrap().len(), rest["next"].is_null()), (3, true));
    assert_eq!(number(&rest["extents"][0]["offset"]), 16_000);
}
