//! Default encryption of a bucket, `GetBucketEncryption`, `PutBucketEncryption` and
//! `DeleteBucketEncryption`; and the encryption keys of all other operations.

use http::StatusCode;
use martlet_protocol::Setting;
use martlet_proxy::{Error, Session};
use s3s::S3Result;
use s3s::dto::{ServerSideEncryptionConfiguration, ServerSideEncryptionRule};

use super::operations::Operations;
use super::settings::missing;
use crate::encryption::{AES256, KeyUse, no_kms};
use crate::errors::s3_error;
use crate::messages;
use crate::operation::Operation;
use crate::reply::Reply;
use crate::request::OperationRequest;

/// Passes the keys in a request's headers to its session.
pub(crate) fn unlock(request: &OperationRequest, session: &Session) -> S3Result<()> {
    let Some(said) = &request.encryption else { return Ok(()) };
    let used = match request.operation() {
        Operation::PutObject
        | Operation::PostObject
        | Operation::CopyObject
        | Operation::CreateMultipartUpload
        | Operation::UploadPart
        | Operation::UploadPartCopy => KeyUse::Make,
        Operation::GetObject
        | Operation::HeadObject
        | Operation::LocateObject
        | Operation::GetObjectAttributes => KeyUse::Read,
        Operation::CompleteMultipartUpload => KeyUse::Complete,
        _ => KeyUse::Nothing,
    };
    session.set_keys(said.keys(used)?);
    Ok(())
}

/// Refuses all but the supported configuration: one rule, AES256 with a key of the server.
pub(super) fn check(configuration: &ServerSideEncryptionConfiguration) -> S3Result<()> {
    let [ServerSideEncryptionRule { apply_server_side_encryption_by_default: Some(rule), .. }] =
        &configuration.rules[..]
    else {
        return Err(messages::MALFORMED_XML.error());
    };
    match rule.sse_algorithm.as_str() {
        AES256 if rule.kms_master_key_id.is_none() => Ok(()),
        AES256 => Err(messages::KMS_KEY_OF_BUCKET.error()),
        "aws:kms" | "aws:kms:dsse" => Err(no_kms()),
        _ => Err(messages::MALFORMED_XML.error()),
    }
}

impl Operations {
    pub(super) async fn get_bucket_encryption(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let configuration: Option<ServerSideEncryptionConfiguration> =
            self.setting(request.bucket(), Setting::Encryption).await?;
        let configuration = configuration.ok_or_else(|| {
            missing(
                "ServerSideEncryptionConfigurationNotFoundError",
                "The server side encryption configuration was not found",
            )
        })?;
        Reply::xml(&configuration)
    }

    pub(super) async fn put_bucket_encryption(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let configuration: ServerSideEncryptionConfiguration = request.parse_document()?;
        request.refuse_conditions()?;
        check(&configuration)?;
        if !self.store.can_encrypt() {
            return Err(s3_error(Error::NoMasterKey));
        }
        self.set(request.bucket(), Setting::Encryption, &configuration).await?;
        Ok(Reply::empty(StatusCode::OK))
    }

    pub(super) async fn delete_bucket_encryption(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.unset(request.bucket(), Setting::Encryption).await?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

#[cfg(test)]
mod tests {
    use s3s::dto::{ServerSideEncryption, ServerSideEncryptionByDefault};

    use super::*;

    fn outcome(algorithms: &[&str], kms_key: Option<&str>) -> Result<(), String> {
        let rule = |algorithm: &&str| ServerSideEncryptionRule {
            apply_server_side_encryption_by_default: Some(ServerSideEncryptionByDefault {
                kms_master_key_id: kms_key.map(str::to_owned),
                sse_algorithm: ServerSideEncryption::from((*algorithm).to_owned()),
            }),
            ..Default::default()
        };
        let rules = algorithms.iter().map(rule).collect();
        let configuration = ServerSideEncryptionConfiguration { rules };
        check(&configuration).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn the_one_default_is_by_a_key_of_the_servers() {
        assert_eq!(outcome(&["AES256"], None), Ok(()));
        assert_eq!(outcome(&["AES256"], Some("k")), Err("InvalidArgument".into()));
        assert_eq!(outcome(&["aws:kms"], Some("k")), Err("NotImplemented".into()));
        for wrong in [&[][..], &["AES256", "AES256"], &["aes"]] {
            assert_eq!(outcome(wrong, None), Err("MalformedXML".into()), "{wrong:?}");
        }
        let bare =
            ServerSideEncryptionConfiguration { rules: vec![ServerSideEncryptionRule::default()] };
        assert_eq!(check(&bare).unwrap_err().code().as_str(), "MalformedXML");
    }
}
