//! Shape check of XML bodies, before they are parsed.
//!
//! Refused are: text that is not UTF-8, NULs, DOCTYPE and other declarations, CDATA, tags that do
//! not close, entities beyond the five of XML and character references, and depths and lists beyond
//! those of S3's documents. Where the [schema](super::schema) of a document is known, also unknown
//! elements, text between elements and malformed numbers. Operations check the values.

use bytes::Bytes;

use super::schema::{ContentKind, Element};
use crate::messages;
use crate::refusal::Refusal;
use crate::xml_text;

/// Maximum depth of elements. S3's deepest request document has four levels.
const DEPTH_MAX: usize = 8;
/// Maximum number of children of an element: S3's longest list, the parts of an upload, and one
/// more for its operation to refuse. A parsed small element takes many times its bytes.
const ELEMENTS_MAX: usize = martlet_protocol::limits::PARTS_MAX as usize + 1;
/// Maximum length of a tag with its attributes, in bytes.
const TAG_BYTES_MAX: usize = 1024;
/// Maximum length of a number, in bytes: the digits of the largest number, and its sign.
const NUMBER_BYTES_MAX: usize = 20;
/// Maximum length of an entity, in bytes: a character reference of seven digits.
const ENTITY_BYTES_MAX: usize = 10;

/// Checks a document, against the schema of its root if known.
pub(super) fn inspect(document: &[u8], root: Option<&'static Element>) -> Result<(), Refusal> {
    let text = std::str::from_utf8(document).map_err(|_| malformed("it is not UTF-8"))?;
    // Other characters are checked by `check_characters`, where a document must not have them.
    if text.contains('\0') {
        return Err(malformed("it has a NUL"));
    }
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut open: Vec<OpenElement<'_>> = Vec::new();
    let mut has_root = false;
    while let Some((before, markup)) = rest.split_once('<') {
        check_text(before, open.last_mut())?;
        rest = if let Some(instruction) = markup.strip_prefix('?') {
            behind(instruction, "?>")?
        } else if let Some(comment) = markup.strip_prefix("!--") {
            behind(comment, "-->")?
        } else if markup.starts_with('!') {
            return Err(malformed("declarations and CDATA are not allowed"));
        } else {
            let (tag, rest) = split_tag(markup)?;
            if let Some(name) = tag.strip_prefix('/') {
                close_tag(name, &mut open)?;
            } else {
                if open.is_empty() && std::mem::replace(&mut has_root, true) {
                    return Err(malformed("it has two root elements"));
                }
                open_tag(tag, &mut open, root)?;
            }
            rest
        };
    }
    check_text(rest, open.last_mut())?;
    if !open.is_empty() || !has_root {
        return Err(malformed("it has no end"));
    }
    Ok(())
}

/// Refuses characters that a document of XML 1.0 can't hold. s3s refuses references to them.
pub(super) fn check_characters(document: &[u8]) -> Result<(), Refusal> {
    let text = std::str::from_utf8(document).map_err(|_| malformed("it is not UTF-8"))?;
    if text.chars().all(xml_text::is_character) {
        return Ok(());
    }
    Err(malformed("it has a character that XML can't hold"))
}

/// Replaces numeric references to characters beyond the first plane by the characters. s3s refuses
/// such references.
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

/// Character of a numeric reference, if it lies beyond the first plane.
fn beyond(number: &str) -> Option<char> {
    let code = match number.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    char::from_u32(code.ok()?).filter(|&character| character > '\u{ffff}')
}

/// An open element.
struct OpenElement<'a> {
    name: &'a str,
    /// Schema of the element, if known.
    element: Option<&'static Element>,
    /// Number of its children.
    elements: usize,
    /// Digits in the element, if it is a number.
    digits: String,
}

/// Opens an element.
fn open_tag<'a>(
    tag: &'a str,
    open: &mut Vec<OpenElement<'a>>,
    root: Option<&'static Element>,
) -> Result<(), Refusal> {
    check_entities(tag)?;
    let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
    let name = tag.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
    if name.is_empty() || name.contains('<') {
        return Err(malformed("a tag has no name"));
    }
    if open.len() >= DEPTH_MAX {
        return Err(malformed("it is nested too deeply"));
    }
    let element = match (open.last(), root) {
        (Some(outer), _) => outer.element.map(|outer| outer.child(name)),
        (None, root) => root.map(|root| (root.name == name).then_some(root)),
    };
    let element = match element {
        Some(None) => return Err(malformed("an unknown element")),
        element => element.flatten(),
    };
    if let Some(outer) = open.last_mut() {
        outer.elements += 1;
        if outer.elements > ELEMENTS_MAX {
            return Err(malformed("an element has too many children"));
        }
    }
    open.push(OpenElement { name, element, elements: 0, digits: String::new() });
    if is_closed {
        close_tag(name, open)?;
    }
    Ok(())
}

fn close_tag(name: &str, open: &mut Vec<OpenElement<'_>>) -> Result<(), Refusal> {
    let closed = open.pop().filter(|closed| closed.name == name.trim_ascii_end());
    let closed = closed.ok_or_else(|| malformed("a closing tag without its opening tag"))?;
    if matches!(closed.element, Some(Element { kind: ContentKind::Number, .. })) {
        let digits = closed.digits.strip_prefix('-').unwrap_or(&closed.digits);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed("a malformed number"));
        }
    }
    Ok(())
}

/// Splits markup into a tag and the text after it. A `>` within quotes does not end a tag.
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
    Err(malformed("an unclosed tag"))
}

fn behind<'a>(text: &'a str, end: &str) -> Result<&'a str, Refusal> {
    text.split_once(end).map(|(_, rest)| rest).ok_or_else(|| malformed("it has no end"))
}

/// Checks text within an element, or outside of the root.
fn check_text(text: &str, within: Option<&mut OpenElement<'_>>) -> Result<(), Refusal> {
    let is_blank = text.bytes().all(|byte| byte.is_ascii_whitespace());
    let Some(within) = within else {
        return if is_blank { Ok(()) } else { Err(malformed("text outside of the root element")) };
    };
    match within.element.map(|element| &element.kind) {
        Some(ContentKind::Group(_)) if !is_blank => {
            return Err(malformed("text between elements"));
        }
        Some(ContentKind::Number) if within.digits.len() + text.len() > NUMBER_BYTES_MAX => {
            return Err(malformed("a number is too long"));
        }
        Some(ContentKind::Number) => within.digits.push_str(text),
        _ => {}
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
            return Err(malformed("an unknown entity"));
        }
    }
    Ok(())
}

fn malformed(what: &str) -> Refusal {
    tracing::debug!(what, "refused a malformed document");
    messages::MALFORMED_XML.refusal()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::operation::Operation;
    use crate::refusal::Code;

    #[test]
    fn documents_of_clients_pass() {
        for document in [
            "<Delete><Object><Key>a &amp; &#x41; &quot;b&quot;</Key></Object></Delete>",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Tagging xmlns='http://s3/a>b'>\n<TagSet/>\n</Tagging>\n",
            "\u{feff}<a><!-- <b> --></a>",
            "<a ></a >",
        ] {
            assert_eq!(inspect(document.as_bytes(), None), Ok(()), "{document}");
        }
    }

    #[test]
    fn bombs_and_broken_documents_are_refused() {
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        let parts = |count| format!("<Complete>{}</Complete>", "<Part/>".repeat(count));
        assert_eq!(inspect(parts(ELEMENTS_MAX).as_bytes(), None), Ok(()));
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
            let code = inspect(document.as_bytes(), None).map_err(|refusal| refusal.code);
            assert_eq!(code, Err(Code::MalformedXml), "{}", &document[..document.len().min(80)]);
        }
        assert!(inspect(b"<a>\xff</a>", None).is_err());
        assert!(
            inspect(&"<a/>".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>(), None)
                .is_err()
        );
    }

    fn of_lifecycle(rule: &str) -> Result<(), Code> {
        let document =
            format!("<LifecycleConfiguration><Rule>{rule}</Rule></LifecycleConfiguration>");
        let root = super::super::schema::root_of(Operation::PutBucketLifecycleConfiguration);
        inspect(document.as_bytes(), root).map_err(|refusal| refusal.code)
    }

    #[test]
    fn numbers_are_numbers_to_their_end() {
        let days =
            |text: &str| of_lifecycle(&format!("<Expiration><Days>{text}</Days></Expiration>"));
        for right in ["1", "3000", "-1", "0", "007", "1<!-- -->2"] {
            assert_eq!(days(right), Ok(()), "{right}");
        }
        for wrong in [
            "",
            " ",
            "1,000",
            "1e3",
            "1 day",
            "3000.9",
            "1x",
            "x1",
            "1 ",
            " 1",
            "--1",
            "1-2",
            "0x10",
            "1<!-- -->-2",
            "&#49;",
            "+",
            "+1",
            "123456789012345678901",
        ] {
            assert_eq!(days(wrong), Err(Code::MalformedXml), "{wrong:?}");
        }
        assert_eq!(of_lifecycle("<Expiration><Days/></Expiration>"), Err(Code::MalformedXml));
    }

    #[test]
    fn elements_that_the_schema_has_not_are_refused() {
        assert_eq!(of_lifecycle(" <ID>a b</ID>\n <Status>Enabled</Status> "), Ok(()));
        for wrong in
            ["<Id>a</Id>", "<Days>1</Days>", "x", "<ID><b/></ID>", "<Filter>a</Filter>", "<Rule/>"]
        {
            assert_eq!(of_lifecycle(wrong), Err(Code::MalformedXml), "{wrong}");
        }
        let root = super::super::schema::root_of(Operation::PutObjectLockConfiguration);
        let wrong = "<ObjectLockConfiguration><Rul/></ObjectLockConfiguration>";
        assert!(inspect(wrong.as_bytes(), root).is_err());
        assert!(inspect(b"<Lock/>", root).is_err());
    }

    #[test]
    fn no_document_holds_a_nul() {
        for wrong in ["<a>\0</a>", "<a b='\0'/>", "\0<a/>"] {
            assert!(inspect(wrong.as_bytes(), None).is_err(), "{wrong:?}");
        }
        assert_eq!(inspect("<a>\t\r\n\u{1}\u{85}\u{1f511}</a>".as_bytes(), None), Ok(()));
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
            let _ = inspect(document.as_bytes(), None);
        }
    }
}
