//! Both ends of an import: buckets, endpoints, regions, and the places of credentials.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use martlet_importer::{Addressing, CredentialSource, Credentials, ProfileFiles, S3Location};
use martlet_serving::Failure;

const REGION: &str = "us-east-1";
const TARGET: &str = "http://127.0.0.1:9000";

/// Bucket and a prefix of its keys: `BUCKET`, `s3://BUCKET` or `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketName {
    pub(super) bucket: String,
    pub(super) prefix: String,
}

impl FromStr for BucketName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("s3://").unwrap_or(text);
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let is_valid = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '.' | '_');
        if bucket.is_empty() || !bucket.chars().all(is_valid) {
            return Err(format!("\"{text}\" must have the form s3://BUCKET or s3://BUCKET/PREFIX"));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

/// Flags of the source.
#[derive(Args, Debug)]
#[expect(clippy::struct_field_names, reason = "the fields are flags, named after their end")]
pub(super) struct SourceArgs {
    /// URL of the source's endpoint [default: that of the profile, `AWS_ENDPOINT_URL`, or AWS's]
    #[arg(long, value_name = "URL")]
    source_endpoint: Option<String>,
    /// Region of the source [default: that of the profile, `AWS_REGION`, or us-east-1]
    #[arg(long, value_name = "REGION")]
    source_region: Option<String>,
    /// Profile of awscli with the source's credentials
    #[arg(long, value_name = "NAME", group = "source_key")]
    source_profile: Option<String>,
    /// File with the lines `AWS_ACCESS_KEY_ID=…` and `AWS_SECRET_ACCESS_KEY=…`
    #[arg(long, value_name = "FILE", group = "source_key")]
    source_key_file: Option<PathBuf>,
    /// Read a public bucket without credentials
    #[arg(long, group = "source_key")]
    source_unsigned: bool,
    /// Certificates of the authority that signed the source's certificate (PEM) [default: the
    /// authorities that this system trusts]
    #[arg(long, value_name = "FILE")]
    source_ca: Option<PathBuf>,
    /// Place of the bucket's name in the source's URLs
    #[arg(long, value_enum, default_value = "auto")]
    source_addressing: AddressingChoice,
    /// Meaning of the source's ETags
    #[arg(long, value_enum, default_value = "md5")]
    source_etags: ETagChoice,
}

/// Flags of the target.
#[derive(Args, Debug)]
#[expect(clippy::struct_field_names, reason = "the fields are flags, named after their end")]
pub(super) struct TargetArgs {
    /// URL of Martlet's S3 endpoint [default: that of the profile, or `http://127.0.0.1:9000`]
    #[arg(long, value_name = "URL")]
    target_endpoint: Option<String>,
    /// Profile of awscli with the target's credentials
    #[arg(long, value_name = "NAME", group = "target_key")]
    target_profile: Option<String>,
    /// File with the target's key, as `martlet admin key create --key-file` writes it
    #[arg(long, value_name = "FILE", group = "target_key")]
    target_key_file: Option<PathBuf>,
    /// Certificates of the authority that signed the target's certificate (PEM) [default: the
    /// authorities that this system trusts]
    #[arg(long, value_name = "FILE")]
    target_ca: Option<PathBuf>,
}

/// Values of `--source-addressing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AddressingChoice {
    /// In the host for AWS, in the path for other stores
    Auto,
    /// `https://host/bucket/key`
    Path,
    /// `https://bucket.host/key`
    Virtual,
}

/// Values of `--source-etags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ETagChoice {
    /// MD5s, which copies are compared with
    Md5,
    /// Not MD5s, even where they look like MD5s
    Opaque,
}

impl SourceArgs {
    /// Returns true if no ETag of the source is an MD5.
    pub(super) fn has_opaque_etags(&self) -> bool {
        self.source_etags == ETagChoice::Opaque
    }

    /// Returns the source's place.
    pub(super) fn location(&self, bucket: &str) -> Result<S3Location, Failure> {
        let credentials = self.credentials()?;
        let region = self.source_region.clone();
        let region = region.map_or_else(|| setting(&credentials, "region"), |it| Ok(Some(it)))?;
        let region = region.or_else(|| variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let endpoint = self.source_endpoint.clone();
        let endpoint =
            endpoint.map_or_else(|| setting(&credentials, "endpoint_url"), |it| Ok(Some(it)))?;
        let endpoint = endpoint.or_else(|| variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        Ok(S3Location {
            endpoint: endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
            bucket: bucket.to_owned(),
            region,
            addressing: match self.source_addressing {
                AddressingChoice::Auto => Addressing::Auto,
                AddressingChoice::Path => Addressing::Path,
                AddressingChoice::Virtual => Addressing::Virtual,
            },
            ca_file: self.source_ca.clone(),
            credentials,
        })
    }

    fn credentials(&self) -> Result<CredentialSource, Failure> {
        if self.source_unsigned {
            return Ok(CredentialSource::Unsigned);
        }
        if let Some(file) = &self.source_key_file {
            return Ok(CredentialSource::KeyFile(file.clone()));
        }
        if let Some(name) = &self.source_profile {
            return profile(name).map(CredentialSource::Profile);
        }
        if let Some(given) = given("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") {
            return Ok(CredentialSource::Given(given));
        }
        let name = variable(&["AWS_PROFILE"]).unwrap_or_else(|| "default".to_owned());
        let files = profile(&name)?;
        if files.credentials_file.exists() || files.config_file.exists() {
            return Ok(CredentialSource::Profile(files));
        }
        Err(Failure::usage(
            "no credentials of the source are given: name --source-profile or --source-key-file, \
             set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add --source-unsigned for a \
             public bucket",
        ))
    }
}

impl TargetArgs {
    /// Returns the target's place.
    pub(super) fn location(&self, bucket: &str) -> Result<S3Location, Failure> {
        let credentials = self.credentials()?;
        let endpoint = self.target_endpoint.clone();
        let endpoint =
            endpoint.map_or_else(|| setting(&credentials, "endpoint_url"), |it| Ok(Some(it)))?;
        Ok(S3Location {
            endpoint: endpoint.unwrap_or_else(|| TARGET.to_owned()),
            bucket: bucket.to_owned(),
            region: REGION.to_owned(),
            addressing: Addressing::Path,
            ca_file: self.target_ca.clone(),
            credentials,
        })
    }

    fn credentials(&self) -> Result<CredentialSource, Failure> {
        if let Some(file) = &self.target_key_file {
            return Ok(CredentialSource::KeyFile(file.clone()));
        }
        if let Some(name) = &self.target_profile {
            return profile(name).map(CredentialSource::Profile);
        }
        let given = given("MARTLET_TARGET_ACCESS_KEY", "MARTLET_TARGET_SECRET_KEY");
        given.map(CredentialSource::Given).ok_or_else(|| {
            Failure::usage(
                "no credentials of the target are given: name --target-key-file or \
                 --target-profile, or set MARTLET_TARGET_ACCESS_KEY and MARTLET_TARGET_SECRET_KEY",
            )
        })
    }
}

/// Returns a setting of a profile; `None` without a profile.
fn setting(credentials: &CredentialSource, name: &str) -> Result<Option<String>, Failure> {
    match credentials {
        CredentialSource::Profile(files) => Ok(files.setting(name)?),
        _ => Ok(None),
    }
}

/// Returns the credentials in two variables of the environment.
fn given(access: &str, secret: &str) -> Option<Credentials> {
    Some(Credentials {
        access_key_id: variable(&[access])?,
        secret_access_key: variable(&[secret])?,
        session_token: if access.starts_with("AWS_") {
            variable(&["AWS_SESSION_TOKEN"])
        } else {
            None
        },
    })
}

/// Returns the files of a profile, where awscli has them.
fn profile(name: &str) -> Result<ProfileFiles, Failure> {
    let file = |variable_name: &str, name: &str| {
        let home = || variable(&["HOME"]).map(|home| PathBuf::from(home).join(".aws").join(name));
        variable(&[variable_name]).map(PathBuf::from).or_else(home)
    };
    let credentials_file = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let config_file = file("AWS_CONFIG_FILE", "config");
    let (Some(credentials_file), Some(config_file)) = (credentials_file, config_file) else {
        return Err(Failure::usage(
            "there is no HOME with a folder .aws: set AWS_SHARED_CREDENTIALS_FILE and \
             AWS_CONFIG_FILE",
        ));
    };
    Ok(ProfileFiles { name: name.to_owned(), credentials_file, config_file })
}

/// Returns the first of these variables that has a value.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_named_with_or_without_a_scheme() {
        let parse = |text: &str| text.parse::<BucketName>();
        let name = |bucket: &str, prefix: &str| BucketName {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        };
        assert_eq!(parse("box"), Ok(name("box", "")));
        assert_eq!(parse("s3://box/"), Ok(name("box", "")));
        assert_eq!(parse("s3://box/a b/c"), Ok(name("box", "a b/c")));
        for text in ["", "s3://", "/key", "http://host/box"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
