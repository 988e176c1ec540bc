//! Roles: made once, changed, and effective everywhere within a second.

use std::time::Duration;

use martlet_protocol::testing::Fault;

use super::harness::{Harness, faulty};
use crate::{
    Accounts, Error, KeyCache, NewRole, NewUser, Role, RoleChange, RoleOf, SESSION_S_DEFAULT, Vault,
};

const SECOND: Duration = Duration::from_secs(1);

fn new_role(tenant: &str, name: &str) -> NewRole {
    NewRole {
        tenant: tenant.into(),
        name: name.into(),
        policy: "{}".into(),
        trust: None,
        trust_ids: None,
        session_s_max: SESSION_S_DEFAULT,
    }
}

async fn world() -> (Harness, Accounts) {
    let harness = Harness::new(3, 3);
    let accounts = Accounts::new(harness.store.clone(), Vault::default());
    accounts.tenants().create("t", None, Vec::new()).await.unwrap();
    accounts.roles().create(new_role("t", "r")).await.unwrap();
    (harness, accounts)
}

fn policies(accounts: Accounts) -> KeyCache<String, RoleOf> {
    KeyCache::new(accounts, |of: &RoleOf, _: &str| of.role.policy.clone())
}

#[tokio::test]
async fn a_role_is_made_changed_and_deleted() {
    let (_harness, accounts) = world().await;
    let made = accounts.roles().get("t", "r").await.unwrap();
    assert!(matches!(
        accounts.roles().create(new_role("t", "r")).await,
        Err(Error::AccountConflict(_))
    ));
    assert!(matches!(
        accounts.roles().create(new_role("o", "r")).await,
        Err(Error::NoSuchAccount(_))
    ));
    for wrong in [new_role("t", "a/b"), NewRole { session_s_max: 899, ..new_role("t", "x") }] {
        assert!(matches!(accounts.roles().create(wrong).await, Err(Error::InvalidArgument(_))));
    }
    let change = RoleChange { trust: Some("[]".into()), ..RoleChange::default() };
    let changed = accounts.roles().change("t", "r", change).await.unwrap();
    assert_eq!((changed.trust.as_deref(), changed.policy.as_str()), (Some("[]"), "{}"));
    let long = RoleChange { session_s_max: Some(43_201), ..RoleChange::default() };
    assert!(matches!(
        accounts.roles().change("t", "r", long).await,
        Err(Error::InvalidArgument(_))
    ));
    accounts.roles().create(new_role("t", "s")).await.unwrap();
    let page = accounts.roles().list("t", Some("r"), 9).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|role| role.name.as_str()).collect();
    assert_eq!((names, page.is_truncated), (vec!["s"], false));
    let refused = accounts.tenants().delete("t").await.unwrap_err().to_string();
    assert_eq!(refused, "the tenant t still has the role r");
    accounts.roles().delete("t", "r").await.unwrap();
    assert!(matches!(accounts.roles().get("t", "r").await, Err(Error::NoSuchAccount(_))));
    accounts.roles().create(new_role("t", "r")).await.unwrap();
    assert_ne!(accounts.roles().get("t", "r").await.unwrap().id, made.id);
}

#[tokio::test]
async fn a_user_keeps_its_policy_until_it_is_taken_away() {
    let (_harness, accounts) = world().await;
    let new = NewUser { tenant: "t".into(), name: "u".into(), role: Role::Admin };
    assert_eq!(accounts.users().create(new).await.unwrap().policy, None);
    accounts.users().set_policy("t", "u", Some("{}".into())).await.unwrap();
    accounts.users().change("t", "u", None, Some(Role::ReadOnly)).await.unwrap();
    assert_eq!(accounts.users().get("t", "u").await.unwrap().policy.as_deref(), Some("{}"));
    accounts.users().set_policy("t", "u", None).await.unwrap();
    assert_eq!(accounts.users().get("t", "u").await.unwrap().policy, None);
    let nobody = accounts.users().set_policy("t", "nobody", None).await;
    assert!(matches!(nobody, Err(Error::NoSuchAccount(_))));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_in_force_within_a_second_at_another_proxy() {
    let (harness, accounts) = world().await;
    let store = faulty(&harness.memory, 3, 3, |_| Fault::None);
    let elsewhere = policies(Accounts::new(store, Vault::default()));
    let find = async || {
        tokio::time::advance(SECOND).await;
        elsewhere.find("t/r").await.unwrap().map(|policy| policy.as_str().to_owned())
    };
    assert_eq!(find().await.as_deref(), Some("{}"));
    let change = RoleChange { policy: Some("[]".into()), ..RoleChange::default() };
    accounts.roles().change("t", "r", change).await.unwrap();
    assert_eq!(find().await.as_deref(), Some("[]"));
    let off = |disabled| RoleChange { disabled: Some(disabled), ..RoleChange::default() };
    accounts.roles().change("t", "r", off(true)).await.unwrap();
    assert_eq!(find().await, None);
    accounts.roles().change("t", "r", off(false)).await.unwrap();
    assert!(find().await.is_some());
    accounts.tenants().change("t", Some(true), None).await.unwrap();
    assert_eq!(find().await, None);
    assert_eq!(elsewhere.find("t").await.unwrap(), None, "no name of a role");
}
