"""What is set about a bucket: tags, public access block, ownership, access control lists."""

import base64
import hashlib

import pytest

from harness import wire
from helpers import assert_refused, refused, status


def tags(s3, bucket):
    found = s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
    return {tag["Key"]: tag["Value"] for tag in found}


def put_tags(s3, bucket, pairs):
    tag_set = [{"Key": key, "Value": value} for key, value in pairs]
    return s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tag_set})


def test_a_life_of_tags(s3, bucket):
    with refused("NoSuchTagSet", 404):
        tags(s3, bucket)
    assert status(put_tags(s3, bucket, [("a", "1"), ("b c", "ü")])) in (200, 204)
    assert tags(s3, bucket) == {"a": "1", "b c": "ü"}
    put_tags(s3, bucket, [("n", "")])
    assert tags(s3, bucket) == {"n": ""}
    for _ in range(2):
        assert status(s3.delete_bucket_tagging(Bucket=bucket)) == 204
        with refused("NoSuchTagSet", 404):
            tags(s3, bucket)


@pytest.mark.parametrize("pairs", [
    [(f"k{n}", "v") for n in range(51)], [("a", "1"), ("a", "2")], [("k" * 129, "v")],
    [("k", "v" * 257)], [("aws:k", "v")], [("k!", "v")],
])
def test_tags_that_are_none(s3, bucket, pairs):
    put_tags(s3, bucket, [("kept", "1")])
    with refused(("InvalidTag", "BadRequest", "MalformedXML"), 400):
        put_tags(s3, bucket, pairs)
    assert tags(s3, bucket) == {"kept": "1"}


def test_fifty_tags(s3, bucket):
    put_tags(s3, bucket, [(f"k{n}", "v") for n in range(50)])
    assert len(tags(s3, bucket)) == 50


def test_public_access_block(s3, bucket):
    with refused("NoSuchPublicAccessBlockConfiguration", 404):
        s3.get_public_access_block(Bucket=bucket)
    some = {"BlockPublicAcls": True, "RestrictPublicBuckets": True}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=some)
    found = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert found == {**some, "IgnorePublicAcls": False, "BlockPublicPolicy": False}
    assert status(s3.delete_public_access_block(Bucket=bucket)) == 204
    with refused("NoSuchPublicAccessBlockConfiguration", 404):
        s3.get_public_access_block(Bucket=bucket)


def ownership(s3, bucket):
    rules = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    return [rule["ObjectOwnership"] for rule in rules]


def test_ownership_controls(s3, bucket):
    with refused("OwnershipControlsNotFoundError", 404):
        ownership(s3, bucket)
    for kind in ("BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"):
        controls = {"Rules": [{"ObjectOwnership": kind}]}
        s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=controls)
        assert ownership(s3, bucket) == [kind]
    for rules in ([], [{"ObjectOwnership": "Nobody"}], [{"ObjectOwnership": "ObjectWriter"}] * 2):
        with refused("MalformedXML", 400):
            s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": rules})
    assert ownership(s3, bucket) == ["ObjectWriter"]
    assert status(s3.delete_bucket_ownership_controls(Bucket=bucket)) == 204
    with refused("OwnershipControlsNotFoundError", 404):
        ownership(s3, bucket)


def test_ownership_of_a_new_bucket(s3):
    s3.create_bucket(Bucket="owned", ObjectOwnership="BucketOwnerPreferred")
    assert ownership(s3, "owned") == ["BucketOwnerPreferred"]
    s3.delete_bucket(Bucket="owned")
    s3.create_bucket(Bucket="owned")
    with refused("OwnershipControlsNotFoundError", 404):
        ownership(s3, "owned")
    s3.delete_bucket(Bucket="owned")
    with refused("InvalidArgument", 400):
        s3.create_bucket(Bucket="owned", ObjectOwnership="Nobody")


def test_the_list_that_there_is(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for asked in ({}, {"Key": "k"}):
        of_object = bool(asked)
        get = s3.get_object_acl if of_object else s3.get_bucket_acl
        put = s3.put_object_acl if of_object else s3.put_bucket_acl
        found = get(Bucket=bucket, **asked)
        owner = found["Owner"]
        [grant] = found["Grants"]
        assert grant["Permission"] == "FULL_CONTROL" and grant["Grantee"]["Type"] == "CanonicalUser"
        assert grant["Grantee"]["ID"] == owner["ID"]
        put(Bucket=bucket, ACL="private", **asked)
        put(Bucket=bucket, AccessControlPolicy={"Grants": [grant], "Owner": owner}, **asked)
        assert get(Bucket=bucket, **asked)["Grants"] == [grant]
    with refused("NoSuchKey", 404):
        s3.get_object_acl(Bucket=bucket, Key="missing")


def test_what_is_true_of_every_new_bucket(s3, bucket):
    found = s3.get_bucket_versioning(Bucket=bucket)
    assert "Status" not in found and "MFADelete" not in found
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    with refused("ServerSideEncryptionConfigurationNotFoundError", 404):
        s3.get_bucket_encryption(Bucket=bucket)


@pytest.mark.parametrize("resource", [
    "acl", "cors", "encryption", "ownershipControls", "publicAccessBlock", "requestPayment", "tagging", "versioning",
])
def test_of_a_bucket_that_is_not_there(server, resource):
    reply = wire.request(server, "GET", f"/not-there-at-all?{resource}")
    assert_refused(reply, 404, "NoSuchBucket")


@pytest.mark.parametrize("resource", ["cors", "tagging", "publicAccessBlock", "ownershipControls"])
@pytest.mark.parametrize("document", [b"", b"no document", b"<X/>", b"<Tagging><TagSet><Tag/></TagSet></Tagging>"])
def test_documents_that_are_none(server, bucket, resource, document):
    reply = wire.request(server, "PUT", f"/{bucket}?{resource}", body=document)
    assert_refused(reply, 400, "MalformedXML", "MissingRequestBodyError")
    reply = wire.request(server, "GET", f"/{bucket}?{resource}")
    assert reply.status == 404, reply


def test_a_new_bucket_has_nothing_of_its_namesake(s3):
    s3.create_bucket(Bucket="blank")
    put_tags(s3, "blank", [("a", "1")])
    s3.delete_bucket(Bucket="blank")
    s3.create_bucket(Bucket="blank")
    with refused("NoSuchTagSet", 404):
        tags(s3, "blank")
    s3.delete_bucket(Bucket="blank")


RULE = "<ID>r</ID><Filter/><Status>Enabled</Status>"


def put_document(server, bucket, query, document):
    body = document.encode()
    digest = base64.b64encode(hashlib.md5(body).digest()).decode()
    return wire.request(server, "PUT", f"/{bucket}?{query}", {"content-md5": digest}, body)


def lifecycle(rule):
    return f"<LifecycleConfiguration><Rule>{RULE}{rule}</Rule></LifecycleConfiguration>"


@pytest.mark.parametrize("number", ["1,000", "1e3", "1 day", "3000.9", "1x", "", " 1", "0x10", "--1", "1-1"])
def test_a_number_is_one_to_its_end(server, s3, bucket, number):
    for rule in ("<Expiration><Days>{}</Days></Expiration>",
                 "<NoncurrentVersionExpiration><NoncurrentDays>{}</NoncurrentDays></NoncurrentVersionExpiration>",
                 "<NoncurrentVersionExpiration><NoncurrentDays>9</NoncurrentDays>"
                 "<NewerNoncurrentVersions>{}</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
                 "<AbortIncompleteMultipartUpload><DaysAfterInitiation>{}</DaysAfterInitiation>"
                 "</AbortIncompleteMultipartUpload>"):
        reply = put_document(server, bucket, "lifecycle", lifecycle(rule.format(number)))
        assert_refused(reply, 400, "MalformedXML")
    sized = f"<Filter><ObjectSizeGreaterThan>{number}</ObjectSizeGreaterThan></Filter>"
    rule = lifecycle("<Expiration><Days>9</Days></Expiration>").replace("<Filter/>", sized)
    assert_refused(put_document(server, bucket, "lifecycle", rule), 400, "MalformedXML")
    with refused("NoSuchLifecycleConfiguration", 404):
        s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    cors = ("<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin>"
            f"<MaxAgeSeconds>{number}</MaxAgeSeconds></CORSRule></CORSConfiguration>")
    assert_refused(put_document(server, bucket, "cors", cors), 400, "MalformedXML")
    complete = (f"<CompleteMultipartUpload><Part><PartNumber>{number}</PartNumber><ETag>x</ETag></Part>"
                "</CompleteMultipartUpload>").encode()
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    reply = wire.request(server, "POST", f"/{bucket}/k?uploadId={upload}", body=complete)
    assert_refused(reply, 400, "MalformedXML")
    reply = wire.request(
        server, "POST", f"/{bucket}/k?uploadId={upload}", {"x-amz-mp-object-size": "10485763x"}, complete)
    assert_refused(reply, 400, "InvalidRequest")


def test_the_time_that_objects_are_locked_for_is_a_number(server, s3):
    s3.create_bucket(Bucket="locked-by-numbers", ObjectLockEnabledForBucket=True)
    for days in ("1x", "1,000", "1.5", "ten", ""):
        document = ("<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>"
                    f"<DefaultRetention><Mode>GOVERNANCE</Mode><Days>{days}</Days></DefaultRetention></Rule>"
                    "</ObjectLockConfiguration>")
        reply = put_document(server, "locked-by-numbers", "object-lock", document)
        assert_refused(reply, 400, "MalformedXML")
    s3.delete_bucket(Bucket="locked-by-numbers")


@pytest.mark.parametrize(("query", "document"), [
    ("publicAccessBlock", "<PublicAccessBlockConfiguration><BlockPublicAcl>true</BlockPublicAcl>"
                          "</PublicAccessBlockConfiguration>"),
    ("object-lock", "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rul/>"
                    "</ObjectLockConfiguration>"),
    ("versioning", "<VersioningConfiguration><Statu>Enabled</Statu></VersioningConfiguration>"),
    ("versioning", "<VersioningConfiguration>Enabled</VersioningConfiguration>"),
    ("tagging", "<Tagging><TagSet/><Tagset/></Tagging>"),
    ("cors", "<CORSConfiguration><CORSRules/></CORSConfiguration>"),
    ("ownershipControls", "<OwnershipControls><Rules/></OwnershipControls>"),
    ("encryption", "<ServerSideEncryptionConfiguration><Rules/></ServerSideEncryptionConfiguration>"),
    ("logging", "<BucketLoggingStatus><LoggingEnable/></BucketLoggingStatus>"),
    ("notification", "<NotificationConfiguration><Topic/></NotificationConfiguration>"),
    ("lifecycle", "<LifecycleConfiguration><Rules/></LifecycleConfiguration>"),
    ("acl", "<AccessControlPolicy><Grants/></AccessControlPolicy>"),
    ("tagging", "<Tagging><TagSet><Tag><Key>a</Key><Value>\0</Value></Tag></TagSet></Tagging>"),
])
def test_a_document_holds_nothing_that_is_not_in_its_schema(server, bucket, query, document):
    assert_refused(put_document(server, bucket, query, document), 400, "MalformedXML")


def test_a_misspelt_location_makes_no_bucket(server, s3):
    document = b"<CreateBucketConfiguration><Location_Constraint/></CreateBucketConfiguration>"
    assert_refused(wire.request(server, "PUT", "/misspelt-location", body=document), 400, "MalformedXML")
    with refused(("NoSuchBucket", "404"), 404):
        s3.head_bucket(Bucket="misspelt-location")
