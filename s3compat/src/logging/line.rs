//! A request in one line of an access log.
//!
//! ```text
//! owner bucket [time] ip requester request-id operation key "uri" status error sent size total
//! turn-around "referer" "agent" version host-id signature cipher authentication host tls arn acl
//! ```
//!
//! What isn't known is `-`. Whatever clients say of themselves is encoded so that neither a quote nor
//! the end of a line can stand in it.

use std::fmt::Write as _;
use std::net::IpAddr;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::settings::moment;
use crate::auth::{Identity, Mechanism};
use crate::service::Tls;

const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
/// Within quotes.
const QUOTED: &AsciiSet = &CONTROLS.add(b'"');
/// Between spaces.
const BARE: &AsciiSet = &QUOTED.add(b' ').add(b'%');

/// Who asked, among the extensions of a reply to a request that the door let in.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) identity: Identity,
    pub(crate) mechanism: Mechanism,
}

/// What a line says, but for what is known only when the reply has been sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts<'a> {
    pub(crate) bucket_owner: Option<&'a str>,
    pub(crate) bucket: Option<&'a str>,
    pub(crate) time_ms: u64,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) asker: Option<&'a Asker>,
    pub(crate) request_id: &'a str,
    pub(crate) operation: &'a str,
    pub(crate) key: Option<&'a str>,
    /// Method, path with query, and protocol.
    pub(crate) request: &'a str,
    pub(crate) status: u16,
    pub(crate) error: Option<&'a str>,
    pub(crate) object_size: Option<u64>,
    pub(crate) turn_around_ms: u64,
    pub(crate) referer: Option<&'a str>,
    pub(crate) agent: Option<&'a str>,
    pub(crate) version: Option<&'a str>,
    pub(crate) host_id: &'a str,
    pub(crate) host: Option<&'a str>,
    pub(crate) tls: Option<Tls>,
}

/// A line that only lacks how much was sent, and how long that took.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    head: String,
    object_size: Option<u64>,
    tail: String,
}

impl Line {
    pub(crate) fn new(facts: &Facts<'_>) -> Self {
        let mut head = Writer(String::with_capacity(256));
        head.bare(facts.bucket_owner);
        head.bare(facts.bucket);
        let time = moment(facts.time_ms).format(TIME).unwrap_or_default();
        head.plain(format_args!("[{time}]"));
        head.known(facts.ip.map(|ip| ip.to_canonical()));
        head.bare(requester(facts.asker).as_deref());
        head.bare(Some(facts.request_id));
        head.bare(Some(facts.operation));
        head.bare(facts.key);
        head.quoted(Some(facts.request));
        head.plain(facts.status);
        head.bare(facts.error);
        let mut tail = Writer(String::with_capacity(256));
        tail.plain(facts.turn_around_ms);
        tail.quoted(facts.referer);
        tail.quoted(facts.agent);
        tail.bare(facts.version);
        tail.bare(Some(facts.host_id));
        let (signature, kind) = authentication(facts.asker);
        tail.bare(signature);
        tail.bare(None);
        tail.bare(kind);
        tail.bare(facts.host);
        tail.bare(facts.tls.map(|tls| match tls {
            Tls::V1_2 => "TLSv1.2",
            Tls::V1_3 => "TLSv1.3",
        }));
        tail.bare(None);
        tail.bare(None);
        Self { head: head.0, object_size: facts.object_size, tail: tail.0 }
    }

    /// The line of a reply of which so much was sent within that time.
    pub(crate) fn finish(&self, sent_bytes: u64, total_ms: u64) -> String {
        let mut line = Writer(self.head.clone());
        line.known((sent_bytes > 0).then_some(sent_bytes));
        line.known(self.object_size);
        line.plain(total_ms);
        line.plain(&self.tail);
        line.0
    }
}

/// Fields with a space between them.
struct Writer(String);

impl Writer {
    fn plain(&mut self, field: impl std::fmt::Display) {
        let space = if self.0.is_empty() { "" } else { " " };
        write!(self.0, "{space}{field}").expect("a String takes all writes");
    }

    fn known(&mut self, field: Option<impl std::fmt::Display>) {
        match field {
            Some(field) => self.plain(field),
            None => self.plain('-'),
        }
    }

    fn bare(&mut self, field: Option<&str>) {
        let field = field.filter(|field| !field.is_empty());
        self.known(field.map(|field| utf8_percent_encode(field, BARE)));
    }

    fn quoted(&mut self, field: Option<&str>) {
        let field = utf8_percent_encode(field.unwrap_or("-"), QUOTED);
        self.plain(format_args!("\"{field}\""));
    }
}

/// An account by its canonical id, a user of one by its ARN.
fn requester(asker: Option<&Asker>) -> Option<String> {
    let who = asker?.identity.who()?;
    Some(if who.is_account() { who.canonical_id.to_string() } else { who.arn() })
}

/// The version of the signature, and where it was.
fn authentication(asker: Option<&Asker>) -> (Option<&'static str>, Option<&'static str>) {
    match asker.map(|asker| asker.mechanism) {
        None | Some(Mechanism::None) => (None, None),
        Some(Mechanism::Header) => (Some("SigV4"), Some("AuthHeader")),
        Some(Mechanism::Query) => (Some("SigV4"), Some("QueryString")),
        Some(Mechanism::HeaderV2) => (Some("SigV2"), Some("AuthHeader")),
        Some(Mechanism::QueryV2) => (Some("SigV2"), Some("QueryString")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of a line: what stands between spaces, brackets or quotes.
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

    fn facts() -> Facts<'static> {
        Facts {
            bucket_owner: Some("owner"),
            bucket: Some("b"),
            time_ms: 1_700_000_000_123,
            request_id: "00AB",
            operation: "REST.GET.OBJECT",
            request: "GET /b/k HTTP/1.1",
            status: 200,
            host_id: "host==",
            ..Facts::default()
        }
    }

    #[test]
    fn a_line_has_s3s_fields() {
        let identity = Identity::known("alice");
        let asker = Asker { identity, mechanism: Mechanism::Header };
        let line = Line::new(&Facts {
            ip: Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
            asker: Some(&asker),
            key: Some("a b/\u{fc}\n"),
            error: Some("NoSuchKey"),
            object_size: Some(9),
            turn_around_ms: 3,
            referer: Some("http://x/"),
            agent: Some("say \"hi\"\r\nx"),
            version: Some("v1"),
            host: Some("localhost:9000"),
            tls: Some(Tls::V1_3),
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
            "-",
            "AuthHeader",
            "localhost:9000",
            "TLSv1.3",
            "-",
            "-",
        ];
        assert_eq!(fields(&line.finish(7, 5)), expected);
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let line = Line::new(&Facts { bucket_owner: None, bucket: None, ..facts() }).finish(0, 1);
        let fields = fields(&line);
        assert_eq!(fields.len(), 26, "{line}");
        for at in [0, 1, 3, 4, 7, 10, 11, 12, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25] {
            assert_eq!(fields[at], "-", "{at}: {line}");
        }
    }

    #[test]
    fn users_are_told_from_their_accounts() {
        let carol = crate::auth::Who { user: "carol".into(), ..crate::auth::Who::named("alice") };
        let identity = Identity::Known(std::sync::Arc::new(carol));
        let asker = Asker { identity, mechanism: Mechanism::QueryV2 };
        let line = Line::new(&Facts { asker: Some(&asker), ..facts() }).finish(0, 1);
        assert_eq!(fields(&line)[4], "arn:aws:iam::alice:user/carol");
        assert_eq!((&*fields(&line)[19], &*fields(&line)[21]), ("SigV2", "QueryString"));
        let nobody = Asker { identity: Identity::Anonymous, mechanism: Mechanism::None };
        let line = Line::new(&Facts { asker: Some(&nobody), ..facts() }).finish(0, 1);
        assert_eq!(fields(&line)[4], "-");
    }
}
