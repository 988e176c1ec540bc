//! Targets of notification rules.

/// Name of the target at the end of an ARN. None if the text is no ARN.
pub(crate) fn target_of(arn: &str) -> Option<&str> {
    let mut fields = arn.splitn(6, ':');
    let is_arn = fields.next() == Some("arn");
    let resource = fields.nth(4).filter(|_| is_arn)?;
    let name = resource.strip_prefix("function:").unwrap_or(resource);
    (!name.is_empty()).then_some(name)
}
