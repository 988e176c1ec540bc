//! Login by an access key of S3: one signed request to the token service, which names the key's
//! principal. Any policy allows that request.

use axum::http::{Extensions, StatusCode};
use axum::response::Response;
use martlet_serving::operator::refuse;

use crate::Console;
use crate::login::WRONG;
use crate::objects::NOT_OPEN;
use crate::sign::{AccessKey, SignedService};
use crate::store_form::element;

const FORM: &str = "Action=GetCallerIdentity&Version=2011-06-15";
/// Codes of the token service for an unknown key, a disabled key, and a wrong secret.
const WRONG_CODES: [&str; 3] =
    ["InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch"];

impl Console {
    /// Returns the access key, if its secret is right.
    pub(crate) async fn access_key(
        &self,
        id: &str,
        secret: &str,
        connection: &Extensions,
    ) -> Result<AccessKey, Box<Response>> {
        let wrong = || Box::new(refuse(StatusCode::UNAUTHORIZED, WRONG));
        let Some(s3) = self.s3.get() else {
            return Err(Box::new(refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_OPEN)));
        };
        let key = AccessKey::new(id.to_owned(), secret.to_owned());
        let signer = Some((&key, SignedService::Sts));
        let reply = self.send_form(s3, FORM.to_owned(), signer, connection).await;
        let reply = reply.ok_or_else(wrong)?;
        let part = |name: &str| element(&reply.text, name);
        if reply.status.is_success() {
            return Ok(key.named(&part("Arn").unwrap_or_default()));
        }
        match part("Code") {
            Some(code) if !WRONG_CODES.contains(&code.as_str()) => {
                Err(Box::new(refuse(reply.status, &part("Message").unwrap_or(code))))
            }
            _ => Err(wrong()),
        }
    }
}
