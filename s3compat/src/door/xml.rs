//! The shape of XML bodies, looked over before anything parses them.
//!
//! Refused: what isn't UTF-8, DOCTYPE and other declarations, CDATA, entities beyond the five of
//! XML and character references, depth and lists beyond what any S3 document has, and tags that don't
//! close.
//! Whether the names make sense is the operation's to say.

use bytes::Bytes;

use crate::auth::{Code, Refusal};

/// S3's deepest request document has four levels.
const DEPTH_MAX: usize = 8;
/// The elements in S3's longest list, the parts of an upload, and one more, whose operation can say so.
/// What is parsed of a small element takes many times its bytes.
const ELEMENTS_MAX: usize = martlet_protocol::limits::PARTS_MAX as usize + 1;
/// Longest tag, attributes included.
const TAG_BYTES_MAX: usize = 1024;
/// Longest entity: a character reference of seven digits.
const ENTITY_BYTES_MAX: usize = 10;

/// Looks over a document.
pub(super) fn inspect(document: &[u8]) -> Result<(), Refusal> {
    let text = std::str::from_utf8(document).map_err(|_| malformed("it is not UTF-8"))?;
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut has_root = false;
    while let Some((before, markup)) = rest.split_once('<') {
        check_text(before, open.is_empty())?;
        rest = if let Some(instruction) = markup.strip_prefix('?') {
            behind(instruction, "?>")?
        } else if let Some(comment) = markup.strip_prefix("!--") {
            behind(comment, "-->")?
        } else if markup.starts_with('!') {
            return Err(malformed("declarations and CDATA are not allowed"));
        } else {
            let (tag, rest) = split_tag(markup)?;
            if let Some(name) = tag.strip_prefix('/') {
                if open.pop().map(|it| it.name) != Some(name.trim_ascii_end()) {
                    return Err(malformed("a tag closes that was not open"));
                }
            } else {
                if open.is_empty() && std::mem::replace(&mut has_root, true) {
                    return Err(malformed("it has two roots"));
                }
                open_tag(tag, &mut open)?;
            }
            rest
        };
    }
    check_text(rest, open.is_empty())?;
    if !open.is_empty() || !has_root {
        return Err(malformed("it has no end"));
    }
    Ok(())
}

/// The document with characters beyond the first plane written out where it refers to them by
/// number: s3s takes no such reference.
pub(super) fn spell_out(document: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&document) else { return document };
    if !text.contains("&#") {
        return document;
    }
    let mut pieces = text.split("&#");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let spelt = piece.split_once(';').and_then(|(number, rest)| Some((beyond(number)?, rest)));
        if let Some((character, rest)) = spelt {
            out.push(character);
            out.push_str(rest);
        } else {
            out.push_str("&#");
            out.push_str(piece);
        }
    }
    Bytes::from(out)
}

/// The character that a reference's number means, if it lies beyond the first plane.
fn beyond(number: &str) -> Option<char> {
    let code = match number.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    char::from_u32(code.ok()?).filter(|&character| character > '\u{ffff}')
}

/// An element that has not been closed yet.
struct Open<'a> {
    name: &'a str,
    /// How many there are within it.
    elements: usize,
}

fn open_tag<'a>(tag: &'a str, open: &mut Vec<Open<'a>>) -> Result<(), Refusal> {
    check_entities(tag)?;
    let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
    let name = tag.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
    if name.is_empty() || name.contains('<') {
        return Err(malformed("a tag has no name"));
    }
    if open.len() >= DEPTH_MAX {
        return Err(malformed("it is nested too deeply"));
    }
    if let Some(outer) = open.last_mut() {
        outer.elements += 1;
        if outer.elements > ELEMENTS_MAX {
            return Err(malformed("an element holds too many others"));
        }
    }
    if !is_closed {
        open.push(Open { name, elements: 0 });
    }
    Ok(())
}

/// What lies within a tag, and what behind it. A `>` within quotes does not end a tag.
fn split_tag(markup: &str) -> Result<(&str, &str), Refusal> {
    let mut quote = None;
    for (at, byte) in markup.bytes().enumerate().take(TAG_BYTES_MAX) {
        match (quote, byte) {
            (None, b'>') => return Ok((&markup[..at], &markup[at + 1..])),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    Err(malformed("a tag does not end"))
}

fn behind<'a>(text: &'a str, end: &str) -> Result<&'a str, Refusal> {
    text.split_once(end).map(|(_, rest)| rest).ok_or_else(|| malformed("it has no end"))
}

fn check_text(text: &str, is_outside: bool) -> Result<(), Refusal> {
    if is_outside && !text.bytes().all(|byte| byte.is_ascii_whitespace()) {
        return Err(malformed("text stands outside of its root"));
    }
    check_entities(text)
}

fn check_entities(text: &str) -> Result<(), Refusal> {
    for entity in text.split('&').skip(1) {
        let name = entity.split_once(';').map(|(name, _)| name);
        let is_known = name.is_some_and(|name| {
            matches!(name, "lt" | "gt" | "amp" | "quot" | "apos")
                || (name.starts_with('#') && name.len() <= ENTITY_BYTES_MAX)
        });
        if !is_known {
            return Err(malformed("an entity is not known"));
        }
    }
    Ok(())
}

fn malformed(what: &str) -> Refusal {
    Refusal::new(
        Code::MalformedXml,
        format!(
            "The XML you provided was not well-formed or did not validate against our published \
             schema: {what}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documents_of_clients_pass() {
        for document in [
            "<Delete><Object><Key>a &amp; &#x41; &quot;b&quot;</Key></Object></Delete>",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Tagging xmlns='http://s3/a>b'>\n<TagSet/>\n</Tagging>\n",
            "\u{feff}<a><!-- <b> --></a>",
            "<a ></a >",
        ] {
            assert_eq!(inspect(document.as_bytes()), Ok(()), "{document}");
        }
    }

    #[test]
    fn bombs_and_broken_documents_are_refused() {
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        let parts = |count| format!("<Complete>{}</Complete>", "<Part/>".repeat(count));
        assert_eq!(inspect(parts(ELEMENTS_MAX).as_bytes()), Ok(()));
        let long_tag = format!("<a {}></a>", "x='1' ".repeat(1000));
        for document in [
            "<!DOCTYPE lolz [<!ENTITY lol \"lol\">]><a>&lol;</a>",
            "<a><![CDATA[x]]></a>",
            "<!ELEMENT a><a/>",
            "<a>&lol;</a>",
            "<a b='&xxe;'/>",
            "<a>&</a>",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "</a>",
            "<a",
            "<a b='>",
            "<a/>text",
            "text<a/>",
            "",
            "<>",
            "<!-- <a/>",
            &deep,
            &long_tag,
            &parts(ELEMENTS_MAX + 1),
        ] {
            let code = inspect(document.as_bytes()).map_err(|refusal| refusal.code);
            assert_eq!(code, Err(Code::MalformedXml), "{}", &document[..document.len().min(80)]);
        }
        assert!(inspect(b"<a>\xff</a>").is_err());
        assert!(
            inspect(&"<a/>".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()).is_err()
        );
    }

    #[test]
    fn only_what_needs_it_is_spelt_out() {
        let spelt = |text: &'static str| spell_out(Bytes::from_static(text.as_bytes()));
        assert_eq!(spelt("a&#128273;b&#x1F511;c"), "a\u{1f511}b\u{1f511}c");
        for same in ["", "a&lt;b", "&#60;&#38;#128273;&#13;&#xFFFF;", "&#", "&#;", "&#1114112;x"] {
            assert_eq!(spelt(same), same);
        }
    }

    proptest! {
        #[test]
        fn it_never_panics(document in "[<>!/?a&;#'\" \\-\\[\u{e9}]{0,60}") {
            let _ = inspect(document.as_bytes());
        }
    }
}
