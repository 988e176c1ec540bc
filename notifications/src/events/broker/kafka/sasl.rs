//! Authentication at a Kafka broker: SASL PLAIN, and SCRAM with SHA-256 or SHA-512.
//!
//! Sources: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM). Texts are sent as they are: passwords
//! beyond ASCII must be in the form that `SASLprep` makes.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use martlet_serving::{Failure, nearest};
use ring::{digest, hmac, pbkdf2};

use super::super::super::retry::DeliveryFailure;
use super::super::credentials::Login;

/// Maximum number of iterations that a broker may ask for: Kafka's own maximum.
const ITERATIONS_MAX: u32 = 1 << 14;
/// Minimum number of iterations, by RFC 7677.
const ITERATIONS_MIN: u32 = 4096;

/// Mechanism of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

const MECHANISMS: [(&str, Mechanism); 3] = [
    ("plain", Mechanism::Plain),
    ("scram-sha-256", Mechanism::ScramSha256),
    ("scram-sha-512", Mechanism::ScramSha512),
];

impl Mechanism {
    /// Returns the mechanism with this name in settings.
    pub(super) fn of(name: &str) -> Result<Self, Failure> {
        if let Some((_, mechanism)) = MECHANISMS.iter().find(|(it, _)| *it == name) {
            return Ok(*mechanism);
        }
        let names = MECHANISMS.map(|(name, _)| name);
        let meant = nearest(name, names);
        let hint = meant.map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default();
        Err(Failure::usage(format!(
            "kafka_sasl must be {}, not \"{name}\"{hint}",
            names.join(" or ")
        )))
    }

    /// Returns the name in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }

    fn scram(self) -> Option<ScramHash> {
        match self {
            Self::Plain => None,
            Self::ScramSha256 => Some(ScramHash {
                derivation: pbkdf2::PBKDF2_HMAC_SHA256,
                hmac: hmac::HMAC_SHA256,
                digest: &digest::SHA256,
            }),
            Self::ScramSha512 => Some(ScramHash {
                derivation: pbkdf2::PBKDF2_HMAC_SHA512,
                hmac: hmac::HMAC_SHA512,
                digest: &digest::SHA512,
            }),
        }
    }
}

struct ScramHash {
    derivation: pbkdf2::Algorithm,
    hmac: hmac::Algorithm,
    digest: &'static digest::Algorithm,
}

impl ScramHash {
    fn mac(&self, key: &[u8], text: &str) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac, key), text.as_bytes()).as_ref().to_vec()
    }
}

/// Returns the only message of PLAIN.
pub(super) fn plain(login: &Login) -> Vec<u8> {
    let user = login.user.as_deref().unwrap_or_default();
    format!("\0{user}\0{}", login.secret.as_deref().unwrap_or_default()).into_bytes()
}

/// Exchange of SCRAM that this client has begun.
pub(super) struct Scram {
    hash: ScramHash,
    password: String,
    nonce: String,
    /// First message, without the header for channel binding.
    first: String,
}

/// Last message of this client, and the broker's proof that it knows the password.
pub(super) struct ScramProof {
    pub(super) message: String,
    expected: String,
}

impl Scram {
    /// Begins an exchange. `None` if the mechanism is PLAIN.
    pub(super) fn begin(mechanism: Mechanism, login: &Login, nonce: &str) -> Option<Self> {
        let hash = mechanism.scram()?;
        let user = login.user.as_deref().unwrap_or_default();
        let first = format!("n={},r={nonce}", user.replace('=', "=3D").replace(',', "=2C"));
        let password = login.secret.clone().unwrap_or_default();
        Some(Self { hash, password, nonce: nonce.to_owned(), first })
    }

    /// Returns the first message.
    pub(super) fn first_message(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// Answers the broker's first message. This takes milliseconds of a core.
    pub(super) fn prove(&self, challenge: &[u8]) -> Result<ScramProof, DeliveryFailure> {
        let malformed = || DeliveryFailure::away("the broker sent a malformed challenge");
        let challenge = std::str::from_utf8(challenge).map_err(|_| malformed())?;
        let field = |name: &str| challenge.split(',').find_map(|it| it.strip_prefix(name));
        let nonce = field("r=").filter(|it| it.starts_with(&self.nonce)).ok_or_else(malformed)?;
        let salt = field("s=").and_then(|it| STANDARD.decode(it).ok()).ok_or_else(malformed)?;
        let iterations = field("i=").and_then(|it| it.parse().ok()).ok_or_else(malformed)?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(DeliveryFailure::away(format!(
                "the broker asks for {iterations} iterations of SCRAM, {ITERATIONS_MIN} to \
                 {ITERATIONS_MAX} are accepted"
            )));
        }
        let iterations = NonZeroU32::new(iterations).ok_or_else(malformed)?;
        let hash = &self.hash;
        let mut salted = vec![0; hash.digest.output_len()];
        let password = self.password.as_bytes();
        pbkdf2::derive(hash.derivation, iterations, &salt, password, &mut salted);
        let client_key = hash.mac(&salted, "Client Key");
        let stored_key = digest::digest(hash.digest, &client_key);
        let last = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{last}", self.first);
        let signature = hash.mac(stored_key.as_ref(), &signed);
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server_key = hash.mac(&salted, "Server Key");
        let expected = format!("v={}", STANDARD.encode(hash.mac(&server_key, &signed)));
        Ok(ScramProof { message: format!("{last},p={}", STANDARD.encode(proof)), expected })
    }
}

impl ScramProof {
    /// Checks the broker's last message.
    pub(super) fn check(&self, reply: &[u8]) -> Result<(), DeliveryFailure> {
        let proof = reply.split(|byte| *byte == b',').next().unwrap_or_default();
        if proof != self.expected.as_bytes() {
            return Err(DeliveryFailure::away("the broker does not know the password"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Login {
        Login { user: Some("user".to_owned()), secret: Some("pencil".to_owned()) }
    }

    /// Example of RFC 7677, section 3.
    #[test]
    fn scram_follows_its_standard() {
        let nonce = "rOprNGfwEbeRWgbNEkqO";
        let scram = Scram::begin(Mechanism::ScramSha256, &login(), nonce).unwrap();
        assert_eq!(scram.first_message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proof = scram.prove(challenge.as_bytes()).unwrap();
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        proof.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
        let failure = proof.check(b"v=AAAA").unwrap_err();
        assert!(failure.reason().contains("does not know the password"));
    }

    #[test]
    fn hostile_challenges_are_refused() {
        let scram = Scram::begin(Mechanism::ScramSha512, &login(), "abc").unwrap();
        let refusal = |text: &str| match scram.prove(text.as_bytes()) {
            Ok(_) => panic!("{text} was answered"),
            Err(failure) => failure.reason().to_owned(),
        };
        for text in ["", "r=xyz,s=AAAA,i=4096", "r=abcd,s=%,i=4096", "r=abcd,s=AAAA,i=x"] {
            assert!(refusal(text).contains("malformed"), "{text}");
        }
        for count in ["0", "1", "4095", "16385", "4000000000"] {
            let text = refusal(&format!("r=abcd,s=AAAA,i={count}"));
            assert!(text.contains(&format!("asks for {count} iterations")), "{text}");
        }
    }

    #[test]
    fn mechanisms_have_names() {
        for (name, mechanism) in MECHANISMS {
            assert_eq!(Mechanism::of(name).unwrap(), mechanism);
            assert_eq!(mechanism.name(), name.to_ascii_uppercase());
        }
        let text = Mechanism::of("scram-sha256").unwrap_err().to_string();
        assert!(text.contains("did you mean scram-sha-256?"), "{text}");
        assert_eq!(plain(&login()), b"\0user\0pencil");
        let odd = Login { user: Some("a=b,c".to_owned()), secret: None };
        let scram = Scram::begin(Mechanism::ScramSha256, &odd, "x").unwrap();
        assert_eq!(scram.first_message(), "n,,n=a=3Db=2Cc,r=x");
    }
}
