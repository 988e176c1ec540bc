//! Tests with AWS's published chunked uploads, split and broken in every way.

use proptest::prelude::*;

use super::*;
use crate::auth::testing::{ACCESS_KEY, NOW_MS, keys};
use crate::date::Timestamp;
use crate::decode::SigningKey;

const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
const DATE: &str = "20130524T000000Z";
const CRC32C: HeaderName = HeaderName::from_static("x-amz-checksum-crc32c");

fn key() -> SigningKey {
    let keys = keys();
    let credential = keys.lookup(ACCESS_KEY).unwrap();
    credential.signing_key(Timestamp::from_unix_ms(NOW_MS), "us-east-1")
}

fn signer(seed: &str) -> ChunkSigner {
    ChunkSigner::new(key(), DATE, SCOPE, seed)
}

/// Upload of 65 KiB of the letter a, as signed in AWS's documentation.
fn published(signatures: [&str; 3], trailer: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (size, signature) in [65536, 1024, 0].into_iter().zip(signatures) {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend(std::iter::repeat_n(b'a', size));
        if size > 0 {
            body.extend_from_slice(b"\r\n");
        }
    }
    body.extend_from_slice(trailer.as_bytes());
    body.extend_from_slice(b"\r\n");
    body
}

fn published_plain() -> Vec<u8> {
    published(
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ],
        "",
    )
}

const PLAIN_SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const TRAILER_SEED: &str = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";

fn published_with_trailer(trailer: &str) -> Vec<u8> {
    published(
        [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ],
        trailer,
    )
}

const TRAILER: &str = "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:\
    d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n";

/// Decodes a body cut into pieces of `cut` bytes.
fn decode(
    mut decoder: ChunkDecoder,
    body: &[u8],
    cut: usize,
) -> Result<(Vec<u8>, HeaderMap), BodyError> {
    let mut decoded = Vec::new();
    for piece in body.chunks(cut.max(1)) {
        decoder.push(Bytes::copy_from_slice(piece))?;
        while let Some(bytes) = decoder.pop() {
            decoded.extend_from_slice(&bytes);
        }
    }
    let trailers = decoder.finish()?;
    Ok((decoded, trailers))
}

fn signed() -> ChunkDecoder {
    ChunkDecoder::new(Some(signer(PLAIN_SEED)), None)
}

fn signed_with_trailer() -> ChunkDecoder {
    ChunkDecoder::new(Some(signer(TRAILER_SEED)), Some(vec![CRC32C]))
}

fn unsigned() -> ChunkDecoder {
    ChunkDecoder::new(None, Some(vec![CRC32C]))
}

#[test]
fn the_published_upload_holds_however_it_is_cut() {
    for cut in [1, 7, 1000, 65536, 1 << 20] {
        let (decoded, trailers) = decode(signed(), &published_plain(), cut).unwrap();
        assert_eq!(decoded, vec![b'a'; 66560]);
        assert!(trailers.is_empty());
    }
}

#[test]
fn the_published_upload_with_a_trailer_holds() {
    for trailer in [TRAILER.to_owned(), TRAILER.replace("==\r\n", "==\n\r\n")] {
        let body = published_with_trailer(&trailer);
        let (decoded, trailers) = decode(signed_with_trailer(), &body, 999).unwrap();
        assert_eq!(decoded.len(), 66560);
        assert_eq!(trailers[CRC32C], "sOO8/Q==");
    }
}

#[test]
fn a_changed_chunk_is_never_passed_on() {
    let mut body = published_plain();
    body[70_000 - 4096] ^= 1;
    let mut decoder = signed();
    assert_eq!(decoder.push(Bytes::from(body)), Err(BodyError::ChunkSignature));
    // The chunk before it is valid and may be passed on, but no byte of the changed chunk.
    let passed: usize = std::iter::from_fn(|| decoder.pop()).map(|bytes| bytes.len()).sum();
    assert!(passed == 65536 || passed == 0, "{passed}");
}

#[test]
fn every_changed_signature_is_refused() {
    let body = published_with_trailer(TRAILER);
    let text = |needle: &[u8], from: usize| {
        from + body[from..].windows(needle.len()).position(|window| window == needle).unwrap()
    };
    let mut at = 0;
    for _ in 0..3 {
        at = text(b"chunk-signature=", at) + 20;
        let mut changed = body.clone();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        let result = decode(signed_with_trailer(), &changed, 4096);
        assert_eq!(result, Err(BodyError::ChunkSignature), "{at}");
    }
    let at = text(b"trailer-signature:", 0) + 20;
    let mut changed = body.clone();
    changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
    assert_eq!(decode(signed_with_trailer(), &changed, 4096), Err(BodyError::TrailerSignature));
    let other = published_with_trailer(&TRAILER.replace("sOO8", "sOO9"));
    assert_eq!(decode(signed_with_trailer(), &other, 4096), Err(BodyError::TrailerSignature));
}

#[test]
fn trailers_are_those_that_were_announced() {
    let refused = |body: &[u8]| decode(unsigned(), body, 3).unwrap_err();
    let is_trailer = |error: &BodyError| matches!(error, BodyError::MalformedTrailer(_));
    for body in [
        "0\r\n\r\n",
        "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
        "0\r\nx-amz-checksum-crc32c:a\r\nx-amz-meta-a:b\r\n\r\n",
        "0\r\nnonsense\r\n\r\n",
        "0\r\n:\r\n\r\n",
        "0\r\nx-amz-checksum-crc32c:a\r\nx-amz-trailer-signature:00\r\n\r\n",
    ] {
        assert!(is_trailer(&refused(body.as_bytes())), "{body:?}: {:?}", refused(body.as_bytes()));
    }
    assert_eq!(refused(b"0\r\nx-amz-checksum-crc32c:a\r\n"), BodyError::Truncated);
    assert_eq!(refused(b"0\r\nx-amz-checksum-crc32c:a"), BodyError::Truncated);
    let long = format!("0\r\nx-amz-checksum-crc32c:{}\r\n\r\n", "a".repeat(9000));
    assert!(is_trailer(&refused(long.as_bytes())));
    let unsigned_trailer = TRAILER.split("x-amz-trailer-signature").next().unwrap();
    let unsigned_trailer = format!("{unsigned_trailer}\r\n\r\n");
    let body = published_with_trailer(&unsigned_trailer);
    let result = decode(signed_with_trailer(), &body, 4096);
    assert!(is_trailer(&result.unwrap_err()));
    let plain = ChunkDecoder::new(None, None);
    let unannounced = decode(plain, b"0\r\nx-amz-checksum-crc32c:a\r\n\r\n", 3);
    assert!(matches!(unannounced, Err(BodyError::MalformedChunk(_))));
}

#[test]
fn trailers_that_s3_ignores_are_ignored() {
    let value = |body: &str| {
        decode(unsigned(), body.as_bytes(), 3).map(|(_, trailers)| trailers[CRC32C].clone())
    };
    let (twice, behind) = (
        "0\r\nx-amz-checksum-crc32c:a\r\nx-amz-checksum-crc32c:b\r\n\r\n",
        "0\r\nx-amz-checksum-crc32c:b\r\n\r\n\r\n\r\n",
    );
    assert_eq!(value(twice).unwrap(), "b");
    assert_eq!(value(behind).unwrap(), "b");
    assert!(value(&format!("{behind}x")).is_err());
    assert!(value(&format!("{behind}{}", "\r\n".repeat(5000))).is_err());
    // Blanks around the parts of an extension, and a valid signature without a line end.
    let signed = published_with_trailer(TRAILER);
    let text = signed.windows(16).position(|window| window == b"chunk-signature=").unwrap();
    let mut blank = signed[..text - 1].to_vec();
    blank.extend_from_slice(b" ; chunk-signature =\t");
    blank.extend_from_slice(&signed[text + 16..]);
    let whole =
        |body: &[u8]| decode(signed_with_trailer(), body, 4096).map(|(bytes, _)| bytes.len());
    assert_eq!(whole(&blank), Ok(66560));
    for missing in [2, 4] {
        assert_eq!(whole(&signed[..signed.len() - missing]), Ok(66560), "{missing}");
    }
    assert_eq!(whole(&signed[..signed.len() - 5]), Err(BodyError::TrailerSignature));
}

#[test]
fn a_signature_that_is_there_and_wrong_is_no_missing_one() {
    let refused = |body: &[u8]| decode(signed(), body, 7).unwrap_err();
    for wrong in ["", "0", &"z".repeat(64), &"0".repeat(63), &"0".repeat(65)] {
        let body = format!("1;chunk-signature={wrong}\r\nx\r\n0\r\n\r\n");
        assert_eq!(refused(body.as_bytes()), BodyError::ChunkSignature, "{wrong}");
    }
    for absent in ["1\r\nx\r\n", "1;\r\nx\r\n", "1;signature=0\r\nx\r\n"] {
        assert!(matches!(refused(absent.as_bytes()), BodyError::MalformedChunk(_)), "{absent}");
    }
}

#[test]
fn absurd_framing_is_refused_in_bounded_memory() {
    let refused = |body: &[u8]| decode(ChunkDecoder::new(None, None), body, 5).unwrap_err();
    for body in [
        "\r\n",
        "g\r\nx\r\n0\r\n\r\n",
        "-1\r\n",
        "+1\r\nx\r\n0\r\n\r\n",
        "0x1\r\nx\r\n0\r\n\r\n",
        " 1\r\nx\r\n0\r\n\r\n",
        "1\nx\r\n0\r\n\r\n",
        "1\r\nxy\r\n0\r\n\r\n",
        "2\r\nx\r\n0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
        "140000001\r\n",
        "0\r\n\r\nmore",
        ";\r\n",
    ] {
        assert!(matches!(refused(body.as_bytes()), BodyError::MalformedChunk(_)), "{body:?}");
    }
    let endless = vec![b'0'; 100_000];
    let mut decoder = ChunkDecoder::new(None, None);
    let error = decoder.push(Bytes::from(endless)).unwrap_err();
    assert!(matches!(error, BodyError::MalformedChunk(_)));
    assert!(decoder.line.capacity() <= 2 * LINE_BYTES_MAX);
    // With a signer, a chunk without a signature is malformed.
    let bare = decode(signed(), b"1\r\nx\r\n0\r\n\r\n", 5).unwrap_err();
    assert!(matches!(bare, BodyError::MalformedChunk(_)));
}

#[test]
fn only_the_last_chunk_may_be_short() {
    let least = usize::try_from(CHUNK_BYTES_MIN).unwrap();
    for (sizes, holds) in [
        (&[1][..], true),
        (&[least, 1], true),
        (&[least + 8, least, 100], true),
        (&[1, 1], false),
        (&[least - 1, least], false),
        (&[least, 10, 20], false),
    ] {
        let chunks: Vec<Vec<u8>> = sizes.iter().map(|size| vec![7; *size]).collect();
        let decoded = decode(unsigned(), &frame(&chunks), 1000).map(|(bytes, _)| bytes.len());
        let short = BodyError::ShortChunk { least: CHUNK_BYTES_MIN };
        let expected = if holds { Ok(sizes.iter().sum()) } else { Err(short) };
        assert_eq!(decoded, expected, "{sizes:?}");
    }
}

#[test]
fn unsigned_bytes_are_not_copied() {
    let body = Bytes::from_static(b"3\r\nabc\r\n0\r\n\r\n");
    let mut decoder = ChunkDecoder::new(None, None);
    decoder.push(body.clone()).unwrap();
    let piece = decoder.pop().unwrap();
    assert_eq!(piece.as_ptr(), body[3..].as_ptr());
}

#[test]
fn a_long_signed_chunk_flows_and_still_fails() {
    let size = usize::try_from(HELD_BYTES_MAX).unwrap() + 1;
    let data = vec![7u8; size];
    let digest: [u8; 32] = Sha256::digest(&data).into();
    let sign = |content: String, previous: &str| {
        key().sign(
            format!("AWS4-HMAC-SHA256-PAYLOAD\n{DATE}\n{SCOPE}\n{previous}\n{content}").as_bytes(),
        )
    };
    let empty = hex::encode(Sha256::digest(b""));
    let first = sign(format!("{empty}\n{}", hex::encode(digest)), "seed");
    let last = sign(format!("{empty}\n{empty}"), &first);
    let body = |signature: &str| {
        let mut body = format!("{size:x};chunk-signature={signature}\r\n").into_bytes();
        body.extend_from_slice(&data);
        body.extend_from_slice(format!("\r\n0;chunk-signature={last}\r\n\r\n").as_bytes());
        body
    };
    let decoder = || ChunkDecoder::new(Some(signer("seed")), None);
    assert_eq!(decode(decoder(), &body(&first), 65536).unwrap().0, data);
    let mut flowing = decoder();
    let wrong = body(&last);
    flowing.push(Bytes::copy_from_slice(&wrong[..100_000])).unwrap();
    assert!(flowing.pop().is_some());
    let end = flowing.push(Bytes::copy_from_slice(&wrong[100_000..]));
    assert_eq!(end, Err(BodyError::ChunkSignature));
}

fn frame(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\nx-amz-checksum-crc32c: AAAAAA==\r\n\r\n");
    body
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        whole in proptest::collection::vec(0u8..3, 0..4),
        last in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 1usize..300,
    ) {
        let chunk = |extra: &u8| vec![*extra; 8192 + usize::from(*extra)];
        let chunks: Vec<Vec<u8>> = whole.iter().map(chunk).chain([last]).collect();
        let body = frame(&chunks);
        let (decoded, trailers) = decode(unsigned(), &body, cut).unwrap();
        prop_assert_eq!(decoded, chunks.concat());
        prop_assert_eq!(&trailers[CRC32C], "AAAAAA==");
    }

    #[test]
    fn a_truncated_body_is_never_whole(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..2),
        cut in 1usize..60,
        missing in 1usize..40,
    ) {
        let body = frame(&chunks);
        let kept = body.len().saturating_sub(missing);
        prop_assert!(decode(unsigned(), &body[..kept], cut).is_err());
    }

    #[test]
    fn garbage_never_panics(garbage in proptest::collection::vec(any::<u8>(), 0..300), cut in 1usize..20) {
        let _ = decode(unsigned(), &garbage, cut);
        let _ = decode(signed(), &garbage, cut);
    }

    #[test]
    fn a_flipped_byte_of_a_signed_body_is_noticed(at in 0usize..67_000, cut in 1usize..70_000) {
        let mut body = published_plain();
        let at = at % body.len();
        body[at] ^= 0x20;
        let changed = decode(signed(), &body, cut);
        // Sizes may have any case; all other bytes are framing or signed.
        if let Ok((decoded, _)) = changed {
            prop_assert!(decoded == vec![b'a'; 66560], "byte {}", at);
        }
    }
}
