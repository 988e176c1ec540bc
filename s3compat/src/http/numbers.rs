//! Refusal of malformed numbers in the query, with S3's errors.

use crate::messages;
use crate::refusal::Refusal;
use crate::target::Query;

/// Query keys whose values are numbers.
const NAMES: [&str; 6] =
    ["max-buckets", "max-keys", "max-parts", "max-uploads", "part-number-marker", PART_NUMBER];
const PART_NUMBER: &str = "partNumber";

/// Refuses malformed numbers. The operation handles empty values.
pub(super) fn check(query: &Query<'_>) -> Result<(), Refusal> {
    for name in NAMES {
        let Some(value) = query.get(name).filter(|value| !value.is_empty()) else { continue };
        if value.parse::<i32>().is_err() {
            let sentence =
                if name == PART_NUMBER { messages::PART_NUMBER } else { messages::NOT_A_NUMBER };
            let refusal = sentence.with_subject(name).with_detail("ArgumentName", name);
            return Err(refusal.with_detail("ArgumentValue", value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(query: &str) -> Option<Refusal> {
        check(&Query::parse(query).unwrap()).err()
    }

    #[test]
    fn numbers_are_read_or_named_in_the_refusal() {
        for right in ["", "max-keys=7", "max-keys=-1", "partNumber=", "prefix=x", "max-uploads=0"] {
            assert_eq!(refused(right), None, "{right}");
        }
        let refusal = refused("uploads&max-uploads=1x").unwrap();
        assert_eq!(refusal.message, "Provided max-uploads not an integer or within integer range");
        let details = [("ArgumentName", "max-uploads".into()), ("ArgumentValue", "1x".into())];
        assert_eq!(refusal.details, details);
        let refusal = refused("uploadId=u&partNumber=1.5").unwrap();
        assert_eq!(refusal.message, messages::PART_NUMBER.text);
        assert!(refused("max-keys=4294967296").is_some());
    }
}
