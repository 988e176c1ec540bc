//! Tenants, users and keys: made once, effective everywhere within a second, refused without a
//! quorum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::ErrorKind;
use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;

use super::harness::{Harness, faulty, settle};
use crate::{
    Accounts, Error, Holder, Key, KeyCache, MasterKey, NewBucket, NewKey, NewUser, ObjectStore,
    Role, Vault,
};

const SECOND: Duration = Duration::from_secs(1);

fn accounts_of(store: &ObjectStore) -> Accounts {
    Accounts::new(store.clone(), Vault::new(vec![MasterKey::new(&[7; 32])]))
}

/// Cached form of a key in these tests: its holder and its secret.
type CachedKey = (Holder, String);

fn cache(accounts: &Accounts) -> KeyCache<CachedKey> {
    KeyCache::new(accounts.clone(), |holder: &Holder, secret: &str| {
        (holder.clone(), secret.to_owned())
    })
}

fn new_key(tenant: &str, user: Option<&str>) -> NewKey {
    NewKey {
        tenant: tenant.into(),
        user: user.map(str::to_owned),
        given: None,
        networks: Vec::new(),
    }
}

fn new_user(name: &str) -> NewUser {
    NewUser { tenant: "t".into(), name: name.into(), role: Role::ReadOnly }
}

/// Three replicas with the tenant `t`, its user `u`, and a key of each.
async fn world() -> (Harness, Accounts, [Key; 2]) {
    let harness = Harness::new(3, 3);
    let accounts = accounts_of(&harness.store);
    accounts.tenants().create("t", Some("The T"), Vec::new()).await.unwrap();
    accounts.users().create(new_user("u")).await.unwrap();
    let (whole, _) = accounts.keys().create(new_key("t", None)).await.unwrap();
    let (of_user, _) = accounts.keys().create(new_key("t", Some("u"))).await.unwrap();
    (harness, accounts, [whole, of_user])
}

fn is_missing<T>(outcome: &crate::Result<T>) -> bool {
    matches!(outcome, Err(Error::NoSuchAccount(_)))
}

fn is_conflict<T>(outcome: &crate::Result<T>) -> bool {
    matches!(outcome, Err(Error::AccountConflict(_)))
}

fn is_unavailable<T>(outcome: &crate::Result<T>) -> bool {
    matches!(outcome, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
}

#[tokio::test]
async fn a_name_is_given_to_one_tenant() {
    let harness = Harness::new(3, 3);
    let racers = (0..8).map(|racer| {
        let accounts = accounts_of(&harness.store);
        async move { accounts.tenants().create("t", Some(&format!("{racer}")), Vec::new()).await }
    });
    let outcomes = join_all(racers).await;
    let made: Vec<_> = outcomes.iter().flatten().collect();
    assert_eq!(made.len(), 1, "{outcomes:?}");
    let accounts = accounts_of(&harness.store);
    assert_eq!(accounts.tenants().get("t").await.unwrap(), *made[0]);
    assert_eq!(made[0].canonical_id.len(), 64);
    let name = harness.store.directory().owner_name(&made[0].canonical_id).await;
    assert_eq!(*name, *made[0].display_name);
    assert_eq!(*harness.store.directory().owner_name("nobody").await, *"nobody");
    assert!(harness.store.directory().has_owner(&made[0].canonical_id).await.unwrap());
    for nobody in ["nobody", "", "a/b", &"x".repeat(2000)] {
        assert!(!harness.store.directory().has_owner(nobody).await.unwrap(), "{nobody}");
    }
    for name in ["", "root", "a/b"] {
        let refused = accounts.tenants().create(name, None, Vec::new()).await;
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{name}");
    }
}

#[tokio::test]
async fn all_of_them_are_listed_page_by_page_and_never_among_buckets() {
    let (harness, accounts, keys) = world().await;
    for name in ["a", "z"] {
        accounts.tenants().create(name, None, Vec::new()).await.unwrap();
    }
    let first = accounts.tenants().list(None, 2).await.unwrap();
    let names: Vec<_> = first.items.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!((names, first.is_truncated), (vec!["a", "t"], true));
    let rest = accounts.tenants().list(Some("t"), 2).await.unwrap();
    let names: Vec<_> = rest.items.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!((names, rest.is_truncated), (vec!["z"], false));
    assert_eq!(accounts.users().list("t", None, 9).await.unwrap().items[0].name, "u");
    assert!(accounts.users().list("a", None, 9).await.unwrap().items.is_empty());
    assert_eq!(accounts.keys().list(Some("t"), None, 9).await.unwrap().items.len(), keys.len());
    assert!(accounts.keys().list(Some("z"), None, 9).await.unwrap().items.is_empty());
    let (buckets, more) = harness.store.buckets().list("", None, 9).await.unwrap();
    assert!(buckets.is_empty() && !more);
}

#[tokio::test]
async fn tenants_with_buckets_or_users_are_not_deleted() {
    let (harness, accounts, [whole, of_user]) = world().await;
    let id = accounts.tenants().get("t").await.unwrap().canonical_id;
    let new = NewBucket {
        owner: id.clone(),
        index_shards: 4,
        policy: None,
        settings: martlet_protocol::Settings::default(),
    };
    harness.store.buckets().create("b", new).await.unwrap();
    assert!(is_conflict(&accounts.tenants().delete("t").await), "it has a user");
    assert!(is_conflict(&accounts.users().delete("t", "u").await), "he has a key");
    accounts.keys().delete(&of_user.access_key).await.unwrap();
    accounts.users().delete("t", "u").await.unwrap();
    assert!(is_conflict(&accounts.tenants().delete("t").await), "it has a key");
    accounts.keys().delete(&whole.access_key).await.unwrap();
    let refused = accounts.tenants().delete("t").await.unwrap_err().to_string();
    assert_eq!(refused, "the tenant t still has the bucket b");
    harness.store.buckets().delete("b").await.unwrap();
    accounts.tenants().delete("t").await.unwrap();
    assert!(
        is_missing(&accounts.tenants().get("t").await)
            && is_missing(&accounts.tenants().delete("t").await)
    );
    assert!(is_missing(&accounts.keys().create(new_key("t", None)).await));
    accounts.tenants().create("t", None, Vec::new()).await.unwrap();
    assert_ne!(accounts.tenants().get("t").await.unwrap().canonical_id, id);
}

#[tokio::test]
async fn given_keys_are_taken_once_and_secrets_lie_sealed() {
    let (harness, accounts, [whole, _]) = world().await;
    let given = ("AKIDGIVEN".to_owned(), "a secret from elsewhere".to_owned());
    let new = || NewKey { given: Some(given.clone()), ..new_key("t", Some("u")) };
    let (key, secret) = accounts.keys().create(new()).await.unwrap();
    assert_eq!((key.access_key.as_str(), secret.as_str()), ("AKIDGIVEN", given.1.as_str()));
    assert!(key.secret.is_sealed() && !format!("{key:?}").contains("elsewhere"));
    assert!(is_conflict(&accounts.keys().create(new()).await));
    assert!(is_missing(&accounts.keys().create(new_key("t", Some("nobody"))).await));
    assert!(is_missing(&accounts.keys().rotate("AKIDNONE", None).await));
    let (known, secret) = &*cache(&accounts).find("AKIDGIVEN").await.unwrap().unwrap();
    assert_eq!(
        (known.user.as_ref().map(|user| user.role), secret),
        (Some(Role::ReadOnly), &given.1)
    );
    // A secret copied into another register does not open, nor does one read without the master
    // key.
    let blind = Accounts::new(harness.store.clone(), Vault::default());
    assert!(is_unavailable(&cache(&blind).find(&whole.access_key).await));
}

/// Secrets that a version without a master key stored in clear.
#[tokio::test]
async fn secrets_in_clear_open_and_are_sealed_and_no_more_are_made() {
    let (harness, accounts, [whole, of_user]) = world().await;
    accounts.keys().leave_in_clear(&whole.access_key, "a secret of before").await;
    let secret_of = async |accounts: &Accounts, key: &Key| {
        let (_, secret) = &*cache(accounts).find(&key.access_key).await.unwrap().unwrap();
        secret.clone()
    };
    let blind = Accounts::new(harness.store.clone(), Vault::default());
    assert!(is_conflict(&blind.keys().create(new_key("t", None)).await));
    assert!(is_conflict(&blind.keys().rotate(&of_user.access_key, None).await));
    assert_eq!(blind.keys().seal_secrets().await.unwrap(), 0);
    assert_eq!(secret_of(&blind, &whole).await, "a secret of before");
    assert_eq!(secret_of(&accounts, &whole).await, "a secret of before");
    let before = accounts.keys().get(&of_user.access_key).await.unwrap();
    assert_eq!(accounts.keys().seal_secrets().await.unwrap(), 1);
    assert!(accounts.keys().get(&whole.access_key).await.unwrap().secret.is_sealed());
    assert_eq!(accounts.keys().get(&of_user.access_key).await.unwrap(), before, "it was sealed");
    assert_eq!(secret_of(&accounts, &whole).await, "a secret of before");
    assert_eq!(accounts.keys().seal_secrets().await.unwrap(), 0);
}

/// Rotation and revocation of keys: another proxy's cache applies each change within a second.
#[tokio::test(start_paused = true)]
async fn a_change_is_in_force_within_a_second_at_another_proxy() {
    let (harness, accounts, [whole, of_user]) = world().await;
    let elsewhere = cache(&accounts_of(&faulty(&harness.memory, 3, 3, |_| Fault::None)));
    let (access_key, other) = (&whole.access_key, &of_user.access_key);
    let before = elsewhere.find(other).await.unwrap().unwrap();
    accounts.keys().rotate(other, Some("another secret".into())).await.unwrap();
    tokio::time::advance(SECOND).await;
    let after = elsewhere.find(other).await.unwrap().unwrap();
    assert_ne!(before.1, after.1);
    assert_eq!(after.1, "another secret");

    assert!(elsewhere.find(access_key).await.unwrap().is_some());
    accounts.keys().change(access_key, Some(true), None).await.unwrap();
    tokio::time::advance(SECOND).await;
    assert!(elsewhere.get(access_key).is_none(), "a second is over");
    assert!(elsewhere.find(access_key).await.unwrap().is_none());
    accounts.keys().change(access_key, Some(false), None).await.unwrap();
    tokio::time::advance(SECOND).await;
    assert!(elsewhere.find(access_key).await.unwrap().is_some());

    accounts.users().change("t", "u", Some(true), None).await.unwrap();
    tokio::time::advance(SECOND).await;
    assert!(elsewhere.find(other).await.unwrap().is_none());
    assert!(elsewhere.find(access_key).await.unwrap().is_some(), "the tenant's own key goes on");
    accounts.users().change("t", "u", Some(false), Some(Role::Admin)).await.unwrap();
    tokio::time::advance(SECOND).await;
    let role = elsewhere.find(other).await.unwrap().unwrap().0.user.as_ref().map(|it| it.role);
    assert_eq!(role, Some(Role::Admin));

    accounts.tenants().change("t", Some(true), None).await.unwrap();
    tokio::time::advance(SECOND).await;
    for key in [access_key, other] {
        assert!(elsewhere.find(key).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cached_key_needs_no_read_and_is_refreshed_in_the_background() {
    let (harness, accounts, [whole, _]) = world().await;
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let store = faulty(&harness.memory, 3, 3, move |call| {
        counted.fetch_add(usize::from(call.op == CallKind::Read), Ordering::Relaxed);
        Fault::None
    });
    let keys = cache(&accounts_of(&store));
    let first = keys.find(&whole.access_key).await.unwrap().unwrap();
    let once = reads.load(Ordering::Relaxed);
    for _ in 0..1000 {
        assert!(keys.get(&whole.access_key).is_some());
    }
    assert_eq!(reads.load(Ordering::Relaxed), once);
    tokio::time::advance(SECOND / 2).await;
    let second = keys.get(&whole.access_key).unwrap();
    settle().await;
    assert!(reads.load(Ordering::Relaxed) > once, "it is asked for behind");
    tokio::time::advance(SECOND * 3 / 4).await;
    let third = keys.get(&whole.access_key).expect("it was asked for meanwhile");
    assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &third), "made once");
    accounts.keys().delete(&whole.access_key).await.unwrap();
    settle().await;
    tokio::time::advance(SECOND).await;
    assert!(keys.get(&whole.access_key).is_none());
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_known_keys_go_on_for_a_while_and_others_are_refused() {
    let (harness, accounts, [whole, of_user]) = world().await;
    let is_out = Arc::new(AtomicBool::new(false));
    let out = is_out.clone();
    let store = faulty(&harness.memory, 3, 3, move |call| {
        let is_refused = out.load(Ordering::Relaxed) && call.device.0 > 1;
        if is_refused { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
    });
    let keys = cache(&accounts_of(&store));
    keys.find(&whole.access_key).await.unwrap().unwrap();
    is_out.store(true, Ordering::Relaxed);
    for _ in 0..40 {
        tokio::time::advance(SECOND).await;
        assert!(keys.find(&whole.access_key).await.unwrap().is_some());
        settle().await;
    }
    assert!(is_unavailable(&keys.find(&of_user.access_key).await), "it was not known");
    assert!(is_unavailable(&keys.find("AKIDNONE").await), "nobody can tell");
    tokio::time::advance(SECOND * 60).await;
    assert!(is_unavailable(&keys.find(&whole.access_key).await), "that is too long");
    is_out.store(false, Ordering::Relaxed);
    assert!(keys.find(&whole.access_key).await.unwrap().is_some());
    assert!(keys.find("AKIDNONE").await.unwrap().is_none());
    accounts.keys().delete(&whole.access_key).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unknown_keys_takes_bounded_room_and_none_of_the_known() {
    let (harness, _, [whole, _]) = world().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let store = faulty(&harness.memory, 3, 3, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Fault::None
    });
    let keys = cache(&accounts_of(&store));
    assert!(keys.find(&whole.access_key).await.unwrap().is_some());
    for number in 0..12_000 {
        assert!(keys.find(&format!("AKIDFLOOD{number}")).await.unwrap().is_none());
    }
    let (known, unknown) = keys.counts();
    assert!(known == 1 && unknown <= 10_000, "{known} {unknown}");
    assert!(keys.get(&whole.access_key).is_some());
    let before = asked.load(Ordering::Relaxed);
    for _ in 0..100 {
        assert!(keys.find("AKIDFLOOD11999").await.unwrap().is_none());
        assert!(keys.find("no/key").await.unwrap().is_none(), "it could be none");
    }
    assert_eq!(asked.load(Ordering::Relaxed), before);
}
