//! Senders of requests to admin addresses, and what each can do about a certificate that it doesn't trust.

use rustls::{CertificateError, Error as TlsError};

use super::address::AdminAddress;

/// Sender of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    /// A command, with flags for the address and the authority.
    Command,
    /// A process that reads another one at the address that this reports, by the authorities of its system.
    Process,
}

impl Requester {
    /// Name of the authorities in errors about them, with how to set them.
    pub(super) fn authorities(self) -> &'static str {
        match self {
            Self::Command => "file of --admin-ca",
            Self::Process => "SSL_CERT_FILE in the environment of this process",
        }
    }

    /// Returns a sentence for a failed handshake that a setting can mend, with its remedy; none for other failures.
    pub(super) fn distrust(self, address: &AdminAddress, error: &std::io::Error) -> Option<String> {
        let tls = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>())?;
        Some(match tls {
            TlsError::InvalidMessage(_) => {
                let remedy = self.clear_remedy(address);
                format!("{address} answers in clear, without TLS: {remedy}")
            }
            TlsError::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => {
                let remedy = self.issuer_remedy();
                format!("no trusted authority has signed the certificate of {address}: {remedy}")
            }
            TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => {
                let (host, remedy) = (address.host(), self.name_remedy());
                format!("the certificate of {address} is not for the name {host}: {remedy}")
            }
            _ => return None,
        })
    }

    fn clear_remedy(self, address: &AdminAddress) -> String {
        let there = "set admin_tls_certificate and admin_tls_key there";
        match self {
            Self::Command => format!("{there}, or write http://{address}"),
            Self::Process => there.to_owned(),
        }
    }

    fn issuer_remedy(self) -> &'static str {
        match self {
            Self::Command => "name the authority's file with --admin-ca",
            Self::Process => {
                "let the machine of the process that reads it trust the authority, by update-ca-certificates or \
                 SSL_CERT_FILE in the environment of that process"
            }
        }
    }

    fn name_remedy(self) -> &'static str {
        match self {
            Self::Command => "use one of its names in --admin-address",
            Self::Process => "give it a certificate for the address that it reports",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn errors_of_processes_name_no_flags() {
        let address: AdminAddress = "https://n2.example.com:9001".parse().unwrap();
        let failures = [
            TlsError::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
            TlsError::InvalidCertificate(CertificateError::UnknownIssuer),
            TlsError::InvalidCertificate(CertificateError::NotValidForName),
        ];
        let remedies = ["admin_tls_certificate", "SSL_CERT_FILE", "a certificate for the address"];
        for (failure, remedy) in failures.into_iter().zip(remedies) {
            let error = Error::other(failure);
            let sentence = Requester::Process.distrust(&address, &error).unwrap();
            assert!(sentence.contains(remedy) && sentence.contains("n2.example.com"), "{sentence}");
            assert!(!sentence.contains("--") && !sentence.contains("http://"), "{sentence}");
            let of_command = Requester::Command.distrust(&address, &error).unwrap();
            assert!(of_command.contains("--") || of_command.contains("http://"), "{of_command}");
        }
        assert!(!Requester::Process.authorities().contains("--"));
        let other = Error::other(TlsError::HandshakeNotComplete);
        assert_eq!(Requester::Process.distrust(&address, &other), None);
        assert_eq!(Requester::Command.distrust(&address, &Error::other("x")), None);
    }
}
