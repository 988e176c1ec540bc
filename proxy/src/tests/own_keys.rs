//! Keys that users make, rotate and delete themselves: of their user alone, and never wider than the
//! key that makes them.

use futures::future::join_all;

use super::harness::Harness;
use crate::{
    Accounts, DefaultView, Error, Key, MasterKey, NewKey, NewUser, OWN_KEYS_MAX, OwnKeys, Rate,
    Role, Vault,
};

fn new_key(user: Option<&str>) -> NewKey {
    let user = user.map(str::to_owned);
    NewKey { tenant: "t".into(), user, given: None, networks: Vec::new() }
}

async fn user(accounts: &Accounts, name: &str) -> Key {
    let new = NewUser { tenant: "t".into(), name: name.into(), role: Role::ReadOnly };
    accounts.users().create(new).await.unwrap();
    accounts.keys().create(new_key(Some(name))).await.unwrap().0
}

/// Three replicas with the tenant `t`, its users `alice` and `bob`, and a key of each.
async fn world() -> (Harness, Accounts, [Key; 2]) {
    let harness = Harness::new(3, 3);
    let vault = Vault::new(vec![MasterKey::new(&[7; 32])]);
    let accounts = Accounts::new(harness.store.clone(), vault);
    accounts.tenants().create("t", None, Vec::new()).await.unwrap();
    let keys = [user(&accounts, "alice").await, user(&accounts, "bob").await];
    (harness, accounts, keys)
}

async fn make(accounts: &Accounts, maker: &Key) -> crate::Result<(Key, String)> {
    let own = accounts.own_keys(&maker.access_key).await?;
    own.create(&OwnKeys::new_access_key()).await
}

async fn names(accounts: &Accounts, maker: &Key) -> Vec<String> {
    let own = accounts.own_keys(&maker.access_key).await.unwrap();
    own.list().await.unwrap().into_iter().map(|key| key.access_key).collect()
}

fn is_missing<T>(outcome: &crate::Result<T>) -> bool {
    matches!(outcome, Err(Error::NoSuchAccount(_)))
}

fn is_conflict<T>(outcome: &crate::Result<T>) -> bool {
    matches!(outcome, Err(Error::AccountConflict(_)))
}

fn is_malformed<T>(outcome: &crate::Result<T>) -> bool {
    matches!(outcome, Err(Error::InvalidArgument(_)))
}

#[tokio::test]
async fn users_reach_their_own_keys_alone() {
    let (_harness, accounts, [alice, bob]) = world().await;
    let (made, secret) = make(&accounts, &alice).await.unwrap();
    assert_eq!((made.user.as_ref(), secret.len()), (alice.user.as_ref(), 40));
    let mut expected = vec![alice.access_key.clone(), made.access_key.clone()];
    let mut listed = names(&accounts, &alice).await;
    expected.sort();
    listed.sort();
    assert_eq!(listed, expected);
    assert_eq!(names(&accounts, &bob).await, std::slice::from_ref(&bob.access_key));
    let of_bob = accounts.own_keys(&bob.access_key).await.unwrap();
    for key in [&alice, &made] {
        assert!(is_missing(&of_bob.rotate(&key.access_key).await));
        assert!(is_missing(&of_bob.delete(&key.access_key).await));
    }
    // A key of the tenant itself, and a key that doesn't exist, have no user.
    let (whole, _) = accounts.keys().create(new_key(None)).await.unwrap();
    assert!(is_missing(&accounts.own_keys(&whole.access_key).await));
    assert!(is_missing(&accounts.own_keys("NOBODY").await));
    let of_alice = accounts.own_keys(&alice.access_key).await.unwrap();
    assert!(is_missing(&of_alice.delete(&whole.access_key).await));
    let (_, fresh) = of_alice.rotate(&made.access_key).await.unwrap();
    assert_ne!(fresh, secret);
    assert!(is_conflict(&of_alice.delete(&alice.access_key).await), "it would lock its user out");
    of_alice.delete(&made.access_key).await.unwrap();
    assert_eq!(names(&accounts, &alice).await, [alice.access_key]);
}

#[tokio::test]
async fn malformed_names_reach_no_document() {
    let (_harness, accounts, [alice, _]) = world().await;
    let own = accounts.own_keys(&alice.access_key).await.unwrap();
    for name in ["", "ab", "t/alice", "../key", &"a".repeat(129)] {
        assert!(is_malformed(&own.create(name).await), "{name}");
        assert!(is_malformed(&own.rotate(name).await), "{name}");
        assert!(is_malformed(&own.delete(name).await), "{name}");
    }
    assert_eq!(names(&accounts, &alice).await, std::slice::from_ref(&alice.access_key));
}

#[tokio::test]
async fn a_user_has_so_many_keys_however_many_requests_race() {
    let (_harness, accounts, [alice, _]) = world().await;
    let racers = (0..2 * OWN_KEYS_MAX).map(|_| make(&accounts, &alice));
    let made: Vec<_> = join_all(racers).await.into_iter().flatten().collect();
    assert!((1..OWN_KEYS_MAX).contains(&made.len()), "{}", made.len());
    while make(&accounts, &alice).await.is_ok() {}
    assert_eq!(names(&accounts, &alice).await.len(), OWN_KEYS_MAX);
    assert!(is_conflict(&make(&accounts, &alice).await));
    // A key that an operator deleted makes room.
    accounts.keys().delete(&made[0].0.access_key).await.unwrap();
    make(&accounts, &alice).await.unwrap();
    assert!(is_conflict(&make(&accounts, &alice).await));
}

#[tokio::test]
async fn a_limited_key_makes_no_wider_one() {
    let (_harness, accounts, [alice, _]) = world().await;
    let networks = vec!["10.0.0.0/8".parse().unwrap()];
    let limited = NewKey { networks: networks.clone(), ..new_key(Some("alice")) };
    let (limited, _) = accounts.keys().create(limited).await.unwrap();
    let view = DefaultView::Committed;
    accounts.keys().change_view(&limited.access_key, view).await.unwrap();
    let (made, _) = make(&accounts, &limited).await.unwrap();
    assert_eq!((&made.networks, made.view), (&networks, view));
    let own = accounts.own_keys(&limited.access_key).await.unwrap();
    assert!(is_conflict(&own.rotate(&alice.access_key).await), "it may be used from anywhere");
    assert!(is_conflict(&own.delete(&alice.access_key).await), "it would remain alone");
    own.rotate(&limited.access_key).await.unwrap();
    assert!(is_conflict(&own.rotate(&made.access_key).await), "the maker has another secret");
    let own = accounts.own_keys(&limited.access_key).await.unwrap();
    own.rotate(&made.access_key).await.unwrap();
    // The unlimited key may replace the secret of the limited one.
    let whole = accounts.own_keys(&alice.access_key).await.unwrap();
    whole.rotate(&limited.access_key).await.unwrap();
    let rate = |rate: &mut Rate| rate.requests = Some(5);
    accounts.keys().change_rate(&limited.access_key, rate).await.unwrap();
    let own = accounts.own_keys(&limited.access_key).await.unwrap();
    assert!(is_conflict(&own.create(&OwnKeys::new_access_key()).await));
    assert!(is_conflict(&own.rotate(&made.access_key).await));
    assert!(is_conflict(&own.delete(&made.access_key).await));
    own.rotate(&limited.access_key).await.unwrap();
}

#[tokio::test]
async fn a_maker_that_is_changed_meanwhile_leaves_no_key() {
    let (_harness, accounts, [alice, _]) = world().await;
    let own = accounts.own_keys(&alice.access_key).await.unwrap();
    // Between the read of the maker and the creation.
    let networks = Some(vec!["10.0.0.0/8".parse().unwrap()]);
    accounts.keys().change(&alice.access_key, None, networks).await.unwrap();
    assert!(is_conflict(&own.create(&OwnKeys::new_access_key()).await));
    assert_eq!(names(&accounts, &alice).await, std::slice::from_ref(&alice.access_key));
    let own = accounts.own_keys(&alice.access_key).await.unwrap();
    accounts.keys().change(&alice.access_key, Some(true), None).await.unwrap();
    let unborn = OwnKeys::new_access_key();
    assert!(is_conflict(&own.create(&unborn).await));
    assert!(is_missing(&accounts.keys().get(&unborn).await));
}

#[tokio::test]
async fn a_maker_that_is_disabled_meanwhile_rotates_no_key() {
    let (_harness, accounts, [alice, _]) = world().await;
    let (made, _) = make(&accounts, &alice).await.unwrap();
    let own = accounts.own_keys(&alice.access_key).await.unwrap();
    accounts.keys().change(&alice.access_key, Some(true), None).await.unwrap();
    let before = accounts.keys().get(&made.access_key).await.unwrap();
    own.rotate(&made.access_key).await.unwrap_err();
    assert_eq!(accounts.keys().get(&made.access_key).await.unwrap(), before);
    accounts.keys().change(&alice.access_key, Some(false), None).await.unwrap();
    // Its user is disabled instead.
    accounts.users().change("t", "alice", Some(true), None).await.unwrap();
    own.rotate(&made.access_key).await.unwrap_err();
    assert_eq!(accounts.keys().get(&made.access_key).await.unwrap(), before);
}

#[tokio::test]
async fn a_user_that_is_replaced_meanwhile_gets_no_key_of_the_former_one() {
    let (_harness, accounts, [alice, _]) = world().await;
    let own = accounts.own_keys(&alice.access_key).await.unwrap();
    accounts.keys().delete(&alice.access_key).await.unwrap();
    accounts.users().delete("t", "alice").await.unwrap();
    let anew = user(&accounts, "alice").await;
    let unborn = OwnKeys::new_access_key();
    assert!(is_conflict(&own.create(&unborn).await));
    assert!(is_missing(&accounts.keys().get(&unborn).await));
    assert_eq!(names(&accounts, &anew).await, std::slice::from_ref(&anew.access_key));
    assert!(is_missing(&own.rotate(&anew.access_key).await));
    assert!(is_missing(&own.delete(&anew.access_key).await));
}

#[tokio::test]
async fn disabled_keys_stay_disabled_and_reach_nothing() {
    let (_harness, accounts, [alice, _]) = world().await;
    let (made, _) = make(&accounts, &alice).await.unwrap();
    accounts.keys().change(&made.access_key, Some(true), None).await.unwrap();
    let own = accounts.own_keys(&alice.access_key).await.unwrap();
    let (rotated, _) = own.rotate(&made.access_key).await.unwrap();
    assert!(rotated.disabled, "a new secret enables nothing");
    assert!(is_missing(&accounts.own_keys(&made.access_key).await));
    accounts.users().change("t", "alice", Some(true), None).await.unwrap();
    assert!(is_missing(&accounts.own_keys(&alice.access_key).await));
}

#[tokio::test]
async fn a_later_user_of_the_name_has_no_key_of_the_former_one() {
    let (_harness, accounts, [alice, _]) = world().await;
    accounts.keys().delete(&alice.access_key).await.unwrap();
    accounts.users().delete("t", "alice").await.unwrap();
    let anew = user(&accounts, "alice").await;
    assert_eq!(names(&accounts, &anew).await, std::slice::from_ref(&anew.access_key));
}
