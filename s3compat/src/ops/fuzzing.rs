//! Documents of requests: an accepted document is kept, returned and accepted again as the same
//! setting.

use std::fmt::Debug;

use bytes::Bytes;
use martlet_protocol::lifecycle::Lifecycle;
use martlet_protocol::lock::{BucketLock, Retention};
use martlet_protocol::testing::fuzz_target::FuzzTarget;
use s3s::dto::{
    AccessControlPolicy, BucketLifecycleConfiguration, BucketLoggingStatus, BucketVersioningStatus,
    CORSConfiguration, Delete, GetBucketCorsOutput, GetBucketLifecycleConfigurationOutput,
    GetBucketLoggingOutput, GetBucketNotificationConfigurationOutput, GetBucketTaggingOutput,
    GetBucketVersioningOutput, Grant as WireGrant, LoggingEnabled, NotificationConfiguration,
    ObjectLockConfiguration, ObjectLockLegalHold, ObjectLockLegalHoldStatus, ObjectLockRetention,
    ObjectLockRetentionMode, OwnershipControls, PublicAccessBlockConfiguration,
    ServerSideEncryptionConfiguration, Tagging, VersioningConfiguration,
};
use s3s::xml::{Deserialize, Serialize};

use super::completion::RequestedParts;
use super::lifecycle::wire;
use super::new_bucket::NewBucketDocument;
use super::{acl, cors, delete, encryption, lock, logging, multipart, notification, ownership};
use crate::events::Rules;
use crate::http::{Operation, plain_document};
use crate::lock::{hold_name, mode_name, wire_date};
use crate::logging::Logging;
use crate::reply::Reply;
use crate::settings::{from_document, to_document};
use crate::{fields, tags, xml_text};

/// Documents. An input is the number of a kind, then the bytes of a document.
///
/// Properties: no document causes a panic; the stored form and the reply of an accepted document are
/// read as the same setting; both are XML 1.0.
pub const DOCUMENTS: FuzzTarget =
    FuzzTarget { name: "documents", check, seeds, heap_bytes_max: 64 << 20 };

const REGION: &str = "us-east-1";

/// A kind of documents: its check, and a document of a client.
struct Kind(fn(&[u8]) -> Option<()>, &'static str);

/// The kinds by their numbers.
const KINDS: [Kind; 17] = [
    Kind(bucket_tagging, BUCKET_TAGGING),
    Kind(object_tagging, BUCKET_TAGGING),
    Kind(cors_rules, CORS),
    Kind(lifecycle, LIFECYCLE),
    Kind(notification, NOTIFICATION),
    Kind(ownership_controls, OWNERSHIP),
    Kind(public_access, PUBLIC_ACCESS),
    Kind(bucket_encryption, ENCRYPTION),
    Kind(object_lock, LOCK),
    Kind(retention, RETENTION),
    Kind(legal_hold, LEGAL_HOLD),
    Kind(versioning, VERSIONING),
    Kind(bucket_logging, LOGGING),
    Kind(access_list, ACL),
    Kind(deletes, DELETE),
    Kind(parts, PARTS),
    Kind(new_bucket, NEW_BUCKET),
];

fn check(input: &[u8]) -> bool {
    let Some((kind, document)) = input.split_first() else { return false };
    let Kind(check, _) = KINDS[usize::from(*kind) % KINDS.len()];
    check(document).is_some()
}

/// Returns a document as its operation receives it; none if it is refused.
fn received<T: for<'xml> Deserialize<'xml>>(operation: Operation, document: &[u8]) -> Option<T> {
    let plain = plain_document(Bytes::copy_from_slice(document), operation).ok()?;
    if plain.is_empty() { None } else { fields::parse(&plain).ok() }
}

fn assert_is_xml(document: &[u8]) {
    let text = std::str::from_utf8(document).expect("a document is UTF-8");
    assert!(text.chars().all(xml_text::is_character), "{text:?}");
}

/// Asserts that the stored form of a setting is read as the same setting.
fn assert_kept<T>(value: &T)
where
    T: Serialize + for<'xml> Deserialize<'xml> + PartialEq + Debug,
{
    let document = to_document(value);
    assert_is_xml(&document);
    let again: T = from_document(&document).expect("a stored setting can be read");
    assert_eq!(&again, value);
}

/// Sends a reply back, as a client does that copies a setting.
fn sent_back<T>(operation: Operation, reply: &impl Serialize) -> T
where
    T: for<'xml> Deserialize<'xml>,
{
    let reply = Reply::xml(reply).expect("a reply can be written");
    let document = reply.body.document().expect("a reply is a document");
    if operation != Operation::DeleteObjects {
        assert_is_xml(document);
    }
    let received = received(operation, document);
    received.unwrap_or_else(|| panic!("refused: {}", String::from_utf8_lossy(document)))
}

fn bucket_tagging(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketTagging;
    let tagging: Tagging = received(operation, document)?;
    let tags = tags::from_bucket_xml(tagging.tag_set).ok()?;
    let tagging = Tagging { tag_set: tags::to_xml(&tags) };
    assert_kept(&tagging);
    let reply = GetBucketTaggingOutput { tag_set: tagging.tag_set.clone() };
    assert_eq!(sent_back::<Tagging>(operation, &reply), tagging);
    Some(())
}

fn object_tagging(document: &[u8]) -> Option<()> {
    let operation = Operation::PutObjectTagging;
    let tagging: Tagging = received(operation, document)?;
    let tag_set = tags::to_xml(&tags::from_xml(tagging.tag_set).ok()?);
    let again: Tagging = sent_back(operation, &GetBucketTaggingOutput { tag_set: tag_set.clone() });
    assert_eq!(again.tag_set, tag_set);
    Some(())
}

fn cors_rules(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketCors;
    let rules: CORSConfiguration = received(operation, document)?;
    cors::check(&rules.cors_rules).ok()?;
    assert_kept(&rules);
    let reply = GetBucketCorsOutput { cors_rules: Some(rules.cors_rules.clone()) };
    assert_eq!(sent_back::<CORSConfiguration>(operation, &reply), rules);
    Some(())
}

fn lifecycle(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketLifecycleConfiguration;
    let given: BucketLifecycleConfiguration = received(operation, document)?;
    let rules = wire::from_wire(Some(given)).ok()?;
    let kept = Lifecycle { rules, transition_minimum: None };
    assert_eq!(Lifecycle::of(&kept.document()).expect("stored rules can be read"), kept);
    let reply = GetBucketLifecycleConfigurationOutput {
        transition_default_minimum_object_size: None,
        rules: Some(kept.rules.iter().cloned().map(wire::to_wire).collect()),
    };
    let again = wire::from_wire(Some(sent_back(operation, &reply)));
    assert_eq!(again.expect("returned rules are accepted"), kept.rules);
    Some(())
}

fn notification(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketNotificationConfiguration;
    let given: NotificationConfiguration = received(operation, document)?;
    let rules = notification::from_wire(given, REGION).ok()?;
    assert_eq!(Rules::of(&rules.document()).as_ref(), Some(&rules));
    let mut reply = GetBucketNotificationConfigurationOutput::default();
    for rule in rules.0.iter().cloned() {
        notification::to_wire(rule, &mut reply);
    }
    let again = notification::from_wire(sent_back(operation, &reply), REGION);
    assert_eq!(again.expect("returned rules are accepted"), rules);
    Some(())
}

fn ownership_controls(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketOwnershipControls;
    let controls: OwnershipControls = received(operation, document)?;
    ownership::one_rule(&controls).ok()?;
    assert_kept(&controls);
    assert_eq!(sent_back::<OwnershipControls>(operation, &controls), controls);
    Some(())
}

fn public_access(document: &[u8]) -> Option<()> {
    let operation = Operation::PutPublicAccessBlock;
    let block = ownership::complete(&received(operation, document)?);
    assert_kept(&block);
    assert_eq!(sent_back::<PublicAccessBlockConfiguration>(operation, &block), block);
    Some(())
}

fn bucket_encryption(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketEncryption;
    let rules: ServerSideEncryptionConfiguration = received(operation, document)?;
    encryption::check(&rules).ok()?;
    assert_kept(&rules);
    assert_eq!(sent_back::<ServerSideEncryptionConfiguration>(operation, &rules), rules);
    Some(())
}

fn object_lock(document: &[u8]) -> Option<()> {
    let operation = Operation::PutObjectLockConfiguration;
    let given: ObjectLockConfiguration = received(operation, document)?;
    let lock = lock::bucket_lock(Some(given)).ok()?;
    assert_eq!(BucketLock::of(Some(&lock.document())), Ok(Some(lock)));
    let again = lock::bucket_lock(Some(sent_back(operation, &lock::wire_bucket_lock(lock))));
    assert_eq!(again.expect("a returned configuration is accepted"), lock);
    Some(())
}

fn retention(document: &[u8]) -> Option<()> {
    let operation = Operation::PutObjectRetention;
    let given: ObjectLockRetention = received(operation, document)?;
    let Some(kept) = lock::retention(Some(&given)).ok()? else { return Some(()) };
    let Retention { mode, until_ms } = kept;
    let reply = ObjectLockRetention {
        mode: Some(ObjectLockRetentionMode::from_static(mode_name(mode))),
        retain_until_date: Some(wire_date(until_ms)),
    };
    let again = lock::retention(Some(&sent_back(operation, &reply)));
    assert_eq!(again.expect("a returned retention is accepted"), Some(kept));
    Some(())
}

fn legal_hold(document: &[u8]) -> Option<()> {
    let operation = Operation::PutObjectLegalHold;
    let is_on = lock::legal_hold(Some(&received(operation, document)?)).ok()?;
    let status = Some(ObjectLockLegalHoldStatus::from_static(hold_name(is_on)));
    let again = sent_back(operation, &ObjectLockLegalHold { status });
    assert_eq!(lock::legal_hold(Some(&again)).expect("a returned hold is accepted"), is_on);
    Some(())
}

fn versioning(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketVersioning;
    let given: VersioningConfiguration = received(operation, document)?;
    let status = given.status.filter(|status| {
        [BucketVersioningStatus::ENABLED, BucketVersioningStatus::SUSPENDED]
            .contains(&status.as_str())
    })?;
    let reply = GetBucketVersioningOutput { status: Some(status.clone()), ..Default::default() };
    let again: VersioningConfiguration = sent_back(operation, &reply);
    assert_eq!(again.status, Some(status));
    Some(())
}

/// Reads log settings, with grants before their grantees are looked up.
fn log_settings(enabled: LoggingEnabled) -> Option<(Logging, Vec<WireGrant>)> {
    let format = logging::key_format(enabled.target_object_key_format).ok()?;
    let grants = enabled.target_grants.unwrap_or_default().into_iter().map(logging::wire_grant);
    let grants: Vec<WireGrant> = grants.collect::<Result<_, _>>().ok()?;
    let (target, prefix) = (enabled.target_bucket, enabled.target_prefix);
    Some((Logging { target, prefix, format, grants: Vec::new() }, grants))
}

fn bucket_logging(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketLogging;
    let given: BucketLoggingStatus = received(operation, document)?;
    let Some(enabled) = given.logging_enabled else { return Some(()) };
    let (kept, grants) = log_settings(enabled)?;
    let named = acl::granted_in(&grants)?;
    assert_eq!(Logging::of(&kept.document()).as_ref(), Some(&kept));
    let logging_enabled = Some(logging::to_wire(kept.clone(), grants.clone()));
    let again: BucketLoggingStatus =
        sent_back(operation, &GetBucketLoggingOutput { logging_enabled });
    let again = log_settings(again.logging_enabled.expect("the reply has settings"));
    let (kept_again, grants_again) = again.expect("returned settings are accepted");
    assert_eq!(kept_again, kept);
    assert!(acl::granted_in(&grants_again) == Some(named), "the grants are the same");
    Some(())
}

fn access_list(document: &[u8]) -> Option<()> {
    let operation = Operation::PutBucketAcl;
    let list: AccessControlPolicy = received(operation, document)?;
    let requested = acl::requested_in(list.clone()).ok()?;
    let again = acl::requested_in(sent_back(operation, &list));
    assert_eq!(again.expect("a returned list is accepted"), requested);
    Some(())
}

fn deletes(document: &[u8]) -> Option<()> {
    let operation = Operation::DeleteObjects;
    let given: Delete = received(operation, document)?;
    let named = |delete: &Delete| {
        let of = |object: &s3s::dto::ObjectIdentifier| {
            let conditions = delete::conditions_of(object).ok();
            (object.key.clone(), object.version_id.clone(), conditions)
        };
        delete.objects.iter().map(of).collect::<Vec<_>>()
    };
    // An ETag without quotes may be any text, and has quotes when it is written.
    let is_tag =
        |tag: &s3s::dto::ETag| tag.value().bytes().all(|it| it.is_ascii_graphic() && it != b'"');
    if !given.objects.iter().filter_map(|object| object.e_tag.as_ref()).all(is_tag) {
        return Some(());
    }
    // A client that writes what was read asks for the same deletes.
    let again: Delete = sent_back(operation, &given);
    assert_eq!((named(&again), again.quiet), (named(&given), given.quiet));
    Some(())
}

fn parts(document: &[u8]) -> Option<()> {
    let given: RequestedParts = received(Operation::CompleteMultipartUpload, document)?;
    let named = multipart::named_parts(given).ok()?;
    assert!(!named.is_empty());
    Some(())
}

fn new_bucket(document: &[u8]) -> Option<()> {
    let plain = plain_document(Bytes::copy_from_slice(document), Operation::CreateBucket).ok()?;
    let given = NewBucketDocument::parse(&plain).ok()?;
    let tagging = given.tagging().ok()?;
    if given.has_tags() {
        assert_kept(&tagging);
    }
    Some(())
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |(number, Kind(_, document)): (u8, Kind)| [&[number], document.as_bytes()].concat();
    (0..).zip(KINDS).map(seed).collect()
}

const BUCKET_TAGGING: &str = "<Tagging xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><TagSet>\
    <Tag><Key>team</Key><Value>ml &#233;</Value></Tag><Tag><Key>b</Key><Value/></Tag>\
    </TagSet></Tagging>";
const CORS: &str = "<CORSConfiguration><CORSRule><ID>a &lt;b&gt;&#13;</ID>\
    <AllowedOrigin>http://*.example.com</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
    <AllowedMethod>PUT</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader>\
    <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>3000</MaxAgeSeconds></CORSRule>\
    </CORSConfiguration>";
const LIFECYCLE: &str = "<LifecycleConfiguration><Rule><ID>one</ID><Filter><And>\
    <Prefix>a/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag>\
    <ObjectSizeGreaterThan>7</ObjectSizeGreaterThan></And></Filter><Status>Enabled</Status>\
    <Expiration><Days>30</Days></Expiration><NoncurrentVersionExpiration>\
    <NewerNoncurrentVersions>3</NewerNoncurrentVersions><NoncurrentDays>9</NoncurrentDays>\
    </NoncurrentVersionExpiration></Rule><Rule><Prefix>b/</Prefix><Status>Disabled</Status>\
    <Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration><AbortIncompleteMultipartUpload>\
    <DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>\
    </LifecycleConfiguration>";
const NOTIFICATION: &str = "<NotificationConfiguration><QueueConfiguration><Id>q</Id>\
    <Queue>arn:martlet:sqs:::hook</Queue><Event>s3:ObjectCreated:*</Event><Filter><S3Key>\
    <FilterRule><Name>prefix</Name><Value>a/</Value></FilterRule>\
    <FilterRule><Name>suffix</Name><Value>.jpg</Value></FilterRule></S3Key></Filter>\
    </QueueConfiguration><TopicConfiguration><Topic>arn:aws:sns:us-east-1:1:t</Topic>\
    <Event>s3:ObjectRemoved:Delete</Event></TopicConfiguration></NotificationConfiguration>";
const OWNERSHIP: &str = "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerPreferred\
    </ObjectOwnership></Rule></OwnershipControls>";
const PUBLIC_ACCESS: &str = "<PublicAccessBlockConfiguration><BlockPublicAcls>true\
    </BlockPublicAcls><IgnorePublicAcls>FALSE</IgnorePublicAcls></PublicAccessBlockConfiguration>";
const ENCRYPTION: &str = "<ServerSideEncryptionConfiguration><Rule>\
    <ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>\
    </ApplyServerSideEncryptionByDefault><BucketKeyEnabled>false</BucketKeyEnabled></Rule>\
    </ServerSideEncryptionConfiguration>";
const LOCK: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>\
    <Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>7</Days></DefaultRetention></Rule>\
    </ObjectLockConfiguration>";
const RETENTION: &str = "<Retention><Mode>COMPLIANCE</Mode>\
    <RetainUntilDate>2031-02-03T04:05:06.789Z</RetainUntilDate></Retention>";
const LEGAL_HOLD: &str = "<LegalHold><Status>ON</Status></LegalHold>";
const VERSIONING: &str =
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const LOGGING: &str = "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket>\
    <TargetGrants><Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
    xsi:type=\"CanonicalUser\"><ID>bob</ID></Grantee><Permission>READ</Permission></Grant>\
    </TargetGrants><TargetPrefix>p/</TargetPrefix><TargetObjectKeyFormat><PartitionedPrefix>\
    <PartitionDateSource>EventTime</PartitionDateSource></PartitionedPrefix>\
    </TargetObjectKeyFormat></LoggingEnabled></BucketLoggingStatus>";
const ACL: &str = "<AccessControlPolicy><Owner><ID>alice</ID></Owner><AccessControlList><Grant>\
    <Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"Group\">\
    <URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee>\
    <Permission>READ</Permission></Grant></AccessControlList></AccessControlPolicy>";
const DELETE: &str = "<Delete><Object><Key>a &amp; b</Key><VersionId>null</VersionId></Object>\
    <Object><Key>c\u{1}</Key><ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag>\
    <LastModifiedTime>Wed, 12 Oct 2029 17:50:00 GMT</LastModifiedTime><Size>7</Size></Object>\
    <Quiet>true</Quiet></Delete>";
const PARTS: &str = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>\
    <ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag>\
    <ChecksumCRC32C>AAAAAA==</ChecksumCRC32C></Part></CompleteMultipartUpload>";
const NEW_BUCKET: &str = "<CreateBucketConfiguration><LocationConstraint>eu-west-1\
    </LocationConstraint><Tags><Tag><Key>a</Key><Value>b</Value></Tag></Tags>\
    </CreateBucketConfiguration>";
