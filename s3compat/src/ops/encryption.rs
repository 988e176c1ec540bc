//! Default encryption of a bucket, `GetBucketEncryption`, `PutBucketEncryption` and
//! `DeleteBucketEncryption`; and the encryption keys of all other operations.

use http::{Extensions, StatusCode};
use martlet_protocol::Setting;
use martlet_proxy::{Error, Session};
use s3s::dto::{
    DeleteBucketEncryptionInput, DeleteBucketEncryptionOutput, GetBucketEncryptionInput,
    GetBucketEncryptionOutput, PutBucketEncryptionInput, PutBucketEncryptionOutput,
    ServerSideEncryptionConfiguration, ServerSideEncryptionRule,
};
use s3s::{S3Request, S3Response, S3Result};

use super::settings::missing;
use super::{Operations, ReplyStatus, parsed_headers};
use crate::encryption::{AES256, Encryption, KeyUse, no_kms};
use crate::errors::s3_error;
use crate::http::Operation;
use crate::messages;

/// Passes the keys in a request's headers to its session.
pub(super) fn unlock(request: &Extensions, session: &Session) -> S3Result<()> {
    let Some(said) = request.get::<Encryption>() else { return Ok(()) };
    let used = match request.get() {
        Some(
            Operation::PutObject
            | Operation::PostObject
            | Operation::CopyObject
            | Operation::CreateMultipartUpload
            | Operation::UploadPart
            | Operation::UploadPartCopy,
        ) => KeyUse::Make,
        Some(Operation::GetObject | Operation::HeadObject | Operation::GetObjectAttributes) => {
            KeyUse::Read
        }
        Some(Operation::CompleteMultipartUpload) => KeyUse::Complete,
        _ => KeyUse::Nothing,
    };
    session.set_keys(said.keys(used)?);
    Ok(())
}

/// Refuses all but the supported configuration: one rule, AES256 with a key of the server.
fn check(configuration: &ServerSideEncryptionConfiguration) -> S3Result<()> {
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
        request: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
        let configuration: Option<ServerSideEncryptionConfiguration> =
            self.setting(&request.input.bucket, Setting::Encryption).await?;
        if configuration.is_none() {
            return Err(missing(
                "ServerSideEncryptionConfigurationNotFoundError",
                "The server side encryption configuration was not found",
            ));
        }
        Ok(S3Response::new(GetBucketEncryptionOutput {
            server_side_encryption_configuration: configuration,
        }))
    }

    pub(super) async fn put_bucket_encryption(
        &self,
        mut request: S3Request<PutBucketEncryptionInput>,
    ) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        let input = request.input;
        let configuration = input.server_side_encryption_configuration;
        check(&configuration)?;
        if !self.store.can_encrypt() {
            return Err(s3_error(Error::NoMasterKey));
        }
        self.set(&input.bucket, Setting::Encryption, &configuration).await?;
        Ok(S3Response::new(PutBucketEncryptionOutput {}))
    }

    pub(super) async fn delete_bucket_encryption(
        &self,
        mut request: S3Request<DeleteBucketEncryptionInput>,
    ) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        self.unset(&request.input.bucket, Setting::Encryption).await?;
        let mut response = S3Response::new(DeleteBucketEncryptionOutput {});
        response.extensions.insert(ReplyStatus(StatusCode::NO_CONTENT));
        Ok(response)
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
