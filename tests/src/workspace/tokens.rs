//! Tokens of a source text: words and punctuation, without comments and tests.
//!
//! The structure test needs the shape of declarations only, so literals are tokens without content
//! and a text that does not compile yields some tokens rather than an error.

/// Word or punctuation mark of a source text. `::`, `->` and `=>` are one token each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Text of the token; `""` for a string, character or lifetime.
    pub text: &'a str,
    /// Number of the line, from 1.
    pub line: usize,
}

impl Token<'_> {
    /// Returns true for identifiers, keywords and numbers.
    pub fn is_word(&self) -> bool {
        self.text.starts_with(is_word_char)
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the tokens of a source text.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let (mut found, mut rest, mut line) = (Vec::new(), source, 1);
    while let Some(first) = rest.chars().next() {
        let skipped = skipped(rest);
        let (length, text) = match skipped {
            0 => token(rest, first),
            length => (length, None),
        };
        found.extend(text.map(|text| Token { text, line }));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// Returns the length of the comment or space at the start, or 0.
fn skipped(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    rest.len() - rest.trim_start().len()
}

/// Returns the length of a block comment, which may contain others.
fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if rest[at..].starts_with("*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns the length of the token at the start, and its text.
fn token(rest: &str, first: char) -> (usize, Option<&str>) {
    if let Some(length) = literal(rest, first) {
        return (length, Some(""));
    }
    let length = if is_word_char(first) {
        rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())
    } else if ["::", "->", "=>"].iter().any(|mark| rest.starts_with(mark)) {
        2
    } else {
        first.len_utf8()
    };
    (length, Some(&rest[..length]))
}

/// Returns the length of the string, character or lifetime at the start.
fn literal(rest: &str, first: char) -> Option<usize> {
    match first {
        '"' => Some(string(rest)),
        '\'' => Some(quote(rest)),
        'r' | 'b' | 'c' => {
            let prefix = rest.len() - rest.trim_start_matches(['r', 'b', 'c']).len();
            let body = &rest[prefix..];
            let hashes = body.len() - body.trim_start_matches('#').len();
            let is_raw = rest[..prefix].ends_with('r');
            match body[hashes..].chars().next() {
                Some('"') if prefix <= 2 && is_raw => Some(prefix + raw_string(body, hashes)),
                Some('"') if prefix == 1 && hashes == 0 => Some(prefix + string(body)),
                Some('\'') if rest.starts_with("b'") => Some(prefix + quote(body)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

fn raw_string(rest: &str, hashes: usize) -> usize {
    let end = format!("\"{}", "#".repeat(hashes));
    let from = hashes + 1;
    rest[from..].find(&end).map_or(rest.len(), |at| from + at + end.len())
}

/// Returns the length of a character such as `'a'` or `'\n'`, or of a lifetime such as `'a`.
fn quote(rest: &str) -> usize {
    let mut inner = rest[1..].chars();
    match inner.next() {
        Some('\\') => {
            let from = 1 + rest[1..].char_indices().nth(2).map_or(0, |(at, _)| at);
            rest[from..].find('\'').map_or(rest.len(), |at| from + at + 1)
        }
        Some(c) if inner.next() == Some('\'') => c.len_utf8() + 2,
        _ => rest[1..].find(|c| !is_word_char(c)).map_or(rest.len(), |at| at + 1),
    }
}

/// Tokens of the attribute that marks items of tests.
pub(super) const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// Returns the tokens without the items below `#[cfg(test)]`.
pub fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let is_test = starts_with(&tokens[at..], &CFG_TEST);
        if is_test {
            at = item_end(tokens, at + CFG_TEST.len());
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// Returns true if the tokens begin with these texts.
pub(super) fn starts_with(tokens: &[Token<'_>], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && texts.iter().zip(tokens).all(|(text, it)| *text == it.text)
}

/// Returns the position behind the item at `at`: behind its first semicolon or closing brace
/// outside all brackets.
fn item_end(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0;
    for (next, token) in tokens.iter().enumerate().skip(at) {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" if depth == 0 => return next,
            "}" if depth == 1 => return next + 1,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => return next + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the position behind the bracket that closes the one at `at`. Angle brackets count only
/// if the first one is an angle bracket.
pub(super) fn closed(tokens: &[Token<'_>], at: usize) -> usize {
    let (opening, closing): (&[&str], &[&str]) = match tokens[at].text {
        "<" => (&["<", "(", "[", "{"], &[">", ")", "]", "}"]),
        _ => (&["(", "[", "{"], &[")", "]", "}"]),
    };
    let mut depth = 0;
    for (next, token) in tokens.iter().enumerate().skip(at) {
        if opening.contains(&token.text) {
            depth += 1;
        } else if closing.contains(&token.text) {
            depth -= 1;
        }
        if depth == 0 {
            return next + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_no_tokens() {
        assert_eq!(texts("a // use b;\n/* c /* d */ e */ f::g"), ["a", "f", "::", "g"]);
    }

    #[test]
    fn literals_have_no_content() {
        assert_eq!(texts(r##"x("}", r#"a"{"#, b"\"{", b'{') + 1"##), {
            ["x", "(", "", ",", "", ",", "", ",", "", ")", "+", "1"]
        });
        assert_eq!(texts(r"['{', '\'', '\u{7d}', 'é']"), {
            ["[", "", ",", "", ",", "", ",", "", "]"]
        });
        assert_eq!(texts("&'a str, 'static"), ["&", "", "str", ",", ""]);
        assert_eq!(texts("r#type crate rb"), ["r", "#", "type", "crate", "rb"]);
    }

    #[test]
    fn tokens_know_their_lines() {
        let lines: Vec<usize> =
            tokens("a\n\"x\ny\"\nb /*\n*/ c").iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 4, 5]);
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let source = "a(); #[cfg(test)] mod tests { fn b() {} } c(); #[cfg(test)]\nmod d; e();\
                      #[cfg(any(test))] mod f;";
        let all = tokens(source);
        let left = without_tests(&all);
        let words: Vec<&str> = left.iter().filter(|it| it.is_word()).map(|it| it.text).collect();
        assert_eq!(words, ["a", "c", "e", "cfg", "any", "test", "mod", "f"]);
    }

    #[test]
    fn a_bracket_ends_where_it_is_closed() {
        let all = tokens("<F: Fn(u8) -> (u8, u8)> (a)");
        assert_eq!(all[closed(&all, 0)].text, "(");
    }
}
