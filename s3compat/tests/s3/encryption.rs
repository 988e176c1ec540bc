//! Encryption without a master key, and the bucket's policy before validation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

use crate::world::{TestRequest, World};

const ALGORITHM: &str = "x-amz-server-side-encryption-customer-algorithm";
const CONFIGURATION: &str = "<ServerSideEncryptionConfiguration><Rule>\
    <ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>\
    </ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";

fn md5_of(key: [u8; 32]) -> String {
    STANDARD.encode(Md5::digest(key))
}

pub(crate) fn with_key(call: TestRequest<'_>, key: [u8; 32]) -> TestRequest<'_> {
    call.header(ALGORITHM, "AES256")
        .header("x-amz-server-side-encryption-customer-key", &STANDARD.encode(key))
        .header("x-amz-server-side-encryption-customer-key-md5", &md5_of(key))
}

#[tokio::test]
async fn without_a_master_key_the_servers_encryption_is_refused_in_words() {
    let world = World::with_bucket().await;
    for (method, target) in [("PUT", "/bkt/k"), ("POST", "/bkt/k?uploads")] {
        let call = world.call(method, target).header("x-amz-server-side-encryption", "AES256");
        let reply = call.send().await;
        assert!(reply.text().contains("master key"), "{}", reply.text());
        reply.refused(501, "NotImplemented");
    }
    let put = world.call("PUT", "/bkt?encryption").body(CONFIGURATION).send().await;
    put.refused(501, "NotImplemented");
    let none = "ServerSideEncryptionConfigurationNotFoundError";
    world.get("/bkt?encryption").await.refused(404, none);
    world.get("/bkt/k").await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn keys_of_customers_need_no_master_key() {
    let world = World::with_bucket().await;
    let put = with_key(world.call("PUT", "/bkt/k").body("hidden"), [7; 32]).send().await;
    let put = put.expect(200);
    assert_eq!(put.header("x-amz-server-side-encryption-customer-key-md5"), md5_of([7; 32]));
    let got = with_key(world.call("GET", "/bkt/k"), [7; 32]).send().await.expect(200);
    assert_eq!((got.text().as_str(), got.header(ALGORITHM)), ("hidden", "AES256"));
    let part = with_key(world.call("GET", "/bkt/k?partNumber=1"), [7; 32]).send().await;
    assert_eq!(part.expect(206).text(), "hidden");
    let wrong = with_key(world.call("GET", "/bkt/k"), [8; 32]).send().await;
    assert!(!wrong.text().contains(&md5_of([8; 32])));
    wrong.refused(400, "InvalidArgument");
    world.get("/bkt/k").await.refused(400, "InvalidRequest");
    // Tags aren't encrypted, so reading them needs no key.
    world.get("/bkt/k?tagging").await.expect(200);
    world.call("DELETE", "/bkt/k").send().await.expect(204);
}

#[tokio::test]
async fn policies_are_evaluated_before_headers_are_validated() {
    let world = World::with_bucket().await;
    let statement = |effect: &str, condition: &str| {
        format!(
            r#"{{"Effect":"{effect}","Principal":"*","Action":"s3:PutObject",
                "Resource":"arn:aws:s3:::bkt/*"{condition}}}"#
        )
    };
    let condition = format!(r#","Condition":{{"StringNotEquals":{{"s3:{ALGORITHM}":"AES256"}}}}"#);
    let policy = format!(
        r#"{{"Version":"2012-10-17","Statement":[{},{}]}}"#,
        statement("Allow", ""),
        statement("Deny", &condition)
    );
    world.call("PUT", "/bkt?policy").body(policy).send().await.expect(204);
    let odd = world.call("PUT", "/bkt/k").by("BOB").header(ALGORITHM, "AES192").body("x");
    odd.send().await.refused(403, "AccessDenied");
    let bare = world.call("PUT", "/bkt/k").by("BOB").body("x").send().await;
    bare.refused(403, "AccessDenied");
    let keyed = with_key(world.call("PUT", "/bkt/k").by("BOB").body("x"), [1; 32]);
    keyed.send().await.expect(200);
}
