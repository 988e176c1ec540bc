//! Ids of traces and spans, and the text of a parent: W3C Trace Context, level 1.
//!
//! ```text
//! traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//!              version, id of the trace, id of the parent, flags (bit 0: sampled)
//! ```

use std::fmt;

/// Id of a trace: 16 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Id of a span: 8 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// Place of a sampled span: its trace and its own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// Trace of the span.
    pub trace: TraceId,
    /// Id of the span.
    pub span: SpanId,
}

/// Content of a `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedParent {
    /// Span of the sender.
    pub context: SpanContext,
    /// True if the sender records its span.
    pub sampled: bool,
}

const VERSION: &str = "00";
const FLAGS_SAMPLED: u8 = 1;
/// Length of a parent's text in bytes.
const PARENT_BYTES: usize = 55;

impl TraceId {
    /// Returns a random id.
    ///
    /// # Panics
    /// If the operating system has no random bytes.
    pub fn random() -> Self {
        Self(random())
    }

    /// Returns the id with these bytes. None if all are zero.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Returns the bytes of the id.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// Returns a random id.
    ///
    /// # Panics
    /// If the operating system has no random bytes.
    pub fn random() -> Self {
        Self(random())
    }

    /// Returns the id with these bytes. None if all are zero.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Returns the bytes of the id.
    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl SpanContext {
    /// Returns the context of a new trace's first span.
    pub fn new_root() -> Self {
        Self { trace: TraceId::random(), span: SpanId::random() }
    }

    /// Returns the context of a child of this span.
    #[must_use]
    pub fn new_child(&self) -> Self {
        Self { trace: self.trace, span: SpanId::random() }
    }

    /// Returns the text of `traceparent`, with the flag `sampled`.
    pub fn to_parent(&self) -> String {
        format!("{VERSION}-{}-{}-{FLAGS_SAMPLED:02x}", self.trace, self.span)
    }
}

impl ParsedParent {
    /// Reads a `traceparent`. None if the text breaks the rules of version 00. Texts of later
    /// versions are read by those rules as long as their fields agree, and may be longer.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (head, rest) = text.split_at_checked(PARENT_BYTES)?;
        let is_dashed = [2, 35, 52].iter().all(|at| head[*at] == b'-');
        let version = lower_hex::<1>(&head[..2])?[0];
        let is_known = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !is_dashed || !is_known {
            return None;
        }
        let trace = TraceId::from_bytes(lower_hex(&head[3..35])?)?;
        let span = SpanId::from_bytes(lower_hex(&head[36..52])?)?;
        let [flags] = lower_hex(&head[53..])?;
        let sampled = flags & FLAGS_SAMPLED != 0;
        Some(Self { context: SpanContext { trace, span }, sampled })
    }
}

/// Decodes hexadecimal digits, of which the standard permits only lower case.
fn lower_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    // All zero means "no id".
    bytes[0] |= u8::from(bytes == [0; N]);
    bytes
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Example of the standard.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<ParsedParent> {
        ParsedParent::parse(text.as_bytes())
    }

    #[test]
    fn the_example_of_the_standard_is_read_and_written() {
        let parent = parse(EXAMPLE).unwrap();
        assert!(parent.sampled);
        assert_eq!(parent.context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.context.span.to_string(), "00f067aa0ba902b7");
        assert_eq!(parent.context.to_parent(), EXAMPLE);
        let unsampled = EXAMPLE.replace("-01", "-00");
        assert!(!parse(&unsampled).unwrap().sampled);
        let other_flags = EXAMPLE.replace("-01", "-ff");
        assert!(parse(&other_flags).unwrap().sampled, "unknown flags are ignored");
    }

    #[test]
    fn malformed_parents_are_ignored() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let upper = EXAMPLE.replace("4bf9", "4BF9");
        let (short, longer) = (&EXAMPLE[..54], format!("{EXAMPLE}-00"));
        let last_version = EXAMPLE.replacen("00-", "ff-", 1);
        let blank = EXAMPLE.replacen('-', " ", 1);
        let wrong_digit = EXAMPLE.replace("4736", "473g");
        for text in
            ["", zero_trace, zero_span, &upper, short, &longer, &last_version, &blank, &wrong_digit]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn parents_of_later_versions_are_read_by_their_first_fields() {
        let later = EXAMPLE.replacen("00-", "01-", 1);
        assert_eq!(parse(&later), parse(EXAMPLE));
        assert_eq!(parse(&format!("{later}-more")), parse(EXAMPLE));
        assert_eq!(parse(&format!("{later}more")), None);
    }

    #[test]
    fn children_belong_to_the_trace_of_their_parent() {
        let root = SpanContext::new_root();
        let child = root.new_child();
        assert_eq!(child.trace, root.trace);
        assert_ne!(child.span, root.span);
        assert_ne!(SpanContext::new_root().trace, root.trace);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_ignored(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = ParsedParent::parse(&bytes);
        }

        #[test]
        fn a_written_parent_is_read_again(trace in any::<[u8; 16]>(), span in any::<[u8; 8]>()) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let context = SpanContext {
                trace: TraceId::from_bytes(trace).unwrap(),
                span: SpanId::from_bytes(span).unwrap(),
            };
            let read = parse(&context.to_parent()).unwrap();
            prop_assert_eq!(read, ParsedParent { context, sampled: true });
        }
    }
}
