//! Bytes between proxies and nodes: channels, calls, replies, extents, and heads of requests.

use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::announce::{Announcement, NodeReport, RingTag};
use super::call_codec::{decode_call, decode_reply, encode_call, encode_reply};
use super::channel::CALL_FRAME_BYTES_MAX;
use super::channel::frame::{FrameError, FrameKind, Opener, Sealer};
use super::channel::frame_reader::FrameReader;
use super::channel::message::{BodyLayout, CallHead, ReplyHead};
use super::fault::{self, Fault};
use super::frames::{FramedStream, UnframedStream};
use super::key::ClusterKey;
use super::sign;
use crate::backend::{BucketFence, Call, CallKind, DeleteCondition, Reply, Want};
use crate::error::Error;
use crate::id::{BucketId, ExtentId};
use crate::key::RegisterKey;
use crate::limits::BLOCK_BYTES;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::testing::fuzz_target::{FuzzTarget, InputReader, block, pieces};

/// Frames, messages and heads. An input is the number of a kind, then the bytes of that kind.
///
/// Properties: no bytes cause a panic; the result doesn't depend on how the connection divides the
/// bytes; a message that is decoded can be encoded and decoded again; no frame is opened after a
/// changed byte.
pub const FRAMES: FuzzTarget =
    FuzzTarget { name: "frames", check, seeds, heap_bytes_max: 16 << 20 };

const KEY: [u8; 32] = [7; 32];
const NOW_MS: u64 = 1_795_262_400_000;

fn check(input: &[u8]) -> bool {
    let mut reader = InputReader::new(input);
    match reader.byte() % 8 {
        0 => any_frames(reader),
        1 => sealed_frames(reader),
        2 => call_head(reader),
        3 => reply_head(reader),
        4 => call(reader),
        5 => reply(reader),
        6 => extent_frames(reader),
        _ => head(reader),
    }
}

/// A frame as its receiver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentFrame {
    kind: FrameKind,
    call: u32,
    body: Vec<u8>,
}

/// Opens the frames of a connection that delivers these pieces.
fn opened(pieces: &[&[u8]]) -> (Vec<SentFrame>, Option<FrameError>) {
    let mut reader = FrameReader::new(Opener::new(KEY, CALL_FRAME_BYTES_MAX));
    let mut found = Vec::new();
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() {
            let read = reader.read(&mut piece).now_or_never().expect("bytes in memory are there");
            assert!(read.expect("memory has no errors"), "bytes are left");
        }
        loop {
            let next = reader.next(|frame| SentFrame {
                kind: frame.kind,
                call: frame.call,
                body: frame.body.to_vec(),
            });
            match next {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn any_frames(mut reader: InputReader<'_>) -> bool {
    let cuts = reader.block();
    let bytes = reader.rest();
    let (found, error) = opened(&pieces(bytes, cuts));
    assert_eq!((found.clone(), error), opened(&[bytes]));
    error.is_none() && !found.is_empty()
}

fn frame_kind(number: u8) -> FrameKind {
    [FrameKind::Call, FrameKind::Cancel, FrameKind::Reply, FrameKind::Goodbye]
        [usize::from(number % 4)]
}

fn sealed_frames(mut reader: InputReader<'_>) -> bool {
    let (cuts, at, bit) = (reader.block(), reader.number(), reader.byte() % 8);
    let mut sent = Vec::new();
    let (mut sealer, mut bytes) = (Sealer::new(KEY), Vec::new());
    while !reader.is_empty() && sent.len() < 64 {
        let (kind, call) = (frame_kind(reader.byte()), u32::from(reader.number()));
        let body = reader.block();
        let (head, content) = body.split_at(body.len() / 2);
        sealer.seal(&mut bytes, kind, call, [head, content]);
        sent.push(SentFrame { kind, call, body: body.to_vec() });
    }
    assert_eq!(opened(&pieces(&bytes, cuts)), (sent.clone(), None));
    if let Some(changed) = bytes.get_mut(usize::from(at)) {
        *changed ^= 1 << bit;
        let (found, _) = opened(&pieces(&bytes, cuts));
        assert!(found.len() < sent.len() && sent.starts_with(&found), "a changed frame is open");
    }
    !sent.is_empty()
}

fn layout(number: u8) -> BodyLayout {
    BodyLayout::of_version(u16::from(number % 2))
}

fn call_head(mut reader: InputReader<'_>) -> bool {
    let layout = layout(reader.byte());
    let body = reader.rest();
    let Ok((head, content)) = layout.decode_head::<CallHead<'_>>(body) else { return false };
    assert!(body.ends_with(content));
    let again = [layout.encode_head(&head), content.to_vec()].concat();
    assert_eq!(
        layout.decode_head(&again).expect("an encoded head can be decoded"),
        (head, content)
    );
    true
}

fn reply_head(mut reader: InputReader<'_>) -> bool {
    let layout = layout(reader.byte());
    let body = reader.rest();
    let Ok((head, content)) = layout.decode_head::<ReplyHead<'_>>(body) else { return false };
    assert!(body.ends_with(content));
    let again = [layout.encode_head(&head), content.to_vec()].concat();
    let decoded = layout.decode_head(&again).expect("an encoded head can be decoded");
    assert_eq!(decoded, (head.clone(), content));
    let announcement = head.announced.as_ref().and_then(Announcement::of_fields);
    if let Some(announcement) = announcement {
        let _ = announcement.rings().iter().count();
        let _ = head.report(&announcement, Duration::ZERO).data_port.map(|it| it.port());
    }
    if let Some(fault) = head.fault {
        let _ = fault.into_error(content);
    }
    true
}

fn call_kind(number: u8) -> CallKind {
    CallKind::CALLS[usize::from(number) % CallKind::CALLS.len()]
}

fn call(mut reader: InputReader<'_>) -> bool {
    let kind = call_kind(reader.byte());
    let Ok(call) = decode_call(kind, reader.rest()) else { return false };
    assert_eq!(call.kind(), kind);
    let again = encode_call(&call).expect("a decoded call can be encoded");
    assert_eq!(decode_call(kind, &again).expect("an encoded call can be decoded"), call);
    true
}

fn reply(mut reader: InputReader<'_>) -> bool {
    let kind = call_kind(reader.byte());
    let body = Bytes::copy_from_slice(reader.rest());
    let Ok(reply) = decode_reply(kind, &body) else { return false };
    let again = encode_reply(&reply).expect("a decoded reply can be encoded");
    assert_eq!(decode_reply(kind, &again).expect("an encoded reply can be decoded"), reply);
    true
}

/// Bytes that a receiver releases of these pieces, and true if all were there.
fn unframed(range: &std::ops::Range<u64>, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut stream = UnframedStream::new(range);
    let mut released = Vec::new();
    for piece in pieces {
        let pushed = stream.push(Bytes::copy_from_slice(piece));
        while let Some(bytes) = stream.pop() {
            released.extend_from_slice(&bytes);
        }
        if pushed.is_err() {
            return (released, false);
        }
    }
    (released, stream.is_over())
}

fn extent_frames(mut reader: InputReader<'_>) -> bool {
    let (cuts, back, at) = (reader.block(), u64::from(reader.number()), reader.number());
    let content = reader.rest();
    if content.is_empty() {
        return false;
    }
    let start = (2 * BLOCK_BYTES).saturating_sub(back);
    let range = start..start + content.len() as u64;
    let source = pieces(content, cuts).into_iter().map(Bytes::copy_from_slice).map(Ok);
    let source: Vec<_> = source.collect();
    let framed = FramedStream::new(stream::iter(source).boxed(), &range);
    let framed = framed.collect::<Vec<_>>().now_or_never().expect("bytes in memory are there");
    let mut bytes = Vec::new();
    for piece in framed {
        bytes.extend_from_slice(&piece.expect("the source has no error"));
    }
    assert_eq!(bytes.len() as u64, super::frames::framed_length(&range));
    assert_eq!(unframed(&range, &pieces(&bytes, cuts)), (content.to_vec(), true));
    if let Some(changed) = bytes.get_mut(usize::from(at)) {
        *changed ^= 0x10;
        let (released, is_whole) = unframed(&range, &pieces(&bytes, cuts));
        assert!(!is_whole && content.starts_with(&released), "a changed block was released");
    }
    // The content itself, taken for frames, is refused or incomplete, in all divisions.
    let wild = unframed(&range, &pieces(content, cuts));
    assert_eq!(wild.1, unframed(&range, &[content]).1);
    true
}

/// Headers of the lines of a text. Lines that are no header are left out.
fn headers(text: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n').take(64) {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn key() -> ClusterKey {
    "a".repeat(64).parse().expect("64 hexadecimal digits are a key")
}

fn head(mut reader: InputReader<'_>) -> bool {
    let (method, status) = (reader.byte(), 400 + reader.number() % 200);
    let path = reader.block();
    let mut headers = headers(reader.rest());
    if let Some(report) = NodeReport::of(&headers, Duration::ZERO) {
        let _ = (report.rings.iter().count(), report.data_port.map(|it| it.port()));
    }
    let status = StatusCode::from_u16(status).expect("the status has three digits");
    let _ = fault::of_reply(status, &headers, &Bytes::copy_from_slice(path));
    let method = [Method::GET, Method::POST, Method::PUT][usize::from(method % 3)].clone();
    let Ok(uri) = Uri::try_from(path) else { return false };
    // Without the key there is no right signature.
    let given = sign::verify(&key(), &method, &uri, &headers, NOW_MS);
    assert!(given.is_err(), "a signature without the key");
    headers.remove(sign::DIGEST);
    sign::sign(&key(), &method, &uri, &mut headers, NOW_MS);
    assert_eq!(sign::verify(&key(), &method, &uri, &headers, NOW_MS), Ok(sign::Digest::Empty));
    headers.append("x-martlet-added", HeaderValue::from_static(""));
    assert!(sign::verify(&key(), &method, &uri, &headers, NOW_MS).is_err());
    true
}

fn seeds() -> Vec<Vec<u8>> {
    [seeds_of_frames(), seeds_of_messages(), seeds_of_calls()].concat()
}

fn seeds_of_frames() -> Vec<Vec<u8>> {
    let mut sealed = Vec::new();
    let mut sealer = Sealer::new(KEY);
    sealer.seal(&mut sealed, FrameKind::Call, 9, [b"head", b"content"]);
    sealer.seal(&mut sealed, FrameKind::Goodbye, 0, [b"", b""]);
    let specs = [&[0, 9, 0][..], &block(b"head and content"), &[3, 0, 0], &block(b"")].concat();
    let rings = Announcement::new(&[RingTag { name: "index".into(), epoch: 7, hash: [3; 8] }]);
    let mut headers = HeaderMap::new();
    rings.at(Term(14)).put_on(&mut headers, NOW_MS);
    let mut lines = Vec::new();
    for (name, value) in &headers {
        lines.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
    }
    vec![
        [&[0][..], &block(&[4, 0]), &sealed].concat(),
        [&[1][..], &block(&[4, 0]), &[20, 0, 3], &specs].concat(),
        [&[6][..], &block(&[30]), &[20, 0, 5, 0], &[b'x'; 100]].concat(),
        [&[7, 1, 0, 0][..], &block(b"/v1/d/3/read?a=1"), &lines].concat(),
    ]
}

fn seeds_of_messages() -> Vec<Vec<u8>> {
    let call = CallHead {
        device: 3,
        kind: "read",
        deadline_ms: 5000,
        is_background: true,
        request: Some(b"00AB"),
    };
    let announcement = Announcement::new(&[]).at(Term(2));
    let error = Error::outdated(Term(17));
    let head = ReplyHead {
        now_ms: NOW_MS,
        announced: Some(announcement.fields()),
        clients_wait_us: Some(7),
        fault: Some(Fault::of(&error)),
    };
    let heads = |number: u8| {
        let layout = layout(number);
        [
            [&[2, number][..], &layout.encode_head(&call), b"content"].concat(),
            [&[3, number][..], &layout.encode_head(&head), b"message"].concat(),
        ]
    };
    [heads(0), heads(1)].concat()
}

fn number_of(kind: CallKind) -> u8 {
    let number = CallKind::CALLS.iter().position(|it| *it == kind);
    number.and_then(|it| u8::try_from(it).ok()).expect("the kinds are fewer than 256")
}

fn seeds_of_calls() -> Vec<Vec<u8>> {
    let key = RegisterKey::object(BucketId([5; 16]), 16, "a/key");
    let owned = || std::borrow::Cow::Owned(key.clone());
    let (stamp, term) = (Stamp::at_ms(70_000), Term(14));
    let fence = BucketFence { bucket: BucketId([1; 16]), generation: 300, open: true };
    let ids = vec![ExtentId([3; 16]), ExtentId([4; 16])];
    let calls = [
        Call::Read { key: owned(), want: Want::EntryAndInline, term },
        Call::Promise { key: owned(), ballot: stamp, term },
        Call::Fence(fence),
        Call::StatExtent(ids[0]),
        Call::DeleteExtents(ids.clone().into()),
        Call::DeleteUnneeded {
            ids: ids.clone().into(),
            condition: DeleteCondition { not_after_ms: 70_000 },
        },
        Call::Hints { after: Some(owned()), limit: 1000 },
        Call::Holdings(vec![key.clone()].into()),
        Call::AuditExtents { after: None, bytes_max: 1 << 20 },
    ];
    let calls = calls.iter().map(|call| {
        let body = encode_call(call).expect("a call can be encoded");
        [&[4, number_of(call.kind())][..], &body].concat()
    });
    let replies =
        [(CallKind::Fences, Reply::Fences(vec![fence])), (CallKind::Fence, Reply::Done(()))];
    let replies = replies.iter().map(|(kind, reply)| {
        let body = encode_reply(reply).expect("a reply can be encoded");
        [&[5, number_of(*kind)][..], &body].concat()
    });
    calls.chain(replies).collect()
}
