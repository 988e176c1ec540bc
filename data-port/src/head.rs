//! Head of a request at the data port.

use martlet_protocol::ExtentId;

use crate::range::RequestedRange;

/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Path of pieces.
const PATH: &str = "/x/";

/// Verification of the bytes of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Verifier {
    /// The node compares blocks with their checksums before they leave.
    #[default]
    Node,
    /// The client does.
    Client,
}

impl Verifier {
    /// Name in queries, headers and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Client => "client",
        }
    }
}

/// Range of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeHeader {
    /// The whole piece.
    Absent,
    /// One range.
    One(RequestedRange),
    /// A header that isn't one range.
    Unreadable,
}

/// A request for bytes of a piece.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DataRequest {
    /// False for HEAD.
    pub(crate) wants_bytes: bool,
    pub(crate) extent: ExtentId,
    /// Never printed: the token is a secret.
    pub(crate) token: String,
    pub(crate) verifier: Verifier,
    pub(crate) range: RangeHeader,
    /// True if the connection stays open after the reply.
    pub(crate) keeps_alive: bool,
}

impl std::fmt::Debug for DataRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataRequest").field("extent", &self.extent).finish_non_exhaustive()
    }
}

/// Refusal of a head. The connection ends after it: what follows can't be told from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadRefusal {
    /// The head is no request that the port serves.
    Malformed(&'static str),
    /// Nothing is served under the path.
    Path,
    /// The method is neither GET nor HEAD.
    Method,
}

/// Result of parsing received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedHead {
    /// The head has not ended.
    Partial,
    /// A request, and the length of its head.
    Request(DataRequest, usize),
    /// A head that is refused.
    Refused(HeadRefusal),
}

/// Parses the head at the beginning of received bytes.
pub(crate) fn parse(received: &[u8]) -> ParsedHead {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(received) {
        Ok(httparse::Status::Partial) => ParsedHead::Partial,
        Ok(httparse::Status::Complete(length)) => match read(&request) {
            Ok(request) => ParsedHead::Request(request, length),
            Err(refusal) => ParsedHead::Refused(refusal),
        },
        Err(httparse::Error::TooManyHeaders) => {
            ParsedHead::Refused(HeadRefusal::Malformed("the request has too many headers"))
        }
        Err(_) => ParsedHead::Refused(HeadRefusal::Malformed("the request is not HTTP/1.1")),
    }
}

fn read(request: &httparse::Request<'_, '_>) -> Result<DataRequest, HeadRefusal> {
    let wants_bytes = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Err(HeadRefusal::Method),
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let extent = path.strip_prefix(PATH).and_then(extent_id).ok_or(HeadRefusal::Path)?;
    let mut read = DataRequest {
        wants_bytes,
        extent,
        token: String::new(),
        verifier: Verifier::default(),
        range: RangeHeader::Absent,
        keeps_alive: request.version == Some(1),
    };
    read.read_query(query)?;
    for header in request.headers.iter() {
        read.read_header(header)?;
    }
    Ok(read)
}

/// The id in a path, in the one form that locate writes.
fn extent_id(text: &str) -> Option<ExtentId> {
    let id: ExtentId = text.parse().ok()?;
    (id.to_string() == text).then_some(id)
}

impl DataRequest {
    fn read_query(&mut self, query: &str) -> Result<(), HeadRefusal> {
        let mut is_verifier_named = false;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("t", token)) if self.token.is_empty() => token.clone_into(&mut self.token),
                Some(("verify", name)) if !is_verifier_named => {
                    is_verifier_named = true;
                    self.verifier = match name {
                        "node" => Verifier::Node,
                        "client" => Verifier::Client,
                        _ => return Err(HeadRefusal::Malformed("verify must be node or client")),
                    };
                }
                _ => {
                    let message = "the query may have t and verify, once each";
                    return Err(HeadRefusal::Malformed(message));
                }
            }
        }
        Ok(())
    }

    fn read_header(&mut self, header: &httparse::Header<'_>) -> Result<(), HeadRefusal> {
        let value = header.value.trim_ascii();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("range") {
            let range = std::str::from_utf8(value).ok().and_then(RequestedRange::parse);
            self.range = match (self.range, range) {
                (RangeHeader::Absent, Some(range)) => RangeHeader::One(range),
                _ => RangeHeader::Unreadable,
            };
        } else if is("connection") {
            let mut options = value.split(|byte| *byte == b',');
            let closes = options.any(|it| it.trim_ascii().eq_ignore_ascii_case(b"close"));
            self.keeps_alive &= !closes;
        } else if is("transfer-encoding") || (is("content-length") && value != b"0") {
            return Err(HeadRefusal::Malformed("requests have no body here"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0f8c2b6e5a7d4c13b2a1908f7e6d5c4b";

    fn head(line: &str, headers: &[&str]) -> ParsedHead {
        let mut text = format!("{line}\r\nhost: n1\r\n");
        for header in headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        parse(text.as_bytes())
    }

    fn request(line: &str, headers: &[&str]) -> DataRequest {
        match head(line, headers) {
            ParsedHead::Request(request, _) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_name_a_piece_a_token_and_a_range() {
        let line = format!("GET /x/{ID}?t=abc-_9&verify=client HTTP/1.1");
        let read = request(&line, &["Range: bytes=5-9"]);
        assert_eq!((read.extent.to_string().as_str(), read.token.as_str()), (ID, "abc-_9"));
        assert_eq!((read.wants_bytes, read.verifier), (true, Verifier::Client));
        let range = RequestedRange::From { first: 5, last: Some(9) };
        assert_eq!((read.range, read.keeps_alive), (RangeHeader::One(range), true));
        assert!(!format!("{read:?}").contains("abc"), "tokens are not printed");
        let read = request(&format!("HEAD /x/{ID} HTTP/1.1"), &["Connection: Close"]);
        assert_eq!((read.wants_bytes, read.keeps_alive), (false, false));
        assert_eq!((read.token.as_str(), read.range), ("", RangeHeader::Absent));
        assert!(!request(&format!("GET /x/{ID} HTTP/1.0"), &[]).keeps_alive);
        let twice =
            request(&format!("GET /x/{ID} HTTP/1.1"), &["range: bytes=0-1", "range: bytes=0-1"]);
        assert_eq!(twice.range, RangeHeader::Unreadable);
    }

    #[test]
    fn nothing_else_is_served() {
        let refusal = |line: &str, headers: &[&str]| match head(line, headers) {
            ParsedHead::Refused(refusal) => refusal,
            other => panic!("{line}: {other:?}"),
        };
        for method in ["PUT", "POST", "DELETE", "OPTIONS", "get"] {
            let line = format!("{method} /x/{ID}?t=a HTTP/1.1");
            assert_eq!(refusal(&line, &[]), HeadRefusal::Method, "{method}");
        }
        let upper = format!("/x/{}", ID.to_uppercase());
        let longer = format!("/x/{ID}0");
        let absolute = format!("http://n1/x/{ID}");
        for path in ["/", "/x/", "/v1/devices", "/x/../etc", &upper, &longer, &absolute] {
            let line = format!("GET {path}?t=a HTTP/1.1");
            assert_eq!(refusal(&line, &[]), HeadRefusal::Path, "{path}");
        }
        for query in ["t=a&t=b", "x=1", "verify=none", "verify=node&verify=client", "t"] {
            let line = format!("GET /x/{ID}?{query} HTTP/1.1");
            assert!(matches!(refusal(&line, &[]), HeadRefusal::Malformed(_)), "{query}");
        }
        let line = format!("GET /x/{ID}?t=a HTTP/1.1");
        for body in ["content-length: 5", "transfer-encoding: chunked", "content-length: +0"] {
            assert!(matches!(refusal(&line, &[body]), HeadRefusal::Malformed(_)), "{body}");
        }
        request(&line, &["content-length: 0"]);
        assert!(matches!(refusal("GET", &[]), HeadRefusal::Malformed(_)));
    }

    #[test]
    fn a_head_may_come_in_parts_and_with_the_next_one() {
        let text = format!("GET /x/{ID}?t=a HTTP/1.1\r\nhost: n1\r\n\r\n");
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end]), ParsedHead::Partial, "{end} bytes");
        }
        let two = format!("{text}{text}");
        let ParsedHead::Request(_, length) = parse(two.as_bytes()) else { panic!("no request") };
        assert_eq!(length, text.len());
    }
}
