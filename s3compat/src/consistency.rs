//! Consistency headers: the level and token of a request, and the consistency of its reply.

use http::{HeaderMap, HeaderName, HeaderValue};
use martlet_protocol::{AchievedLevel, Level};
use martlet_proxy::{ConsistencyOptions, ReadAfter};
use s3s::{S3Result, s3_error};

/// In requests: the level. In replies: the consistency that was reached.
const CONSISTENCY: HeaderName = HeaderName::from_static("x-martlet-consistency");
/// In requests: the token from a reply's `x-martlet-stamp`.
const READ_AFTER: HeaderName = HeaderName::from_static("x-martlet-read-after");

/// Consistency options of a request.
///
/// Some clients (s3cmd, when it moves an object) send the headers of a HEAD reply back with the
/// copy. So values that occur only in replies are ignored.
pub(crate) fn requested(headers: &HeaderMap) -> S3Result<ConsistencyOptions> {
    let is_echo = |text: &&str| {
        [AchievedLevel::Quorum, AchievedLevel::Degraded].iter().any(|it| it.name() == *text)
    };
    let level = one(headers, &CONSISTENCY)?.filter(|text| !is_echo(text)).map(|text| {
        text.parse::<Level>().map_err(|error| s3_error!(InvalidArgument, "{CONSISTENCY}: {error}"))
    });
    let read_after = one(headers, &READ_AFTER)?.map(|text| {
        text.parse::<ReadAfter>()
            .map_err(|error| s3_error!(InvalidArgument, "{READ_AFTER}: {error}"))
    });
    Ok(ConsistencyOptions { level: level.transpose()?, read_after: read_after.transpose()? })
}

/// Value of a header that may occur once at most.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> S3Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(s3_error!(InvalidArgument, "{name} must have one value of plain ASCII")),
    }
}

/// Adds the consistency that was reached to the headers of a reply.
pub(crate) fn add_headers(headers: &mut HeaderMap, given: AchievedLevel) {
    headers.insert(CONSISTENCY, HeaderValue::from_static(given.name()));
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Stamp;

    use super::*;

    fn options_of(pairs: &[(&HeaderName, &str)]) -> Result<ConsistencyOptions, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append((*name).clone(), HeaderValue::from_str(value).unwrap());
        }
        requested(&headers).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn levels_and_tokens_are_read() {
        assert_eq!(options_of(&[]), Ok(ConsistencyOptions::default()));
        for level in [Level::Available, Level::Strict, Level::Any] {
            let options = options_of(&[(&CONSISTENCY, level.name())]).unwrap();
            assert_eq!(options.level, Some(level));
        }
        let token = ReadAfter::new("b", "k", Stamp::at_ms(7), AchievedLevel::Degraded);
        let options = options_of(&[(&READ_AFTER, &token.to_string())]).unwrap();
        assert_eq!(options.read_after, Some(token));
    }

    #[test]
    fn consistency_headers_of_replies_are_accepted_in_requests() {
        for given in [AchievedLevel::Quorum, AchievedLevel::Degraded] {
            assert_eq!(
                options_of(&[(&CONSISTENCY, given.name())]),
                Ok(ConsistencyOptions::default())
            );
        }
    }

    #[test]
    fn malformed_consistency_headers_are_invalid_arguments() {
        for (name, value) in [(&CONSISTENCY, "most"), (&CONSISTENCY, ""), (&READ_AFTER, "x")] {
            assert_eq!(options_of(&[(name, value)]), Err("InvalidArgument".into()));
        }
        let twice = [(&CONSISTENCY, "any"), (&CONSISTENCY, "strict")];
        assert_eq!(options_of(&twice), Err("InvalidArgument".into()));
    }

    #[test]
    fn replies_state_their_consistency_level() {
        for given in [AchievedLevel::Quorum, AchievedLevel::Any, AchievedLevel::Degraded] {
            let mut headers = HeaderMap::new();
            add_headers(&mut headers, given);
            assert_eq!(headers[CONSISTENCY], given.name());
        }
    }
}
