//! Error codes of Kafka: their names, and those that are about a message.
//!
//! Source: "Error Codes" in <https://kafka.apache.org/protocol>.

/// Codes that a producer may see.
const NAMES: [(i16, &str); 27] = [
    (-1, "UNKNOWN_SERVER_ERROR"),
    (2, "CORRUPT_MESSAGE"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION"),
    (5, "LEADER_NOT_AVAILABLE"),
    (6, "NOT_LEADER_OR_FOLLOWER"),
    (7, "REQUEST_TIMED_OUT"),
    (8, "BROKER_NOT_AVAILABLE"),
    (9, "REPLICA_NOT_AVAILABLE"),
    (10, "MESSAGE_TOO_LARGE"),
    (13, "NETWORK_EXCEPTION"),
    (17, "INVALID_TOPIC_EXCEPTION"),
    (18, "RECORD_LIST_TOO_LARGE"),
    (19, "NOT_ENOUGH_REPLICAS"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    (21, "INVALID_REQUIRED_ACKS"),
    (29, "TOPIC_AUTHORIZATION_FAILED"),
    (31, "CLUSTER_AUTHORIZATION_FAILED"),
    (32, "INVALID_TIMESTAMP"),
    (33, "UNSUPPORTED_SASL_MECHANISM"),
    (34, "ILLEGAL_SASL_STATE"),
    (35, "UNSUPPORTED_VERSION"),
    (42, "INVALID_REQUEST"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    (44, "POLICY_VIOLATION"),
    (56, "KAFKA_STORAGE_ERROR"),
    (58, "SASL_AUTHENTICATION_FAILED"),
    (87, "INVALID_RECORD"),
];

/// Codes by which a broker refuses the records themselves: their size. All others are about the
/// topic, the cluster, a clock or the client, and meet every message. `INVALID_TIMESTAMP` comes
/// from a clock that differs, `INVALID_RECORD` from a topic with a schema or with compaction.
const REFUSALS: [i16; 2] = [10, 18];

/// Codes of a broker, or of its replicas, that had too little time for a batch.
const SLOW: [i16; 2] = [7, 20];

/// Returns the name of a code, with its number.
pub(super) fn code_name(code: i16) -> String {
    let known = NAMES.iter().find(|(it, _)| *it == code);
    format!("{} ({code})", known.map_or("error", |(_, name)| name))
}

/// Returns true if a code refuses the records.
pub(super) fn is_refusal(code: i16) -> bool {
    REFUSALS.contains(&code)
}

/// Returns true if a code may be avoided by smaller batches.
pub(super) fn is_slow(code: i16) -> bool {
    SLOW.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_codes_are_about_a_message() {
        let refusals: Vec<&str> =
            NAMES.iter().filter(|(code, _)| is_refusal(*code)).map(|(_, name)| *name).collect();
        assert_eq!(refusals, ["MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"]);
        assert_eq!(code_name(3), "UNKNOWN_TOPIC_OR_PARTITION (3)");
        assert_eq!(code_name(119), "error (119)");
    }
}
