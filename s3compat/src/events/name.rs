//! S3's names of events, and patterns in rules: a name, or a group with `*`.

/// Prefix of all names in rules. Records omit it.
const SERVICE: &str = "s3:";

/// Kind of change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A PUT.
    Put,
    /// A form.
    Post,
    /// A copy.
    Copy,
    /// The completion of a multipart upload.
    CompleteMultipartUpload,
    /// An object, a version or a delete marker was removed.
    Delete,
    /// A delete marker became the current version.
    DeleteMarkerCreated,
    /// The tags changed.
    TaggingPut,
    /// The tags were removed.
    TaggingDelete,
    /// The access control list changed.
    AclPut,
    /// A lifecycle rule removed an object, a version or a delete marker.
    Expired,
    /// A lifecycle rule created a delete marker.
    ExpiredByMarker,
}

impl Event {
    /// All events.
    #[cfg(test)]
    pub(super) const ALL: [Self; 11] = [
        Self::Put,
        Self::Post,
        Self::Copy,
        Self::CompleteMultipartUpload,
        Self::Delete,
        Self::DeleteMarkerCreated,
        Self::TaggingPut,
        Self::TaggingDelete,
        Self::AclPut,
        Self::Expired,
        Self::ExpiredByMarker,
    ];

    /// Name in a record.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Put => "ObjectCreated:Put",
            Self::Post => "ObjectCreated:Post",
            Self::Copy => "ObjectCreated:Copy",
            Self::CompleteMultipartUpload => "ObjectCreated:CompleteMultipartUpload",
            Self::Delete => "ObjectRemoved:Delete",
            Self::DeleteMarkerCreated => "ObjectRemoved:DeleteMarkerCreated",
            Self::TaggingPut => "ObjectTagging:Put",
            Self::TaggingDelete => "ObjectTagging:Delete",
            Self::AclPut => "ObjectAcl:Put",
            Self::Expired => "LifecycleExpiration:Delete",
            Self::ExpiredByMarker => "LifecycleExpiration:DeleteMarkerCreated",
        }
    }

    /// Version of S3's record format for this event.
    pub(super) const fn record_version(self) -> &'static str {
        match self {
            Self::TaggingPut
            | Self::TaggingDelete
            | Self::AclPut
            | Self::Expired
            | Self::ExpiredByMarker => "2.3",
            _ => "2.1",
        }
    }
}

/// Groups of events, with their members. Rules may name all of them, including events that this
/// store never sends.
const GROUPS: &[(&str, &[&str])] = &[
    ("ObjectCreated", &["Put", "Post", "Copy", "CompleteMultipartUpload"]),
    ("ObjectRemoved", &["Delete", "DeleteMarkerCreated"]),
    ("ObjectTagging", &["Put", "Delete"]),
    ("ObjectRestore", &["Post", "Completed", "Delete"]),
    ("LifecycleExpiration", &["Delete", "DeleteMarkerCreated"]),
    (
        "Replication",
        &[
            "OperationFailedReplication",
            "OperationNotTracked",
            "OperationMissedThreshold",
            "OperationReplicatedAfterThreshold",
        ],
    ),
];

/// Events without a group. Rules name each of these singly.
const ALONE: [&str; 4] =
    ["ObjectAcl:Put", "IntelligentTiering", "LifecycleTransition", "ReducedRedundancyLostObject"];

/// True if a rule may name this pattern.
pub(crate) fn is_known(pattern: &str) -> bool {
    let Some(name) = pattern.strip_prefix(SERVICE) else { return false };
    ALONE.contains(&name)
        || GROUPS.iter().any(|(group, members)| {
            let member = name.strip_prefix(group).and_then(|rest| rest.strip_prefix(':'));
            member.is_some_and(|member| member == "*" || members.contains(&member))
        })
}

/// True if a pattern matches an event.
pub(super) fn means(pattern: &str, event: Event) -> bool {
    pattern.strip_prefix(SERVICE).is_some_and(|name| covers(name, event.name()))
}

/// True if both patterns match some event.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    covers(one, other) || covers(other, one)
}

fn covers(pattern: &str, name: &str) -> bool {
    pattern == name || pattern.strip_suffix('*').is_some_and(|group| name.starts_with(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_can_be_named_and_most_by_their_group() {
        for event in Event::ALL {
            let name = format!("s3:{}", event.name());
            assert!(is_known(&name) && means(&name, event), "{name}");
            let (group, _) =
                name.split_once(':').map(|(_, name)| name.split_once(':')).unwrap().unwrap();
            let all = format!("s3:{group}:*");
            assert!(means(&all, event));
            assert_eq!(is_known(&all), event != Event::AclPut, "{all}");
        }
    }

    #[test]
    fn other_names_mean_nothing() {
        for wrong in [
            "",
            "s3:",
            "s3:*",
            "s3:ObjectCreated",
            "s3:ObjectCreated:",
            "s3:ObjectCreated:Pu*",
            "s3:objectcreated:Put",
            "ObjectCreated:Put",
            "s3:ObjectRemoved:Put",
            "s3:ObjectAcl:Get",
        ] {
            assert!(!is_known(wrong), "{wrong}");
        }
        assert!(!means("s3:ObjectCreated:Put", Event::Post));
    }

    #[test]
    fn groups_overlap_their_members_alone() {
        let (all, put) = ("s3:ObjectCreated:*", "s3:ObjectCreated:Put");
        assert!(overlap(all, put) && overlap(put, all) && overlap(put, put) && overlap(all, all));
        assert!(!overlap(put, "s3:ObjectCreated:Post") && !overlap(all, "s3:ObjectRemoved:*"));
    }
}
