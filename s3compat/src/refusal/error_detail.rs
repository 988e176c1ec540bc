//! Elements of an error document, from the code that raises an error to the reply.

use std::fmt;

use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// `name=text`: an additional element for an error document, from the code that raised the error.
/// The header is removed before the reply is sent.
pub(crate) const DETAIL: HeaderName = HeaderName::from_static("x-martlet-error-detail");
/// Characters that are percent-encoded in this header.
const SPELT_OUT: &AsciiSet = &CONTROLS.add(b'%');
/// Start of this header's value if a request would exceed a quota.
pub(crate) const QUOTA_DETAIL: &str = "ExceededQuota=";

/// Encodes an additional element of an error document for a [`DETAIL`] header.
pub(crate) fn detail(name: &str, text: impl fmt::Display) -> HeaderValue {
    let text = format!("{name}={text}");
    HeaderValue::try_from(utf8_percent_encode(&text, SPELT_OUT).to_string())
        .expect("invalid header characters are escaped")
}

/// Name and text of the element in a [`DETAIL`] header.
pub(crate) fn read_detail(detail: &HeaderValue) -> Option<(String, String)> {
    let text = percent_decode_str(detail.to_str().ok()?).decode_utf8().ok()?;
    let (name, text) = text.split_once('=')?;
    Some((name.to_owned(), text.to_owned()))
}
