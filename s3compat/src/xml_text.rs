//! Text in XML documents.

use std::fmt::Write as _;

/// Appends an element with a text.
pub(crate) fn push_element(document: &mut String, name: &str, text: &str) {
    document.push('<');
    document.push_str(name);
    document.push('>');
    for c in text.chars() {
        match c {
            '<' => document.push_str("&lt;"),
            '>' => document.push_str("&gt;"),
            '&' => document.push_str("&amp;"),
            '"' => document.push_str("&quot;"),
            '\r' => document.push_str("&#13;"),
            c => push_char(document, c),
        }
    }
    document.push_str("</");
    document.push_str(name);
    document.push('>');
}

/// Returns true if a document of XML 1.0 can hold a character
/// (<https://www.w3.org/TR/xml/#charsets>).
pub(crate) fn is_character(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// Appends a character, spelt out if no document can hold it.
pub(crate) fn push_char(document: &mut String, c: char) {
    let is_allowed = matches!(c, '\t' | '\n' | '\r') || !c.is_control();
    if is_allowed && !matches!(c, '\u{fffe}' | '\u{ffff}') {
        document.push(c);
    } else {
        write!(document, "\\u{{{:x}}}", u32::from(c)).expect("writing to a String can't fail");
    }
}
