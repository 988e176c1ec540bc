//! Tokens: each use beyond the grant is refused.

use martlet_protocol::Network;

use super::*;

async fn refusal(world: &World, path: &str, range: Option<&str>) -> (u16, Option<String>) {
    let reply = world.get(path, range).await;
    (reply.status, reply.header("x-martlet-refused").map(str::to_owned))
}

fn forbidden(code: &str) -> (u16, Option<String>) {
    (403, Some(code.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_for_its_extent_device_and_bytes_alone() {
    let world = World::new().await;
    let bytes = pattern(200_000);
    let (extent, other) = (world.put(&bytes).await, world.put(&bytes).await);
    let grant = ExtentGrant { first: 65_536, last: 131_071, ..world.grant(&extent) };
    let path = world.path_by(extent.id, &grant);
    let reply = world.get(&path, Some("bytes=65536-131071")).await;
    assert!(reply.status == 206 && reply.body == bytes[65_536..131_072]);
    for range in ["bytes=65535-131071", "bytes=65536-131072", "bytes=0-9", "bytes=-10"] {
        assert_eq!(refusal(&world, &path, Some(range)).await, forbidden("range"), "{range}");
    }
    assert_eq!(refusal(&world, &path, None).await, forbidden("range"), "the whole piece");
    let of_other = world.path_by(other.id, &world.grant(&extent));
    assert_eq!(refusal(&world, &of_other, None).await, forbidden("extent"));
    let elsewhere = ExtentGrant { device: DeviceId(8), ..world.grant(&extent) };
    let elsewhere = world.path_by(extent.id, &elsewhere);
    assert_eq!(refusal(&world, &elsewhere, None).await, forbidden("device"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_and_keeps_its_networks() {
    let world = World::new().await;
    let extent = world.put(&pattern(100)).await;
    let path = world.path(&extent);
    assert_eq!(world.get(&path, None).await.status, 200);
    let here = vec![vec![Network::of_address(loopback())]];
    let inside = ExtentGrant { networks: here, ..world.grant(&extent) };
    assert_eq!(world.get(&world.path_by(extent.id, &inside), None).await.status, 200);
    let networks = vec![vec![Network::parse("10.0.0.0/8").unwrap()]];
    let outside = ExtentGrant { networks, ..world.grant(&extent) };
    let outside = world.path_by(extent.id, &outside);
    assert_eq!(refusal(&world, &outside, None).await, forbidden("network"));
    world.clock.set_ms(NOW_MS + 60_000);
    assert_eq!(refusal(&world, &path, None).await, forbidden("expired"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_text_and_no_other_method_opens_anything() {
    let world = World::new().await;
    let extent = world.put(&pattern(100)).await;
    let token = world.key.seal(&world.grant(&extent));
    for bit in (0..token.len() * 8).step_by(13) {
        let mut flipped = token.clone().into_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if !flipped[bit / 8].is_ascii_alphanumeric() {
            continue;
        }
        let flipped = String::from_utf8(flipped).unwrap();
        let path = format!("/x/{}?t={flipped}", extent.id);
        assert_eq!(refusal(&world, &path, None).await, forbidden("invalid"), "bit {bit}");
    }
    let bare = format!("/x/{}", extent.id);
    assert_eq!(refusal(&world, &bare, None).await, forbidden("invalid"));
    for method in ["PUT", "DELETE", "POST", "OPTIONS"] {
        let mut stream = world.connect().await;
        send(&mut stream, method, &world.path(&extent), None).await;
        let reply = receive(&mut stream, true).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    for path in ["/", "/v1/devices", "/metrics", "/v1/d/7/extents/00"] {
        assert_eq!(world.get(path, None).await.status, 404, "{path}");
    }
    let long = format!("/x/{}?t={}", extent.id, "A".repeat(20_000));
    assert_eq!(world.get(&long, None).await.status, 431);
}
