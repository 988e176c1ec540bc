//! Lines have 26 fields, whatever clients send.

use super::*;
use crate::operation::{Operation, PathKind};

fn finished(line: &PendingLine, sent_bytes: u64, total_ms: u64) -> String {
    let mut text = String::new();
    line.clone().finish(sent_bytes, total_ms, |line| {
        text = line.parts.concat();
        assert_eq!(line.lines, text.lines().count() as u64);
    });
    text
}

/// Fields of a line, separated by spaces, with brackets and quotes removed.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut within) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' | '[' | ']' => within = !within,
            ' ' if !within => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

#[test]
fn bytes_are_plain_if_their_set_encodes_none() {
    for byte in 0..=127 {
        let text = char::from(byte).to_string();
        let encodes = |set| utf8_percent_encode(&text, set).to_string() != text;
        assert_eq!(is_plain(byte), !encodes(BARE), "{byte}");
        assert_eq!(is_plain_in_quotes(byte), !encodes(QUOTED), "{byte}");
    }
    assert!((128..=255).all(|byte| !is_plain(byte) && !is_plain_in_quotes(byte)));
}

fn facts() -> LineContents<'static> {
    LineContents {
        bucket_owner: Some("owner"),
        bucket: Some("b"),
        time_ms: 1_700_000_000_123,
        request_id: "00AB",
        operation: OperationName::of(Some(Operation::GetObject), "GET", PathKind::Object),
        request: RequestLine { method: "GET", link: "/b/k", protocol: "HTTP/1.1" },
        status: 200,
        host_id: "host==",
        ..LineContents::default()
    }
}

#[test]
fn a_line_has_s3s_fields() {
    let identity = Identity::known("alice");
    let requester = ReplyRequester { identity, mechanism: Mechanism::Header };
    let line = PendingLine::new(&LineContents {
        ip: Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        requester: Some(&requester),
        key: Some("a b/\u{fc}\n"),
        error: Some("NoSuchKey"),
        object_size: Some(9),
        turn_around_ms: 3,
        referer: Some("http://x/"),
        agent: Some("say \"hi\"\r\nx"),
        version: Some("v1"),
        host: Some("localhost:9000"),
        tls: Some(TlsParameters {
            version: TlsVersion::V1_3,
            cipher: Some("TLS_AES_128_GCM_SHA256"),
        }),
        by_acl: true,
        ..facts()
    });
    let expected = [
        "owner",
        "b",
        "14/Nov/2023:22:13:20 +0000",
        "127.0.0.1",
        "alice",
        "00AB",
        "REST.GET.OBJECT",
        "a%20b/%C3%BC%0A",
        "GET /b/k HTTP/1.1",
        "200",
        "NoSuchKey",
        "7",
        "9",
        "5",
        "3",
        "http://x/",
        "say %22hi%22%0D%0Ax",
        "v1",
        "host==",
        "SigV4",
        "TLS_AES_128_GCM_SHA256",
        "AuthHeader",
        "localhost:9000",
        "TLSv1.3",
        "-",
        "Yes",
    ];
    assert_eq!(fields(&finished(&line, 7, 5)), expected);
}

#[test]
fn a_line_has_26_fields_for_any_client_input() {
    // Split as readers of logs do: a field that begins with a quote or a bracket ends with one.
    let count = |line: &str| {
        let (mut rest, mut count) = (line, 0);
        while !rest.is_empty() {
            let end = match rest.as_bytes()[0] {
                b'"' => 2 + rest[1..].find('"').unwrap(),
                b'[' => 2 + rest[1..].find(']').unwrap(),
                b'\'' | b'`' | b'\\' => panic!("{line}"),
                _ => rest.find(' ').unwrap_or(rest.len()),
            };
            count += 1;
            rest = rest[end..].strip_prefix(' ').unwrap_or(&rest[end..]);
        }
        count
    };
    for text in [
        "", " ", "a b", "\"", "a\"b c", "[x] y", "]", "'a b'", "\\", "\\\" x", "a\tb", "-",
        "\u{a0}",
    ] {
        let line = PendingLine::new(&LineContents {
            key: Some(text),
            referer: Some(text),
            agent: Some(text),
            version: Some(text),
            host: Some(text),
            request: RequestLine { link: &format!("/{text}"), ..facts().request },
            error: Some(text),
            ..facts()
        });
        let line = finished(&line, 1, 1);
        assert_eq!(count(&line), 26, "{text:?}: {line}");
    }
}

#[test]
fn each_of_many_keys_has_a_line_of_its_own() {
    let key = |key: &str, status, error: Option<&str>| BatchedKey {
        key: key.to_owned(),
        version: error.is_none().then(|| "v1".to_owned()),
        status,
        error: error.map(str::to_owned),
    };
    let batch = [key("a\nb", 204, None), key("c", 403, Some("AccessDenied"))];
    let facts = LineContents {
        operation: OperationName::of(Some(Operation::DeleteObjects), "POST", PathKind::Bucket),
        agent: Some("x"),
        host: Some("h"),
        batch: &batch,
        ..facts()
    };
    let lines = finished(&PendingLine::new(&facts), 9, 1);
    let [request, first, second] =
        lines.lines().map(fields).collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((&*request[6], &*request[7]), ("REST.POST.MULTI_OBJECT_DELETE", "-"));
    assert_eq!(first[..6], request[..6]);
    assert_eq!(first[6..11], ["BATCH.DELETE.OBJECT", "a%0Ab", "-", "204", "-"]);
    assert_eq!(second[6..11], ["BATCH.DELETE.OBJECT", "c", "-", "403", "AccessDenied"]);
    assert_eq!(first[11..19], ["-", "-", "-", "-", "-", "-", "v1", "host=="]);
    assert_eq!((first.len(), &first[18..], &second[17]), (26, &request[18..], &"-".to_owned()));
}

#[test]
fn unknown_fields_are_dashes() {
    let unknown = LineContents { bucket_owner: None, bucket: None, ..facts() };
    let line = finished(&PendingLine::new(&unknown), 0, 1);
    let fields = fields(&line);
    assert_eq!(fields.len(), 26, "{line}");
    for at in [0, 1, 3, 4, 7, 10, 11, 12, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25] {
        assert_eq!(fields[at], "-", "{at}: {line}");
    }
}

#[test]
fn users_and_their_accounts_are_logged_differently() {
    let carol = crate::access::AccountIdentity {
        user: "carol".into(),
        ..crate::access::AccountIdentity::named("alice")
    };
    let identity = Identity::Known(std::sync::Arc::new(carol));
    let requester = ReplyRequester { identity, mechanism: Mechanism::QueryV2 };
    let line = PendingLine::new(&LineContents { requester: Some(&requester), ..facts() });
    let line = finished(&line, 0, 1);
    assert_eq!(fields(&line)[4], "arn:aws:iam::alice:user/carol");
    assert_eq!((&*fields(&line)[19], &*fields(&line)[21]), ("SigV2", "QueryString"));
    let nobody = ReplyRequester { identity: Identity::Anonymous, mechanism: Mechanism::None };
    let line = PendingLine::new(&LineContents { requester: Some(&nobody), ..facts() });
    let line = finished(&line, 0, 1);
    assert_eq!(fields(&line)[4], "-");
}
