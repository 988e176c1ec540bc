//! Tags: set by header and by document, and removed.

use crate::world::World;

fn document(tags: &[(&str, &str)]) -> String {
    let tags = tags
        .iter()
        .map(|(key, value)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>"));
    format!("<Tagging><TagSet>{}</TagSet></Tagging>", tags.collect::<String>())
}

#[tokio::test]
async fn tags_come_with_the_object_or_later_and_go() {
    let world = World::with_bucket().await;
    let put = world.call("PUT", "/bkt/k").header("x-amz-tagging", "a=1&b=x%20y").body("x");
    put.send().await.expect(200);
    let tags = world.get("/bkt/k?tagging").await.expect(200);
    assert_eq!(
        (tags.all("Key"), tags.all("Value")),
        (vec!["a".into(), "b".into()], vec!["1".into(), "x y".into()])
    );
    let etag = world.get("/bkt/k").await.header("etag").to_owned();
    world.call("PUT", "/bkt/k?tagging").body(document(&[("c", "3")])).send().await.expect(200);
    assert_eq!(world.get("/bkt/k?tagging").await.all("Key"), ["c"]);
    let got = world.get("/bkt/k").await.expect(200);
    assert_eq!((got.header("etag"), got.text().as_str()), (etag.as_str(), "x"));
    assert_eq!(got.header("x-amz-tagging-count"), "1");
    world.call("DELETE", "/bkt/k?tagging").send().await.expect(204);
    assert!(world.get("/bkt/k?tagging").await.expect(200).all("Key").is_empty());
    assert!(!world.get("/bkt/k").await.has("x-amz-tagging-count"));
}

#[tokio::test]
async fn tags_have_limits() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "x").await;
    let put = |body: String| world.call("PUT", "/bkt/k?tagging").body(body).send();
    let many: Vec<(String, &str)> = (0..11).map(|at| (format!("k{at}"), "v")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    put(document(&many)).await.refused(400, "InvalidTag");
    put(document(&[("a", "1"), ("a", "2")])).await.refused(400, "InvalidTag");
    put(document(&[(&"k".repeat(129), "v")])).await.refused(400, "InvalidTag");
    put("<Tagging><TagSet>".into()).await.refused(400, "MalformedXML");
    let header = world.call("PUT", "/bkt/k").header("x-amz-tagging", "a=1&a=2").send().await;
    header.refused(400, "InvalidArgument");
    let nothing =
        world.call("PUT", "/bkt/nothing?tagging").body(document(&[("a", "1")])).send().await;
    nothing.refused(404, "NoSuchKey");
    world.get("/bkt/nothing?tagging").await.refused(404, "NoSuchKey");
}
