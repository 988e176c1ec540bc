//! Valid tokens, and forged ones.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::*;

/// 2026-01-01T00:00:00Z.
const NOW_S: u64 = 1_767_225_600;
const ISSUER: &str = "https://idp.example";

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A provider with a key of its own.
struct Provider {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Provider {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self { key: key.unwrap(), random }
    }

    fn jwk(&self, kid: &str) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let mark = self.key.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(mark))
    }
}

#[test]
fn the_header_chooses_a_key_of_the_closed_list() {
    let provider = Provider::new();
    let named = |header: &Value| named_key(&provider.sign(header, &claims()));
    let expected = TokenKey { kid: Some("e".into()), algorithm: Algorithm::Es256 };
    assert_eq!(named(&header()), Some(expected));
    for alg in ["none", "HS256", "PS256"] {
        assert_eq!(named(&with(header(), "alg", json!(alg))), None, "{alg}");
    }
    for text in ["", ".", "a.b.c", &"a".repeat(TOKEN_BYTES_MAX + 1)] {
        assert_eq!(named_key(text), None);
    }
}

fn keys(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "e", "typ": "JWT"})
}

fn claims() -> Value {
    json!({"iss": ISSUER, "sub": "job:1", "aud": ["other", "app"], "iat": NOW_S, "exp": NOW_S + 600})
}

/// Returns the document with another value of one member, or without it.
fn with(mut document: Value, name: &str, value: Value) -> Value {
    let members = document.as_object_mut().unwrap();
    if value.is_null() {
        members.remove(name)
    } else {
        members.insert(name.to_owned(), value)
    };
    document
}

fn check(token: &str, keys: &KeySet, after_s: u64) -> Result<Claims, StsCode> {
    let audiences = &["app".to_owned(), "web".to_owned()];
    let expected =
        TokenRequirements { issuer: ISSUER, audiences, now_ms: (NOW_S + after_s) * 1000 };
    verify(token, keys, expected).map_err(|error| error.code)
}

#[test]
fn a_token_of_the_provider_is_believed() {
    let provider = Provider::new();
    let keys = keys(&[Provider::new().jwk("other"), provider.jwk("e")]);
    let token = provider.sign(&header(), &claims());
    let told = check(&token, &keys, 0).unwrap();
    let audiences: Vec<String> = vec!["other".into(), "app".into()];
    assert_eq!((told.subject.as_str(), &told.audiences), ("job:1", &audiences));
    assert_eq!(claimed_issuer(&token).as_deref(), Some(ISSUER));
    assert_eq!(told.all["aud"], json!(["other", "app"]));
    let alone = provider.sign(&header(), &with(claims(), "aud", json!("web")));
    assert!(check(&alone, &keys, 0).is_ok());
}

#[test]
fn a_token_is_believed_in_its_time_and_a_minute_around_it() {
    let provider = Provider::new();
    let keys = keys(&[provider.jwk("e")]);
    let token = provider.sign(&header(), &claims());
    assert!(check(&token, &keys, 600 + 59).is_ok());
    assert_eq!(check(&token, &keys, 600 + 60), Err(StsCode::ExpiredTokenException));
    for name in ["nbf", "iat"] {
        let later = |s: u64| provider.sign(&header(), &with(claims(), name, json!(NOW_S + s)));
        assert!(check(&later(60), &keys, 0).is_ok(), "{name}");
        assert_eq!(check(&later(61), &keys, 0), Err(StsCode::IdpRejectedClaim), "{name}");
    }
}

#[test]
fn a_token_that_claims_something_else_is_refused() {
    let provider = Provider::new();
    let keys = keys(&[provider.jwk("e")]);
    for (name, value) in [
        ("iss", json!("https://idp.example/")),
        ("iss", Value::Null),
        ("aud", json!("application")),
        ("aud", json!([])),
        ("aud", Value::Null),
        ("exp", Value::Null),
        ("exp", json!("9999999999")),
        ("iat", Value::Null),
        ("sub", Value::Null),
        ("sub", json!(["job:1"])),
    ] {
        let token = provider.sign(&header(), &with(claims(), name, value.clone()));
        assert_eq!(check(&token, &keys, 0), Err(StsCode::InvalidIdentityToken), "{name} {value}");
    }
    let nobody = provider.sign(&header(), &with(claims(), "sub", json!("")));
    assert_eq!(check(&nobody, &keys, 0), Err(StsCode::IdpRejectedClaim));
}

#[test]
fn tokens_of_other_signers_are_refused() {
    let (provider, stranger) = (Provider::new(), Provider::new());
    let known = keys(&[provider.jwk("e")]);
    let refused = |token: &str| {
        assert_eq!(check(token, &known, 0), Err(StsCode::InvalidIdentityToken), "{token}");
    };
    refused(&stranger.sign(&header(), &claims()));
    // A key within the token is ignored.
    refused(&stranger.sign(&with(header(), "jwk", stranger.jwk("e")), &claims()));
    refused(&provider.sign(&with(header(), "kid", json!("other")), &claims()));
    refused(&provider.sign(&with(header(), "crit", json!(["b64"])), &claims()));
    for alg in ["none", "None", "HS256", "HS512", "RS256", "PS256", "EdDSA", "es256", ""] {
        refused(&provider.sign(&with(header(), "alg", json!(alg)), &claims()));
    }
    let token = provider.sign(&header(), &claims());
    let (signed, mark) = token.rsplit_once('.').unwrap();
    let bare =
        format!("{}.{}", encode(json!({"alg": "none"}).to_string()), encode(claims().to_string()));
    for made_up in [
        format!("{bare}."),
        bare,
        format!("{signed}."),
        signed.to_owned(),
        token[..token.len() - 4].to_owned(),
        format!("{signed}.{}", encode([0; 64])),
        format!("{token}.{mark}"),
        format!(".{token}"),
        format!("{token}="),
        String::new(),
        "..".into(),
        "a".repeat(TOKEN_BYTES_MAX + 1),
    ] {
        refused(&made_up);
    }
    let other = encode(with(claims(), "sub", json!("root")).to_string());
    let parts: Vec<&str> = token.split('.').collect();
    refused(&format!("{}.{other}.{mark}", parts[0]));
}

#[test]
fn a_public_key_is_no_shared_secret() {
    let provider = Provider::new();
    let known = keys(&[
        provider.jwk("e"),
        json!({"kty": "oct", "kid": "o", "alg": "HS256", "k": encode("secret")}),
    ]);
    for (kid, secret) in
        [("e", provider.key.public_key().as_ref().to_vec()), ("o", b"secret".to_vec())]
    {
        let header = json!({"alg": "HS256", "kid": kid});
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims().to_string()));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
        let token = format!("{signed}.{}", encode(ring::hmac::sign(&key, signed.as_bytes())));
        assert_eq!(check(&token, &known, 0), Err(StsCode::InvalidIdentityToken));
    }
}

#[test]
fn edwards_curves_are_understood() {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    let x = encode(key.public_key());
    let known = keys(&[json!({"kty": "OKP", "crv": "Ed25519", "x": x})]);
    let header = encode(json!({"alg": "EdDSA"}).to_string());
    let signed = format!("{header}.{}", encode(claims().to_string()));
    let token = format!("{signed}.{}", encode(key.sign(signed.as_bytes())));
    assert!(check(&token, &known, 0).is_ok());
    assert_eq!(
        check(&token.replace(&header, &encode("{}")), &known, 0),
        Err(StsCode::InvalidIdentityToken)
    );
}

/// A token that was signed elsewhere, and the key that signed it.
const SIGNED: &str = "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogInIifQ.eyJpc3MiOiAiaHR0cHM6Ly9pZHAuZXhhbXBsZSIsICJzdWIiOiA\
    iam9iOjEiLCAiYXVkIjogImFwcCIsICJpYXQiOiAxNzY3MjI1NjAwLCAiZXhwIjogMTc2NzIyOTIwMH0";
const MARK: &str = "h6cQeW7B7TEsnKHkbO_yap8zz5UjJITyFBQ5CfSZ8Ot8hTSiDPE6KA4c2V_oASGkVxk_19neiXSRldhmbD4CPEIYRi\
    9C2sx7AI5cFJHfOCGPCPe0j10P0cCXcMMTMzhvkTcN2oWuovwGGhyWPEqI7bP73x7pThWUGTK90aMeMPGF8oqqca61\
    6C6W3hROFTWJbeGT9NusmzRdDuNxr3et3gzvDkP9WmZOjyX6Z9T7__69_gCtg1hs6NUVVspBYfdT1G4oOriY3kC1W0\
    uLGMBjVZ6tw2sY7dITbCBGJA3SXTdQ2Opdtzf3ao2pSOrOs51DSNk0AgcM5jj9pD7P5--kDw";
const MODULUS: &str = "opepBDlJ73UgPja6kPN5bYd88kL-1cJk1N3cLCGQuKF-XdknUDhCJAn1JTLJ7-rTBiBFXbT_peafVURVj9rE4G8fGq\
    5vxG89koJvWBun_cEeggqGPMw12wfdmCoSNUcgdYbWorDq1FOczs-Djl32tySn1uCC7f0YMlK7R_koTCp6_N-3uD3Q\
    evTR2AFjMJ5vNf888ZiqFEPHMySLEaVcPxuJz8zRoqgzJ0yWz4WboYeK9AyBPqL6GrFATbX889DQjlWxcCFWRp0EZu\
    0vmMHmjgv6royB4pa1TtlnWjNYntcls9c2buICS_Gp87tEaQ8K_F1NAoQ_Z17EsvSjApL_zQ";

#[test]
fn rsa_is_understood() {
    let key = json!({"kty": "RSA", "kid": "r", "use": "sig", "n": MODULUS, "e": "AQAB"});
    let known = keys(std::slice::from_ref(&key));
    let token = format!("{SIGNED}.{MARK}");
    assert_eq!(check(&token, &known, 0).unwrap().subject, "job:1");
    let other = keys(&[with(key, "alg", json!("RS512"))]);
    assert_eq!(check(&token, &other, 0), Err(StsCode::InvalidIdentityToken));
    let changed =
        format!("{SIGNED}.{}{}", if MARK.starts_with('A') { "B" } else { "A" }, &MARK[1..]);
    assert_eq!(check(&changed, &known, 0), Err(StsCode::InvalidIdentityToken));
}
