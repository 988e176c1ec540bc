//! Initiator of an upload, stored with the upload unless it is the bucket's owner itself.
//!
//! ```text
//! document: format (1) | postcard of Named
//! ```

use martlet_protocol::entry::{Mark, Marks};
use s3s::dto::{Initiator, Owner};
use serde::{Deserialize, Serialize};

use crate::access::Requester;
use crate::authorization::Authorization;

const FORMAT: u8 = 1;

/// Name of a principal as in S3: an account's canonical id, or a user's ARN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InitiatorName {
    id: String,
    display_name: String,
}

/// Marks an upload with its initiator.
pub(super) fn mark_initiator(marks: &mut Marks, authorization: &Authorization) {
    if let Some(named) = named(authorization.requester(), authorization.bucket_access().owner()) {
        let document = postcard::to_extend(&named, vec![FORMAT]);
        marks.set(Mark::Initiator, document.expect("names in memory can be written"));
    }
}

fn named(requester: &Requester, bucket_owner: &str) -> Option<InitiatorName> {
    let Requester::User(who) = requester else { return None };
    if who.is_account() && *who.canonical_id == *bucket_owner {
        return None;
    }
    let name = if who.is_account() { &who.display_name } else { &who.user };
    Some(InitiatorName { id: who.wire_id(), display_name: name.to_string() })
}

/// Initiator of an upload with these marks and this `owner`. Without a readable mark the owner is
/// the initiator.
pub(super) fn initiator_of(marks: &Marks, owner: &Owner) -> Initiator {
    let read = |document: &[u8]| match document.split_first() {
        Some((&FORMAT, rest)) => postcard::from_bytes::<InitiatorName>(rest).ok(),
        _ => None,
    };
    match marks.get(Mark::Initiator).and_then(read) {
        Some(InitiatorName { id, display_name }) => {
            Initiator { id: Some(id), display_name: Some(display_name) }
        }
        None => Initiator { id: owner.id.clone(), display_name: owner.display_name.clone() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::AccountIdentity;

    #[test]
    fn only_owners_themselves_need_no_mark() {
        let alice =
            AccountIdentity { canonical_id: "c0ffee".into(), ..AccountIdentity::named("alice") };
        let carol = AccountIdentity { user: "carol".into(), ..alice.clone() };
        let initiator_of =
            |who: AccountIdentity, owner: &str| named(&Requester::User(Arc::new(who)), owner);
        assert_eq!(initiator_of(alice.clone(), "c0ffee"), None);
        assert_eq!(initiator_of(alice, "another").unwrap().id, "c0ffee");
        let user = InitiatorName {
            id: "arn:aws:iam::alice:user/carol".to_owned(),
            display_name: "carol".to_owned(),
        };
        assert_eq!(initiator_of(carol, "c0ffee"), Some(user));
        assert_eq!(named(&Requester::Anonymous, "c0ffee"), None);
    }

    #[test]
    fn uploads_with_unknown_initiators_are_the_owners() {
        let owner = Owner { id: Some("o".to_owned()), display_name: Some("O".to_owned()) };
        let ids = |marks: &Marks| initiator_of(marks, &owner).id.unwrap();
        let mut marks = Marks::default();
        assert_eq!(ids(&marks), "o");
        let named = InitiatorName { id: "i".to_owned(), display_name: "I".to_owned() };
        let mut document = postcard::to_extend(&named, vec![FORMAT]).unwrap();
        marks.set(Mark::Initiator, document.clone());
        assert_eq!(ids(&marks), "i");
        document[0] = 9;
        marks.set(Mark::Initiator, document);
        assert_eq!(ids(&marks), "o");
        marks.set(Mark::Initiator, Vec::new());
        assert_eq!(ids(&marks), "o");
    }
}
