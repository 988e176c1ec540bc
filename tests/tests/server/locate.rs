//! `martlet ring BUILDER locate BUCKET KEY` requests the id of a bucket from a running server, and
//! prints the result that the bucket's id gives.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use martlet_tests::Setup;
use martlet_tests::s3::SECRET_KEY;
use martlet_tests::server::{finished, martlet};

#[tokio::test]
async fn a_key_is_found_by_the_name_of_its_bucket() {
    let setup = Setup::new();
    let server = setup.start().await;
    server.client().make_bucket("photos").await;
    let builder = setup.join("index.builder");
    let ring = |arguments: &[&str]| {
        let mut command = martlet(&["ring", builder.to_str().unwrap()]);
        command
            .env("MARTLET_ADMIN_ADDRESS", server.admin_address.to_string())
            .env("MARTLET_ROOT_SECRET_KEY", SECRET_KEY);
        let output = finished(command.args(arguments));
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let places = ["r1z1-n1@127.0.0.1:7001/d1", "r1z2-n2@127.0.0.1:7002/d1"];
    assert!(ring(&["create", "--replicas", "2", "--part-power", "8"]).0);
    assert!(ring(&["add", places[0], "1", places[1], "1"]).0);
    assert!(ring(&["rebalance"]).0);

    let shown = server.ask(&["--json", "bucket", "show", "photos"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let id = shown["id"].as_str().unwrap();
    assert_eq!(shown["index_shards"], 16);
    let (found, by_name, errors) = ring(&["locate", "photos", "cat.jpg"]);
    assert!(found, "{}", String::from_utf8_lossy(&errors));
    assert!(by_name.contains("the entry of cat.jpg"), "{by_name}");
    assert_eq!(ring(&["locate", id, "cat.jpg"]).1, by_name);

    let (found, _, errors) = ring(&["locate", "nobody", "cat.jpg"]);
    let errors = String::from_utf8(errors).unwrap();
    assert!(!found && errors.contains("the id of bucket `nobody` can't be looked up"), "{errors}");
}
