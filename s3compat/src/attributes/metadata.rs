//! User metadata in headers: `x-amz-meta-*`, with encoded words (RFC 2047) for texts that no header
//! can hold.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::{S3Error, S3Result, s3_error};

use crate::errors::internal;

const PREFIX: &str = "x-amz-meta-";
const WORD_START: &str = "=?";
const WORD_END: &str = "?=";
/// Maximum bytes of text in one word: base64 within the 75 characters of RFC 2047.
const WORD_BYTES_MAX: usize = 45;

/// Names and values of the user metadata in headers, in the order of the headers.
pub(crate) fn parse(headers: &HeaderMap) -> S3Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(PREFIX).filter(|key| !key.is_empty()) else {
            continue;
        };
        let mut values = headers.get_all(name).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(s3_error!(InvalidRequest, "duplicate header: {name}"));
        };
        let text = std::str::from_utf8(value.as_bytes()).ok().and_then(decode);
        pairs.push((key.to_owned(), text.ok_or_else(|| malformed(name, value))?));
    }
    Ok(pairs)
}

fn malformed(name: &HeaderName, value: &HeaderValue) -> S3Error {
    s3_error!(InvalidArgument, "invalid header: {name}: {value:?}")
}

/// Adds user metadata to the headers of a reply.
pub(crate) fn write(headers: &mut HeaderMap, pairs: &[(String, String)]) -> S3Result<()> {
    for (key, text) in pairs {
        let name = HeaderName::try_from(format!("{PREFIX}{key}")).map_err(|_| internal())?;
        let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let value = if is_plain {
            HeaderValue::from_str(text)
        } else {
            HeaderValue::try_from(encode(text))
        };
        headers.insert(name, value.map_err(|_| internal())?);
    }
    Ok(())
}

/// Encodes a text as words in base64, each a whole number of characters.
fn encode(text: &str) -> String {
    let mut words = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.floor_char_boundary(WORD_BYTES_MAX));
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str("=?UTF-8?B?");
        STANDARD.encode_string(word, &mut words);
        words.push_str(WORD_END);
        rest = after;
    }
    words
}

/// Decodes a value that is a list of words. Other values are unchanged. None if a word is
/// malformed.
fn decode(value: &str) -> Option<String> {
    let value = value.trim();
    if !value.starts_with(WORD_START) || !value.ends_with(WORD_END) {
        return Some(value.to_owned());
    }
    let is_word = |part: &&str| part.starts_with(WORD_START) && part.ends_with(WORD_END);
    let words: Vec<&str> = value.split_whitespace().filter(is_word).collect();
    match words[..] {
        [] | [_] => decode_word(value),
        ref words => words.iter().map(|word| decode_word(word)).collect(),
    }
}

/// Decodes `=?charset?encoding?text?=`. Whatever the charset, the bytes must be UTF-8.
fn decode_word(word: &str) -> Option<String> {
    let inner = word.get(WORD_START.len()..word.len().checked_sub(WORD_END.len())?)?;
    let mut fields = inner.splitn(3, '?').skip(1);
    let (encoding, text) = (fields.next()?, fields.next()?);
    let bytes = match encoding {
        "B" | "b" => STANDARD.decode(text).ok()?,
        "Q" | "q" => decode_quoted(text)?,
        _ => return None,
    };
    String::from_utf8(bytes).ok()
}

/// Decodes quoted-printable text, in which an underscore is a space.
fn decode_quoted(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'=' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'_' => b' ',
            byte if byte.is_ascii() => byte,
            _ => return None,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(value: &str) -> Option<String> {
        decode(value)
    }

    #[test]
    fn plain_values_stay_as_they_are() {
        for plain in ["", "a b", "=?", "?=", "=?x", "a =?UTF-8?B?YQ==?="] {
            assert_eq!(decoded(plain).as_deref(), Some(plain), "{plain}");
        }
        assert_eq!(decoded(" a ").as_deref(), Some("a"));
    }

    #[test]
    fn words_are_decoded() {
        for (words, text) in [
            ("=?UTF-8?B?w7w=?=", "ü"),
            ("=?utf-8?q?=C3=BC_x?=", "ü x"),
            ("=?UTF-8?B?YQ==?= =?UTF-8?Q?b?=", "ab"),
            ("=?UTF-8?Q?a?= , =?UTF-8?Q?b?=", "ab"),
        ] {
            assert_eq!(decoded(words).as_deref(), Some(text), "{words}");
        }
        for wrong in ["=?=", "=??=", "=?a?=", "=?UTF-8?B?!?=", "=?UTF-8?X?a?=", "=?UTF-8?Q?=zz?="] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn repeated_fields_are_refused() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_static("1"));
        headers.append("x-amz-meta-", HeaderValue::from_static("2"));
        assert_eq!(parse(&headers).unwrap(), [("a".to_owned(), "1".to_owned())]);
        headers.append("x-amz-meta-a", HeaderValue::from_static("1"));
        assert_eq!(parse(&headers).unwrap_err().code().as_str(), "InvalidRequest");
    }

    proptest! {
        #[test]
        fn every_text_survives(text in "[^\\x00]{0,200}") {
            let text = text.trim();
            prop_assume!(!text.starts_with(WORD_START));
            let mut headers = HeaderMap::new();
            write(&mut headers, &[("k".to_owned(), text.to_owned())]).unwrap();
            prop_assert!(headers["x-amz-meta-k"].to_str().is_ok());
            prop_assert_eq!(&parse(&headers).unwrap()[0].1, text);
        }
    }
}
