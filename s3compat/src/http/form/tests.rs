//! Tests of forms, from their bytes to the resulting PUT.

use std::convert::Infallible;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::{Full, StreamBody};
use martlet_protocol::ManualClock;
use serde_json::{Value, json};

use super::*;
use crate::auth::testing::{ACCESS_KEY, NOW_MS, keys};
use crate::auth::{Authenticator, Timestamp};
use crate::http::admission::Admission;
use crate::http::config::HttpConfig;
use crate::http::reply::Stamper;
use crate::limits::concurrency::ConcurrencyLimiter;
use crate::refusal::Code;
use crate::request::Observation;

const DAY: &str = "20130524";

fn gate(allow_anonymous: bool) -> RequestPipeline {
    let config = HttpConfig { allow_anonymous, ..HttpConfig::default() };
    let clock = Arc::new(ManualClock::at(NOW_MS));
    RequestPipeline::new(Authenticator::new(config.auth.clone(), clock, keys()), config)
}

/// A form with these fields and a file called `name.txt`.
fn form_of(fields: &[(&str, &str)], file: Option<&[u8]>) -> Vec<u8> {
    let mut form = Vec::new();
    for (name, value) in fields {
        let head = format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        form.extend_from_slice(head.as_bytes());
        form.extend_from_slice(value.as_bytes());
        form.extend_from_slice(b"\r\n");
    }
    if let Some(file) = file {
        form.extend_from_slice(
            b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"name.txt\"\r\n\
              Content-Type: text/html\r\n\r\n",
        );
        form.extend_from_slice(file);
        form.extend_from_slice(b"\r\n");
    }
    form.extend_from_slice(b"--x--\r\n");
    form
}

/// Fields with a policy of these conditions, signed.
fn signed(fields: &[(&'static str, &str)], conditions: &Value) -> Vec<(&'static str, String)> {
    let policy = json!({"expiration": "2013-05-24T01:00:00Z", "conditions": conditions});
    let policy = STANDARD.encode(policy.to_string());
    let keys = keys();
    let key = keys.lookup(ACCESS_KEY).unwrap();
    let key = key.signing_key(Timestamp::from_unix_ms(NOW_MS), "us-east-1");
    let credential = format!("{ACCESS_KEY}/{DAY}/us-east-1/s3/aws4_request");
    let mut all: Vec<_> = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    all.push(("x-amz-algorithm", "AWS4-HMAC-SHA256".to_owned()));
    all.push(("x-amz-credential", credential));
    all.push(("x-amz-date", format!("{DAY}T000000Z")));
    all.push(("x-amz-signature", key.sign(policy.as_bytes())));
    all.push(("policy", policy));
    all
}

/// The usual conditions, and `more`.
fn conditions(more: &[Value]) -> Value {
    let mut conditions = vec![
        json!({"bucket": "b"}),
        json!(["starts-with", "$key", "u/"]),
        json!(["starts-with", "$x-amz-algorithm", ""]),
        json!(["starts-with", "$x-amz-credential", ""]),
        json!(["starts-with", "$x-amz-date", ""]),
    ];
    conditions.extend_from_slice(more);
    Value::from(conditions)
}

/// Posts a form. Returns its PUT, and the body or the error that ends it.
async fn post(
    gate: &RequestPipeline,
    form: Vec<u8>,
) -> Result<(PreparedRequest, Result<Bytes, BodyError>), Refusal> {
    let request = Request::post("/b")
        .header("host", "127.0.0.1:9000")
        .header("content-type", "multipart/form-data; boundary=x")
        .header("content-length", form.len())
        .header("origin", "http://page")
        .header("cache-control", "no-cache")
        .header("content-disposition", "attachment")
        .body(Full::new(Bytes::from(form)))
        .unwrap();
    let config = HttpConfig::default();
    let turns = ConcurrencyLimiter::new(config.concurrency());
    let mut admission = Admission::enter(&turns, &config, request.extensions()).unwrap();
    let arrival = Arrival {
        id: Stamper::new().next_id().header(),
        polled: PollFlag::default(),
        observation: Observation::default(),
    };
    let request = gate.prepare(request, arrival, &mut admission).await;
    let mut request = request.map_err(|stopped| match stopped {
        PipelineError::Refused(refusal) => refusal,
        PipelineError::Limited(why, _) => panic!("nothing limits it: {why:?}"),
    })?;
    let body = std::mem::take(&mut request.body).collect().await;
    Ok((request, body))
}

async fn post_signed(
    fields: &[(&'static str, &str)],
    more: &[Value],
    file: &[u8],
) -> Result<(PreparedRequest, Result<Bytes, BodyError>), Code> {
    let fields = signed(fields, &conditions(more));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    post(&gate(false), form_of(&fields, Some(file))).await.map_err(|refusal| refusal.code)
}

#[tokio::test]
async fn a_form_becomes_the_put_that_it_stands_for() {
    let fields = [("kEy", "u/${filename}"), ("Content-Type", "text/plain"), ("x-amz-meta-a", "1")];
    let more = [json!({"Content-Type": "text/plain"}), json!({"x-amz-meta-A": "1"})];
    let (request, body) = post_signed(&fields, &more, b"hello").await.unwrap();
    assert_eq!(request.head.target.path(), "/b/u/name.txt");
    assert_eq!(request.head.operation(), Operation::PostObject);
    assert_eq!(body.unwrap(), "hello");
    let headers = &request.head.headers;
    assert_eq!(
        (&headers["content-type"], &headers["x-amz-meta-a"]),
        (&"text/plain".parse().unwrap(), &"1".parse().unwrap())
    );
    assert_eq!(headers["origin"], "http://page");
    let of_its_body = ["content-length", "cache-control", "content-disposition"];
    for gone in of_its_body.into_iter().chain(["x-amz-date", "x-amz-signature", "policy"]) {
        assert!(!headers.contains_key(gone), "{gone}");
    }
    assert_eq!(request.head.context.identity, Identity::known("root"));
    assert!(request.form.is_some());
}

#[tokio::test]
async fn the_policy_decides_how_large_the_file_may_be() {
    let range = [json!(["content-length-range", 3, 5])];
    let key = [("key", "u/k")];
    for (file, expected) in [
        (&b"ab"[..], Err(BodyError::TooSmall { size: 2, minimum: 3 })),
        (b"abc", Ok(Bytes::from_static(b"abc"))),
        (b"abcde", Ok(Bytes::from_static(b"abcde"))),
        (b"abcdef", Err(BodyError::TooLarge { maximum: 5 })),
    ] {
        assert_eq!(post_signed(&key, &range, file).await.unwrap().1, expected);
    }
}

#[tokio::test]
async fn fields_outside_the_post_policy_are_denied() {
    let code = async |fields: &[(&'static str, &str)], more: &[Value]| {
        post_signed(fields, more, b"x").await.err()
    };
    assert_eq!(code(&[("key", "v/k")], &[]).await, Some(Code::AccessDenied));
    assert_eq!(code(&[("key", "u/k"), ("acl", "private")], &[]).await, Some(Code::AccessDenied));
    assert_eq!(code(&[("key", "u/k")], &[json!({})]).await, Some(Code::InvalidPolicyDocument));
    let copy = [json!(["starts-with", "$x-amz-copy-source", ""])];
    let fields = [("key", "u/k"), ("x-amz-copy-source", "/b/other")];
    assert_eq!(code(&fields, &copy).await, Some(Code::NotImplemented));
}

#[tokio::test]
async fn anonymous_forms_are_accepted_in_public_buckets() {
    let form = || form_of(&[("key", "k")], Some(b"x"));
    let refusal = post(&gate(false), form()).await.unwrap_err();
    assert_eq!(refusal.code, Code::AccessDenied);
    let (request, body) = post(&gate(true), form()).await.unwrap();
    assert_eq!(request.head.context.identity, Identity::Anonymous);
    assert_eq!(body.unwrap(), "x");
}

#[tokio::test]
async fn forms_that_are_none_are_refused() {
    let key = [("key", "k")];
    let long = "x".repeat(30_000);
    let longer = "x".repeat(100_000);
    let name = format!("--x\r\nContent-Disposition: form-data; name=\"{longer}");
    for (form, expected) in [
        (form_of(&key, None), Code::InvalidArgument),
        (form_of(&[], Some(b"x")), Code::InvalidArgument),
        (form_of(&[("key", "")], Some(b"x")), Code::InvalidArgument),
        (form_of(&[("key", "k"), ("KEY", "l")], Some(b"x")), Code::InvalidArgument),
        (form_of(&[("a", &long)], Some(b"x")), Code::MaxPostPreDataLengthExceeded),
        (form_of(&[("a", &longer)], Some(b"x")), Code::MaxPostPreDataLengthExceeded),
        (name.into_bytes(), Code::MaxPostPreDataLengthExceeded),
        (b"nonsense".to_vec(), Code::MalformedPostRequest),
        (Vec::new(), Code::MalformedPostRequest),
    ] {
        let refusal = post(&gate(true), form.clone()).await.unwrap_err();
        let shown = String::from_utf8_lossy(&form[..form.len().min(60)]).into_owned();
        assert_eq!(refusal.code, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_no_file() {
    let mut form = form_of(&[("key", "k")], Some(b"hello"));
    form.truncate(form.len() - 8);
    let body = post(&gate(true), form).await.unwrap().1;
    assert!(matches!(body, Err(BodyError::MalformedForm(_))), "{body:?}");
}

#[tokio::test]
async fn a_file_holds_any_bytes_however_they_are_cut() {
    let file: Vec<u8> =
        (0..3000).flat_map(|at: u32| format!("\r\n--{at}\r\n-").into_bytes()).collect();
    for size in [1, 7, 4096, 100_000] {
        let form = form_of(&[("key", "k")], Some(&file));
        let chunks: Vec<_> = form.chunks(size).map(Bytes::copy_from_slice).collect();
        let frames =
            chunks.into_iter().map(|chunk| Ok::<_, Infallible>(http_body::Frame::data(chunk)));
        let headers = [(CONTENT_TYPE, "multipart/form-data; boundary=x".parse().unwrap())];
        let body = StreamBody::new(futures::stream::iter(frames));
        let form = gate(true)
            .read_form(&headers.into_iter().collect(), body, PollFlag::default())
            .await
            .unwrap();
        let read = form.file.collect().await.unwrap().to_bytes();
        assert_eq!(read, file, "{size}");
    }
}

#[tokio::test]
async fn an_object_may_be_a_form() {
    let head = |uri: &str| {
        let request = Request::post(uri).header("host", "h");
        let request = request.header("content-type", "multipart/form-data; boundary=x");
        request.body(()).unwrap().into_parts().0
    };
    let gate = gate(true);
    assert!(gate.form_target(&head("/b/k?uploads")).unwrap().is_none());
    assert!(gate.form_target(&head("/b?delete")).unwrap().is_none());
    assert!(gate.form_target(&head("/b/")).unwrap().is_some());
    assert_eq!(gate.form_target(&head("/b?acl")).unwrap_err().code, Code::NotImplemented);
}
