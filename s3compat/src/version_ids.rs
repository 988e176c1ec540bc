//! Version ids in requests.

use martlet_protocol::VersionId;
use martlet_proxy::ObjectName;
use s3s::S3Result;

use crate::messages;

/// Parses the version id in a request, if any.
pub(crate) fn version(text: Option<&str>) -> S3Result<Option<VersionId>> {
    version_in("versionId", text)
}

/// Parses the version id in the argument `name`, if any.
pub(crate) fn version_in(name: &'static str, text: Option<&str>) -> S3Result<Option<VersionId>> {
    let Some(text) = text else { return Ok(None) };
    if text.is_empty() {
        return Err(messages::VERSION_ID_EMPTY.argument(name, text).into());
    }
    let parsed = text.parse();
    parsed.map(Some).map_err(|_| messages::VERSION_ID.argument(name, text).into())
}

/// Object with a key and, if given, a version id.
pub(crate) fn named<'a>(key: &'a str, version_id: Option<&str>) -> S3Result<ObjectName<'a>> {
    Ok(ObjectName { key, version: version(version_id)? })
}
