//! The access log line of a request.
//!
//! ```text
//! owner bucket [time] ip requester request-id operation key "uri" status error sent size total
//! turn-around "referer" "agent" version host-id signature cipher authentication host tls arn acl
//! ```
//!
//! Unknown fields are `-`. Values from clients are encoded, so that they contain neither quotes nor
//! ends of lines.

use std::fmt::Write as _;
use std::net::IpAddr;

use martlet_protocol::http::{TlsParameters, TlsVersion};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::operation_name::OperationName;
use super::secrets::without_secrets;
use super::settings::moment;
use crate::access::Identity;
use crate::auth::Mechanism;
use crate::decimal;

/// Names of months, which do not depend on a language.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Set of characters to encode in quoted fields.
const QUOTED: &AsciiSet = &CONTROLS.add(b'"').add(b'\\');
/// Set of characters to encode in bare fields: all that could begin or end a field.
const BARE: &AsciiSet =
    &QUOTED.add(b' ').add(b'%').add(b'\'').add(b'`').add(b'[').add(b']').add(b'(').add(b')');

/// Requester of an authenticated request.
#[derive(Clone, Debug)]
pub(crate) struct ReplyRequester {
    pub(crate) identity: Identity,
    pub(crate) mechanism: Mechanism,
}

/// Request line of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a str,
    /// Path and query.
    pub(crate) link: &'a str,
    pub(crate) protocol: &'static str,
}

/// Contents of a line, except what is known only after the reply has been sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineContents<'a> {
    pub(crate) bucket_owner: Option<&'a str>,
    pub(crate) bucket: Option<&'a str>,
    pub(crate) time_ms: u64,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) requester: Option<&'a ReplyRequester>,
    pub(crate) request_id: &'a str,
    pub(crate) operation: OperationName<'a>,
    pub(crate) key: Option<&'a str>,
    pub(crate) request: RequestLine<'a>,
    pub(crate) status: u16,
    pub(crate) error: Option<&'a str>,
    pub(crate) object_size: Option<u64>,
    pub(crate) turn_around_ms: u64,
    pub(crate) referer: Option<&'a str>,
    pub(crate) agent: Option<&'a str>,
    pub(crate) version: Option<&'a str>,
    pub(crate) host_id: &'a str,
    pub(crate) host: Option<&'a str>,
    pub(crate) tls: Option<TlsParameters>,
    /// True if an access control list admitted the request.
    pub(crate) by_acl: bool,
    /// Outcome for each key of a batch.
    pub(crate) batch: &'a [BatchedKey],
}

/// Outcome for one of many keys that a request deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchedKey {
    pub(crate) key: String,
    pub(crate) version: Option<String>,
    pub(crate) status: u16,
    pub(crate) error: Option<String>,
}

/// Outcomes for all keys, among the extensions of a reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchOutcome(pub(crate) Vec<BatchedKey>);

/// Usual bytes of a line, at most.
const LINE_BYTES: usize = 1024;

/// A line that lacks only the bytes sent and the total time.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingLine {
    /// The fields before these, those behind them, and the lines of the batch's keys, each with a
    /// newline before it.
    text: String,
    /// Length in bytes of the fields before.
    head: usize,
    object_size: Option<u64>,
    keys: u64,
}

/// A line and the lines of its keys, in parts, without a newline at the end.
pub(crate) struct FinishedLine<'a> {
    pub(crate) parts: [&'a str; 3],
    /// Number of lines.
    pub(crate) lines: u64,
}

impl PendingLine {
    pub(crate) fn new(facts: &LineContents<'_>) -> Self {
        // The line grows to its end in one buffer.
        let mut text = FieldWriter(String::with_capacity(LINE_BYTES));
        text.beginning(facts, &facts.operation, facts.key);
        text.request(&facts.request);
        text.number(facts.status.into());
        text.bare(facts.error);
        let head = text.0.len();
        text.number(facts.turn_around_ms);
        // The referring page's URL may be a presigned link.
        text.quoted_link(facts.referer);
        text.quoted(facts.agent);
        text.end(facts, facts.version);
        let FieldWriter(mut text) = text;
        for key in facts.batch {
            let FieldWriter(line) = line_of_key(facts, key);
            text.push('\n');
            text.push_str(&line);
        }
        Self { text, head, object_size: facts.object_size, keys: facts.batch.len() as u64 }
    }

    /// Completes the line with the bytes sent and the total time, and passes it on.
    pub(crate) fn finish(
        self,
        sent_bytes: u64,
        total_ms: u64,
        deliver: impl FnOnce(FinishedLine<'_>),
    ) {
        let Self { text, head, object_size, keys } = self;
        let end = text.len();
        // The buffer has room behind the text for the fields that belong within.
        let mut text = FieldWriter(text);
        text.known((sent_bytes > 0).then_some(sent_bytes));
        text.known(object_size);
        text.number(total_ms);
        let (text, middle) = text.0.split_at(end);
        let (head, tail) = text.split_at(head);
        deliver(FinishedLine { parts: [head, middle, tail], lines: 1 + keys });
    }
}

/// Line of one of many keys. Fields of the whole request are empty.
fn line_of_key(facts: &LineContents<'_>, key: &BatchedKey) -> FieldWriter {
    let mut line = FieldWriter(String::with_capacity(256));
    line.beginning(facts, &OperationName::BATCH_DELETE, Some(&key.key));
    line.bare(None);
    line.number(key.status.into());
    line.bare(key.error.as_deref());
    // Bytes sent, the object's size, both times, referer and agent.
    (0..6).for_each(|_| line.bare(None));
    line.end(facts, key.version.as_deref());
    line
}

/// Writer of fields, separated by spaces.
struct FieldWriter(String);

impl FieldWriter {
    /// Writes the fields from the bucket's owner to the key.
    fn beginning(
        &mut self,
        facts: &LineContents<'_>,
        operation: &OperationName<'_>,
        key: Option<&str>,
    ) {
        self.bare(facts.bucket_owner);
        self.bare(facts.bucket);
        self.time(facts.time_ms);
        match facts.ip {
            Some(ip) => self.address(ip.to_canonical()),
            None => self.plain(None),
        }
        self.requester(facts.requester);
        self.plain(Some(facts.request_id));
        self.operation(operation);
        self.bare(key);
    }

    /// Writes the fields from the version to the access control list.
    fn end(&mut self, facts: &LineContents<'_>, version: Option<&str>) {
        self.bare(version);
        self.plain(Some(facts.host_id));
        let (signature, kind) = authentication(facts.requester);
        self.plain(signature);
        self.plain(facts.tls.and_then(|tls| tls.cipher));
        self.plain(kind);
        self.bare(facts.host);
        self.plain(facts.tls.map(|tls| match tls.version {
            TlsVersion::V1_2 => "TLSv1.2",
            TlsVersion::V1_3 => "TLSv1.3",
        }));
        // Access points don't exist.
        self.plain(None);
        self.plain(facts.by_acl.then_some("Yes"));
    }

    /// Writes a time as `[14/Nov/2023:22:13:20 +0000]`.
    fn time(&mut self, time_ms: u64) {
        let at = moment(time_ms);
        let (year, month, day) = at.to_calendar_date();
        let month = MONTHS[usize::from(u8::from(month) - 1)];
        let (hour, minute, second) = at.to_hms();
        let mut text = *b"[00/Jan/0000:00:00:00 +0000]";
        decimal::put(&mut text[1..3], day);
        text[4..7].copy_from_slice(month.as_bytes());
        decimal::put(&mut text[8..12], year.unsigned_abs());
        decimal::put(&mut text[13..15], hour);
        decimal::put(&mut text[16..18], minute);
        decimal::put(&mut text[19..21], second);
        self.space();
        self.0.push_str(std::str::from_utf8(&text).expect("digits and names of months"));
    }

    fn address(&mut self, address: IpAddr) {
        self.space();
        match address {
            IpAddr::V4(address) => {
                for (at, octet) in address.octets().into_iter().enumerate() {
                    if at > 0 {
                        self.0.push('.');
                    }
                    decimal::append(&mut self.0, octet.into());
                }
            }
            IpAddr::V6(address) => {
                write!(self.0, "{address}").expect("writing to a String can't fail");
            }
        }
    }

    /// Writes an account's canonical id, or a user's ARN.
    fn requester(&mut self, requester: Option<&ReplyRequester>) {
        match requester.and_then(|requester| requester.identity.who()) {
            Some(who) if who.is_account() => self.bare(Some(&who.canonical_id)),
            Some(who) => self.bare(Some(&who.arn())),
            None => self.plain(None),
        }
    }

    fn number(&mut self, number: u64) {
        self.space();
        decimal::append(&mut self.0, number);
    }

    fn known(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.plain(None),
        }
    }

    /// Writes a field that has nothing to encode, as this process makes it.
    fn plain(&mut self, field: Option<&str>) {
        self.space();
        self.0.push_str(field.filter(|field| !field.is_empty()).unwrap_or("-"));
    }

    fn operation(&mut self, operation: &OperationName<'_>) {
        let (interface, verb, noun) = operation.parts();
        self.plain(Some(interface));
        self.0.push('.');
        self.in_bare(verb);
        self.0.push('.');
        self.0.push_str(noun);
    }

    fn bare(&mut self, field: Option<&str>) {
        self.space();
        self.in_bare(field.filter(|field| !field.is_empty()).unwrap_or("-"));
    }

    fn request(&mut self, request: &RequestLine<'_>) {
        self.open_quote();
        self.in_quotes(request.method);
        self.0.push(' ');
        without_secrets(request.link, |part| self.in_quotes(part));
        self.0.push(' ');
        self.0.push_str(request.protocol);
        self.0.push('"');
    }

    fn quoted(&mut self, field: Option<&str>) {
        self.open_quote();
        self.in_quotes(field.unwrap_or("-"));
        self.0.push('"');
    }

    /// Writes a quoted link without its secrets.
    fn quoted_link(&mut self, link: Option<&str>) {
        self.open_quote();
        without_secrets(link.unwrap_or("-"), |part| self.in_quotes(part));
        self.0.push('"');
    }

    /// Begins a quoted field.
    fn open_quote(&mut self) {
        self.space();
        self.0.push('"');
    }

    /// Separates the next field from those before it.
    fn space(&mut self) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
    }

    /// Appends a part of a bare field.
    fn in_bare(&mut self, text: &str) {
        self.escaped(text, BARE, is_plain);
    }

    /// Appends a part of a quoted field.
    fn in_quotes(&mut self, text: &str) {
        self.escaped(text, QUOTED, is_plain_in_quotes);
    }

    /// Appends a text with the characters of a set encoded. The common text has none of them, which
    /// one pass without branches finds.
    fn escaped(&mut self, text: &str, set: &'static AsciiSet, is_plain: impl Fn(u8) -> bool) {
        if text.bytes().fold(true, |so_far, byte| so_far & is_plain(byte)) {
            self.0.push_str(text);
        } else {
            self.0.extend(utf8_percent_encode(text, set));
        }
    }
}

/// Returns true for bytes that [`QUOTED`] does not encode.
fn is_plain_in_quotes(byte: u8) -> bool {
    matches!(byte, b' '..=b'!' | b'#'..=b'[' | b']'..=b'~')
}

/// Returns true for bytes that [`BARE`] does not encode.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'!' | b'#' | b'$' | b'&' | b'*'..=b'Z' | b'^' | b'_' | b'a'..=b'~')
}

/// Version of the signature, and its place.
fn authentication(
    requester: Option<&ReplyRequester>,
) -> (Option<&'static str>, Option<&'static str>) {
    match requester.map(|requester| requester.mechanism) {
        None | Some(Mechanism::None) => (None, None),
        Some(Mechanism::Header) => (Some("SigV4"), Some("AuthHeader")),
        Some(Mechanism::Query) => (Some("SigV4"), Some("QueryString")),
        Some(Mechanism::HeaderV2) => (Some("SigV2"), Some("AuthHeader")),
        Some(Mechanism::QueryV2) => (Some("SigV2"), Some("QueryString")),
    }
}

#[cfg(test)]
mod tests;
