//! Tests of the access that ownership, policies and lists give to a bucket.

use martlet_protocol::entry::BucketState;
use martlet_protocol::{BucketId, Level, PolicyId, Setting, Settings};
use s3s::dto::{
    ObjectOwnership, OwnershipControls, OwnershipControlsRule, PublicAccessBlockConfiguration,
};

use super::*;
use crate::access::{Acl, Context, Grant, Grantee, ResourceArn, ResourceKind};
use crate::settings::to_document;

fn access(who: &Requester, settings: Settings) -> BucketAccess {
    let bucket = Bucket {
        id: BucketId::random(),
        created_ms: 0,
        generation: 1,
        state: BucketState::Open,
        index_shards: 4,
        policy: PolicyId(0),
        owner: "alice".to_owned(),
        consistency: Level::default(),
        settings,
    };
    BucketAccess::of(who, "bkt", &bucket)
}

fn with_policy(policy: Option<&str>) -> Settings {
    let mut settings = Settings::default();
    if let Some(policy) = policy {
        settings.set(Setting::Policy, policy.into()).unwrap();
    }
    settings
}

fn granting(grants: &[(Grantee, Permission)]) -> Settings {
    let grant = |(grantee, permission): &(Grantee, Permission)| Grant {
        grantee: grantee.clone(),
        permission: *permission,
    };
    let acl = Acl { owner: "alice".to_owned(), grants: grants.iter().map(grant).collect() };
    let mut settings = Settings::default();
    settings.set(Setting::Acl, acl.encode()).unwrap();
    settings
}

fn owned(mut settings: Settings, ownership: &'static str) -> Settings {
    let object_ownership = ObjectOwnership::from_static(ownership);
    let controls = OwnershipControls { rules: vec![OwnershipControlsRule { object_ownership }] };
    settings.set(Setting::OwnershipControls, to_document(&controls)).unwrap();
    settings
}

fn answer(who: &str, settings: Settings, action: Action) -> AccessDecision {
    let requester = &Requester::named(who);
    let object = ResourceArn::of("bkt", Some("k"));
    let is_of_bucket = action.scope() == ResourceKind::Bucket;
    let arn = if is_of_bucket { object.bucket() } else { object.as_str() };
    let context = &Context::default();
    access(requester, settings).allows(&Question { requester, action, arn, is_new: false, context })
}

#[test]
fn a_bucket_without_a_policy_is_its_owners() {
    for action in Action::ALL {
        let is_on_object = matches!(action.granted(), GrantSource::OnObject(_));
        let expected =
            |may| if is_on_object { AccessDecision::ByObject } else { AccessDecision::of(may) };
        assert_eq!(answer("alice", with_policy(None), *action), expected(true), "{action:?}");
        assert_eq!(answer("bob", with_policy(None), *action), expected(false), "{action:?}");
        let enforced = || owned(with_policy(None), "BucketOwnerEnforced");
        assert_eq!(answer("alice", enforced(), *action), AccessDecision::Yes);
        assert_eq!(answer("bob", enforced(), *action), AccessDecision::No);
    }
    let (alice, bob) = (Requester::named("alice"), Requester::named("bob"));
    assert!(access(&alice, with_policy(None)).is_unlimited());
    assert!(!access(&bob, with_policy(None)).has_no_access(), "an object may let him in");
    assert!(access(&bob, owned(with_policy(None), "BucketOwnerEnforced")).has_no_access());
}

#[test]
fn a_policy_that_can_not_be_read_leaves_the_owner_what_repairs_it() {
    let broken = || with_policy(Some(r#"{"Version": "2040-01-01"}"#));
    let repairs = [Action::GetBucketPolicy, Action::PutBucketPolicy, Action::DeleteBucketPolicy];
    for action in Action::ALL {
        let expected = AccessDecision::of(repairs.contains(action));
        assert_eq!(answer("alice", broken(), *action), expected);
        assert_eq!(answer("bob", broken(), *action), AccessDecision::No);
    }
    let (alice, bob) = (Requester::named("alice"), Requester::named("bob"));
    assert!(!access(&alice, broken()).is_unlimited() && access(&bob, broken()).has_no_access());
}

#[test]
fn a_list_limits_even_its_owner() {
    let bob = || Grantee::Canonical("bob".to_owned());
    let settings = || granting(&[(bob(), Permission::Write), (bob(), Permission::ReadAcp)]);
    for (who, action, expected) in [
        ("bob", Action::PutObject, AccessDecision::Yes),
        ("bob", Action::DeleteObject, AccessDecision::Yes),
        ("bob", Action::GetBucketAcl, AccessDecision::Yes),
        ("bob", Action::PutBucketAcl, AccessDecision::No),
        ("bob", Action::ListBucket, AccessDecision::No),
        ("bob", Action::DeleteBucket, AccessDecision::No),
        ("bob", Action::GetObject, AccessDecision::ByObject),
        ("carol", Action::PutObject, AccessDecision::No),
        ("alice", Action::PutObject, AccessDecision::No),
        ("alice", Action::ListBucket, AccessDecision::No),
        ("alice", Action::PutBucketAcl, AccessDecision::Yes),
        ("alice", Action::DeleteBucket, AccessDecision::Yes),
    ] {
        assert_eq!(answer(who, settings(), action), expected, "{who} {action:?}");
        let requester = Requester::named(who);
        let may_ever = access(&requester, settings()).may_ever(&requester, &[action]);
        assert_eq!(may_ever, who == "alice" || expected != AccessDecision::No);
    }
    assert!(!access(&Requester::named("alice"), settings()).is_unlimited());
    let enforced = owned(settings(), "BucketOwnerEnforced");
    assert_eq!(answer("bob", enforced.clone(), Action::PutObject), AccessDecision::No);
    assert_eq!(answer("alice", enforced, Action::PutObject), AccessDecision::Yes);
}

#[test]
fn a_policy_denies_what_lists_grant_and_a_block_ignores_what_they_grant_to_everyone() {
    let public = || granting(&[(Grantee::AllUsers, Permission::Read)]);
    assert_eq!(answer("bob", public(), Action::ListBucket), AccessDecision::Yes);
    let mut denied = public();
    let policy = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*",
        "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::bkt"}]}"#;
    denied.set(Setting::Policy, policy.into()).unwrap();
    assert_eq!(answer("bob", denied, Action::ListBucket), AccessDecision::No);
    let mut ignored = public();
    let block =
        PublicAccessBlockConfiguration { ignore_public_acls: Some(true), ..Default::default() };
    ignored.set(Setting::PublicAccessBlock, to_document(&block)).unwrap();
    assert_eq!(answer("bob", ignored, Action::ListBucket), AccessDecision::No);
}

#[test]
fn writers_own_objects_unless_the_bucket_sets_another_owner() {
    let bob = Requester::named("bob");
    for (ownership, plain, given_away) in [
        (None, "bob", "bob"),
        (Some("ObjectWriter"), "bob", "bob"),
        (Some("BucketOwnerPreferred"), "bob", "alice"),
        (Some("BucketOwnerEnforced"), "alice", "alice"),
    ] {
        let settings = Settings::default();
        let settings = ownership.map_or(settings.clone(), |it| owned(settings, it));
        let access = |who: &Requester| access(who, settings.clone());
        assert_eq!(access(&bob).owner_of_new(&bob, false), plain, "{ownership:?}");
        assert_eq!(access(&bob).owner_of_new(&bob, true), given_away, "{ownership:?}");
        for who in [Requester::Anonymous, Requester::named("root"), Requester::named("alice")] {
            assert_eq!(access(&who).owner_of_new(&who, false), "alice");
        }
    }
}

#[test]
fn grantees_of_write_may_tag_new_objects_unless_a_policy_denies() {
    let tags_new = |settings: Settings| {
        let (requester, context) = (&Requester::Anonymous, &Context::default());
        let action = Action::PutObjectTagging;
        let object = ResourceArn::of("bkt", Some("k"));
        let arn = object.as_str();
        let question = Question { requester, action, arn, is_new: false, context };
        let access = access(requester, settings);
        assert_eq!(
            access.allows(&question),
            AccessDecision::No,
            "it is the owner's of what is there"
        );
        let both = [Action::PutObject, action];
        let is_let_in = access.may_ever(requester, &both);
        (access.allows_new_tags(&question), is_let_in)
    };
    let everybody = Grantee::AllUsers;
    let writable = || granting(&[(everybody.clone(), Permission::Write)]);
    assert_eq!(tags_new(writable()), (AccessDecision::Yes, true));
    assert_eq!(
        tags_new(granting(&[(everybody.clone(), Permission::Read)])),
        (AccessDecision::No, false)
    );
    assert_eq!(tags_new(with_policy(None)), (AccessDecision::No, false));
    let mut denying = writable();
    let policy = r#"{"Statement": {"Effect": "Deny", "Principal": "*",
        "Action": "s3:PutObjectTagging", "Resource": "arn:aws:s3:::bkt/*"}}"#;
    denying.set(Setting::Policy, policy.into()).unwrap();
    assert_eq!(tags_new(denying).0, AccessDecision::No);
}

#[test]
fn values_of_a_request_are_read_for_keys_with_conditions_alone() {
    let reads = |resource: &str, key: Option<&str>| {
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":[
            {{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bkt/b/*"}},
            {{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::{resource}",
            "Condition":{{"NotIpAddress":{{"aws:SourceIp":"10.0.0.0/8"}}}}}}]}}"#
        );
        let object = key.map(|key| ResourceArn::of("bkt", Some(key)));
        access(&Requester::named("bob"), with_policy(Some(&policy))).reads_context(object.as_ref())
    };
    assert!(reads("bkt/a/*", Some("a/x")));
    assert!(!reads("bkt/a/*", Some("b/x")) && !reads("bkt/a/*", Some("a")));
    assert!(reads("bkt/a/*", None), "some key has a condition");
    assert!(reads("bkt", Some("b/x")), "a read of an absent key needs ListBucket on the bucket");
    assert!(reads("bkt/${aws:username}/*", Some("b/x")) && reads("*", Some("b/x")));
    let plain = with_policy(None);
    let object = ResourceArn::of("bkt", Some("a/x"));
    assert!(!access(&Requester::named("bob"), plain).reads_context(Some(&object)));
}
