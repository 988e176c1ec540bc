//! Settings of a bucket: independent of each other, deleted with the bucket, soon effective
//! everywhere.

use futures::future::join_all;
use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::Fault;
use martlet_protocol::{ErrorKind, Level, Setting};

use super::harness::{Harness, create, faulty, remembering};
use crate::{Error, NewBucket};

async fn text(harness: &Harness, setting: Setting) -> Option<String> {
    let document = harness.store.buckets().setting("b", setting).await.unwrap();
    document.map(|document| String::from_utf8(document).unwrap())
}

#[tokio::test]
async fn a_setting_is_there_from_its_put_to_its_delete() {
    let harness = Harness::with_bucket(1).await;
    let store = &harness.store;
    assert_eq!(text(&harness, Setting::Cors).await, None);
    for document in ["first", "second"] {
        store.buckets().put_setting("b", Setting::Cors, document.into()).await.unwrap();
        assert_eq!(text(&harness, Setting::Cors).await.as_deref(), Some(document));
    }
    assert_eq!(text(&harness, Setting::Tagging).await, None);
    for _ in 0..2 {
        store.buckets().delete_setting("b", Setting::Cors).await.unwrap();
        assert_eq!(text(&harness, Setting::Cors).await, None);
    }
}

#[tokio::test]
async fn m2_the_generation_rises_with_each_change_and_with_nothing_else() {
    let harness = Harness::with_bucket(1).await;
    let store = &harness.store;
    let before = store.bucket("b").await.unwrap().generation;
    store.buckets().put_setting("b", Setting::Policy, b"p".to_vec()).await.unwrap();
    assert_eq!(store.bucket("b").await.unwrap().generation, before + 1);
    store.buckets().put_setting("b", Setting::Policy, b"p".to_vec()).await.unwrap();
    store.buckets().delete_setting("b", Setting::Cors).await.unwrap();
    assert_eq!(store.bucket("b").await.unwrap().generation, before + 1, "nothing changed");
    harness.put("key", "writes go on").await.unwrap();
    store.buckets().set_consistency("b", Level::Strict).await.unwrap();
    assert_eq!(text(&harness, Setting::Policy).await.as_deref(), Some("p"));
}

#[tokio::test]
async fn no_change_of_concurrent_writers_is_lost() {
    let harness = Harness::new(3, 3);
    create(&harness.store, "b").await;
    let racers = Setting::ALL.map(|setting| {
        let store = faulty(&harness.memory, 3, 3, |_| Fault::None);
        async move {
            let document: Vec<u8> = setting.name().into();
            // A racer that lost too often receives an error, and retries.
            while store.buckets().put_setting("b", setting, document.clone()).await.is_err() {}
        }
    });
    join_all(racers).await;
    for setting in Setting::ALL {
        assert_eq!(text(&harness, setting).await.as_deref(), Some(setting.name()));
    }
}

#[tokio::test]
async fn a_change_is_judged_by_what_it_changes() {
    let harness = Harness::with_bucket(1).await;
    let store = &harness.store;
    let refuse = |settings: &mut martlet_protocol::Settings| {
        settings.set(Setting::Acl, b"open".to_vec())?;
        Err(Error::InvalidRequest("not so".into()))
    };
    let refused = store.buckets().change_settings("b", refuse).await;
    assert!(matches!(refused, Err(Error::InvalidRequest(_))));
    let long = vec![b' '; Setting::Policy.bytes_max() + 1];
    let refused = store.buckets().put_setting("b", Setting::Policy, long).await;
    assert!(matches!(refused, Err(Error::EntityTooLarge { .. })));
    assert_eq!(store.buckets().settings("b").await.unwrap(), martlet_protocol::Settings::default());
    let refused = store.buckets().put_setting("none", Setting::Cors, Vec::new()).await;
    assert!(matches!(refused, Err(Error::NoSuchBucket)));
    assert!(matches!(store.buckets().settings("none").await, Err(Error::NoSuchBucket)));
}

#[tokio::test]
async fn a_new_bucket_has_nothing_of_its_namesake() {
    let harness = Harness::with_bucket(1).await;
    harness.store.buckets().put_setting("b", Setting::Cors, b"x".to_vec()).await.unwrap();
    harness.store.buckets().delete("b").await.unwrap();
    create(&harness.store, "b").await;
    assert_eq!(text(&harness, Setting::Cors).await, None);
}

#[tokio::test]
async fn settings_are_read_from_the_register_and_applied_at_once_by_their_writer() {
    let harness = Harness::with_bucket(1).await;
    let other = remembering(&harness.memory);
    let applied = async || other.bucket("b").await.unwrap().settings.get(Setting::Cors).is_some();
    assert!(!applied().await);
    harness.store.buckets().put_setting("b", Setting::Cors, b"x".to_vec()).await.unwrap();
    assert!(!applied().await, "it takes what it looked up for granted");
    let asked = other.buckets().setting("b", Setting::Cors).await.unwrap();
    assert_eq!(asked.as_deref(), Some(&b"x"[..]));
    assert!(applied().await, "it has looked it up");
    other.buckets().delete_setting("b", Setting::Cors).await.unwrap();
    assert!(!applied().await);
}

#[tokio::test(start_paused = true)]
async fn m2_without_a_quorum_nothing_is_set() {
    let harness = Harness::new(3, 3);
    let new = NewBucket {
        owner: "me".into(),
        index_shards: 4,
        policy: None,
        settings: martlet_protocol::Settings::default(),
    };
    harness.store.buckets().create("b", new).await.unwrap();
    let cut_off = faulty(&harness.memory, 3, 3, |call| match call.op {
        CallKind::Promise | CallKind::Write if call.device.0 > 1 => {
            Fault::Refuse(ErrorKind::Unavailable)
        }
        _ => Fault::None,
    });
    let refused = cut_off.buckets().put_setting("b", Setting::Cors, b"x".to_vec()).await;
    assert!(
        matches!(refused, Err(Error::Backend(error)) if error.kind() == ErrorKind::Unavailable)
    );
    assert_eq!(text(&harness, Setting::Cors).await, None);
}
