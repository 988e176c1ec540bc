//! What a request may do, for as long as it lasts.

use std::sync::Arc;

use http::Extensions;
use martlet_protocol::lock::Bypass;
use martlet_proxy::{Error, Guard, ObjectName, ReadConditions, Selection, Session};
use s3s::S3Result;

use super::access::{Expected, denied};
use super::guard::ByList;
use super::standing::{Answer, Standing};
use crate::access::{Action, Context, Question, Requester, Scope};
use crate::errors::s3_error;

/// What a request may do.
#[derive(Clone)]
pub(crate) struct Rights {
    store: Session,
    requester: Arc<Requester>,
    standing: Arc<Standing>,
    context: Context,
    /// The key that it is about.
    key: Option<String>,
    /// Whose the bucket must be that is copied from.
    source_owner: Expected,
    /// Whether the object has the last word.
    pub(super) is_guarded: bool,
}

/// What is left to be asked of the object.
struct Open {
    /// What its list must grant.
    by_object: Vec<Action>,
    /// What its list must grant unless it is the bucket's owner's.
    by_owner: Vec<Action>,
}

impl Rights {
    pub(super) fn new(
        store: Session,
        requester: Requester,
        standing: Standing,
        context: Context,
    ) -> Self {
        let (requester, standing) = (Arc::new(requester), Arc::new(standing));
        let source_owner = Expected::default();
        let key = None;
        Self { store, requester, standing, context, key, source_owner, is_guarded: false }
    }

    /// The same of a request about a key.
    pub(super) fn about(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }

    /// The same where what is copied from must be somebody's in particular.
    pub(super) fn expecting(self, source_owner: Expected) -> Self {
        Self { source_owner, ..self }
    }

    /// Who asks.
    pub(super) fn requester(&self) -> &Requester {
        &self.requester
    }

    /// How it stands to the bucket that it asks about.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The session that nothing stands before.
    pub(super) fn session(&self) -> &Session {
        &self.store
    }

    /// What asks the lists of objects for what these actions ask of them.
    pub(super) fn guard(&self, actions: &[Action]) -> Option<Arc<dyn Guard>> {
        let open = Open { by_object: actions.to_vec(), by_owner: Vec::new() };
        self.guard_of(&self.standing, &open)
    }

    fn guard_of(&self, standing: &Arc<Standing>, open: &Open) -> Option<Arc<dyn Guard>> {
        let wanted = standing.asks_objects(&open.by_object);
        let allowed = standing.asks_objects(&open.by_owner);
        let (requester, standing) = (self.requester.clone(), standing.clone());
        (!wanted.is_empty() || !allowed.is_empty())
            .then(|| Arc::new(ByList { requester, standing, wanted, allowed }) as Arc<dyn Guard>)
    }

    /// Those of a request that came by the access check.
    pub(super) fn find(extensions: &Extensions) -> S3Result<&Self> {
        extensions.get().ok_or_else(denied)
    }

    /// The same with the tags that the request sets.
    pub(super) fn with_tags<'a>(&self, tags: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut rights = self.clone();
        rights.context.set_tags(tags);
        rights
    }

    /// The same with what `add` knows of the request's body.
    pub(super) fn with(&self, add: impl FnOnce(&mut Context)) -> Self {
        let mut rights = self.clone();
        add(&mut rights.context);
        rights
    }

    /// Whether one more thing may be done to an object.
    pub(super) async fn permits(&self, action: Action, name: ObjectName<'_>) -> S3Result<bool> {
        self.may(&self.standing, &[action], Some(name)).await
    }

    /// Refuses all that isn't allowed whole.
    pub(super) async fn check(&self, actions: &[Action], name: ObjectName<'_>) -> S3Result<()> {
        if self.may(&self.standing, actions, Some(name)).await? { Ok(()) } else { Err(denied()) }
    }

    /// Refuses what isn't allowed, whatever the object says; otherwise what is to ask it.
    pub(super) async fn check_but_object(
        &self,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<Option<Arc<dyn Guard>>> {
        let open = self.undecided(&self.standing, actions, name).await?;
        Ok(self.guard_of(&self.standing, &open))
    }

    /// Refuses to delete one of many keys, or a version of it.
    pub(super) async fn check_delete(&self, name: ObjectName<'_>, bypass: Bypass) -> S3Result<()> {
        let action = match name.version {
            None => Action::DeleteObject,
            Some(_) => Action::DeleteObjectVersion,
        };
        let further = (bypass != Bypass::Nothing).then_some(Action::BypassGovernanceRetention);
        let actions: Vec<Action> = std::iter::once(action).chain(further).collect();
        self.check(&actions, name).await
    }

    /// Refuses to read an object that may be in another bucket, and to copy its tags along to
    /// `tags_to` where it has some. What is left to be asked is the object.
    pub(super) async fn check_source(
        &self,
        (bucket, name): (&str, ObjectName<'_>),
        tags_to: Option<&str>,
    ) -> S3Result<Option<Arc<dyn Guard>>> {
        let (read, read_tags) = match name.version {
            None => (Action::GetObject, Action::GetObjectTagging),
            Some(_) => (Action::GetObjectVersion, Action::GetObjectVersionTagging),
        };
        let found = self.store.bucket(bucket).await.map_err(s3_error)?;
        self.source_owner.check(&self.requester, &found.owner)?;
        let standing = Arc::new(
            Standing::of(&self.requester, bucket, &found).noting(self.standing.acl_use.clone()),
        );
        let open = self.undecided(&standing, &[read], Some(name)).await?;
        let guard = self.guard_of(&standing, &open);
        if !self.may_list_in(&standing, Some(name.key)).await?
            && self.existing_tags(bucket, name).await?.is_none()
        {
            return Err(denied());
        }
        let Some(target) = tags_to else { return Ok(guard) };
        let target = Some(target.into());
        let may_copy_tags = self.may(&standing, &[read_tags], Some(name)).await?
            && self.may(&self.standing, &[Action::PutObjectTagging], target).await?;
        if may_copy_tags
            || self.existing_tags(bucket, name).await?.is_none_or(|tags| tags.is_empty())
        {
            return Ok(guard);
        }
        Err(denied())
    }

    /// Whether it may know if the key is there.
    pub(super) async fn may_list(&self) -> S3Result<bool> {
        self.may_list_in(&self.standing, self.key.as_deref()).await
    }

    /// Whether it may know if a key is there: who may list what begins with it may.
    async fn may_list_in(&self, standing: &Standing, key: Option<&str>) -> S3Result<bool> {
        let Some(key) = key else {
            return self.may(standing, &[Action::ListBucket], None).await;
        };
        let asking = self.with(|context| context.set("s3:prefix", key));
        asking.may(standing, &[Action::ListBucket], None).await
    }

    /// Refuses what isn't allowed; those actions that an object's list has to allow.
    async fn undecided(
        &self,
        standing: &Standing,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<Open> {
        let answers = self.answers(standing, actions, name).await?;
        if answers.contains(&Answer::No) {
            return Err(denied());
        }
        let of = |wanted: Answer| {
            let both = actions.iter().zip(&answers).filter(|(_, answer)| **answer == wanted);
            both.map(|(action, _)| *action).collect()
        };
        Ok(Open { by_object: of(Answer::ByObject), by_owner: of(Answer::ByOwner) })
    }

    async fn may(
        &self,
        standing: &Standing,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<bool> {
        let answers = self.answers(standing, actions, name).await?;
        Ok(answers.iter().all(|answer| *answer == Answer::Yes))
    }

    async fn answers(
        &self,
        standing: &Standing,
        actions: &[Action],
        name: Option<ObjectName<'_>>,
    ) -> S3Result<Vec<Answer>> {
        let bucket = &standing.bucket;
        let mut context = self.context.clone();
        context.add("s3:ResourceAccount", &standing.owner);
        let resource = match name {
            None => bucket.clone(),
            Some(name) => {
                if let Some(version) = name.version {
                    context.set("s3:VersionId", version.to_string());
                }
                if self.reads_tags(standing) {
                    // Those of the very version: others may say what this one doesn't.
                    let tags = self.existing_tags(bucket, name).await?.unwrap_or_default();
                    let tags = tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                    context.set_existing(tags);
                }
                format!("{bucket}/{}", name.key)
            }
        };
        let (requester, context) = (&*self.requester, &context);
        // Whoever makes an object may say whom it is for, unless a policy denies it.
        let is_new = actions.contains(&Action::PutObject);
        let answer = |&action: &Action| {
            let resource = match action.scope() {
                Scope::Object => resource.as_str(),
                Scope::Bucket | Scope::Service => bucket,
            };
            if !requester.has_role_for(action) {
                return Answer::No;
            }
            let question = Question { requester, action, resource, context };
            match standing.allows(&question) {
                Answer::ByObject | Answer::ByOwner if is_new => Answer::Yes,
                Answer::No if is_new => standing.lets_tag_new(&question),
                answer => answer,
            }
        };
        Ok(actions.iter().map(answer).collect())
    }

    /// Whether what may be done to an object hangs on what is there.
    pub(super) fn reads_objects(&self) -> bool {
        self.reads_tags(&self.standing)
    }

    fn reads_tags(&self, standing: &Standing) -> bool {
        standing.reads_existing_tags() || self.requester.reads_existing_tags()
    }

    /// The tags of an object, if it is there.
    async fn existing_tags(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
    ) -> S3Result<Option<Vec<(String, String)>>> {
        let none = ReadConditions::default();
        match self.store.head(bucket, name, Selection::Whole, &none).await {
            Ok(read) => Ok(Some(read.object.attributes.tags.clone())),
            Err(Error::NoSuchKey | Error::NoSuchVersion | Error::DeleteMarker { .. }) => Ok(None),
            Err(error) => Err(s3_error(error)),
        }
    }
}
