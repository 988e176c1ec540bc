//! Tests of bodies of every framing, whole and broken.

use std::convert::Infallible;

use futures::{StreamExt, stream};
use http::HeaderName;
use http_body_util::StreamBody;

use super::*;
use crate::limits::documents::Documents;

type BodyChunks = StreamBody<stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

fn pieces(pieces: &[&'static str]) -> BodyChunks {
    let frames: Vec<_> =
        pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))).collect();
    StreamBody::new(stream::iter(frames))
}

fn plan(framing: Framing, length: Option<u64>) -> BodyPlan {
    let facts = Arc::new(BodyFacts::new(length, None, Vec::new()));
    let idle = Duration::from_secs(5);
    BodyPlan {
        framing,
        facts,
        patience: BodyTimeouts { idle, bytes_per_second_min: 0, whole: 2 * idle },
        polled: PollFlag::default(),
    }
}

fn decoder(declared: Option<Vec<HeaderName>>) -> Framing {
    Framing::Chunked(Box::new(ChunkDecoder::new(None, declared)))
}

/// Bytes that a body passes on, and the error that ends it, if any.
async fn read<B>(mut body: DecodedBody<B>) -> (Vec<u8>, Option<BodyError>)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut passed = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => passed.extend_from_slice(&frame.into_data().unwrap()),
            Err(error) => {
                assert!(body.frame().await.is_none(), "nothing follows an error");
                return (passed, Some(error));
            }
        }
    }
    assert!(body.is_end_stream());
    (passed, None)
}

#[tokio::test]
async fn plain_bodies_have_their_length() {
    let sent = || pieces(&["abc", "", "def"]);
    for (length, expected) in [
        (None, None),
        (Some(6), None),
        (Some(7), Some(BodyError::Incomplete)),
        (Some(5), Some(BodyError::Incomplete)),
        (Some(0), Some(BodyError::Incomplete)),
    ] {
        let body = DecodedBody::new(sent(), plan(Framing::Plain, length));
        assert_eq!(body.size_hint().exact(), length);
        let (passed, error) = read(body).await;
        assert_eq!(error, expected, "{length:?}");
        // A reader that counts to the length must not accept a refused body.
        assert!(error.is_none() || length.is_none_or(|at| passed.len() as u64 != at || at == 0));
    }
}

#[tokio::test]
async fn hashed_bodies_are_what_was_signed() {
    let right: [u8; 32] = Sha256::digest(b"abcdef").into();
    let good = DecodedBody::new(pieces(&["abc", "def"]), plan(Framing::Hashed(right), Some(6)));
    assert_eq!(read(good).await, (b"abcdef".to_vec(), None));
    for length in [None, Some(6)] {
        let bad = DecodedBody::new(pieces(&["abc", "deg"]), plan(Framing::Hashed(right), length));
        let (passed, error) = read(bad).await;
        assert!(matches!(error, Some(BodyError::ContentSha256 { given, .. }) if given == right));
        assert!(length.is_none() || passed.len() < 6, "the last bytes were passed on unchecked");
    }
    let short = DecodedBody::new(pieces(&["abc"]), plan(Framing::Hashed(right), Some(6)));
    assert_eq!(read(short).await.1, Some(BodyError::Incomplete));
    let empty: [u8; 32] = Sha256::digest(b"").into();
    let nothing = DecodedBody::new(pieces(&[]), plan(Framing::Hashed(empty), Some(0)));
    assert_eq!(read(nothing).await, (Vec::new(), None));
}

#[tokio::test]
async fn chunked_bodies_have_their_decoded_length() {
    let sent = || pieces(&["6\r", "\na", "bcdef\r\n0\r\n", "\r\n"]);
    for (length, expected) in [
        (None, None),
        (Some(6), None),
        (Some(5), Some(BodyError::Incomplete)),
        (Some(7), Some(BodyError::Incomplete)),
    ] {
        let (passed, error) = read(DecodedBody::new(sent(), plan(decoder(None), length))).await;
        assert_eq!(error, expected, "{length:?}");
        assert!(error.is_some() || passed == b"abcdef");
    }
    let unfinished = pieces(&["3\r\nabc\r\n"]);
    let body = DecodedBody::new(unfinished, plan(decoder(None), Some(3)));
    assert_eq!(read(body).await, (Vec::new(), Some(BodyError::Truncated)));
}

#[tokio::test]
async fn trailers_are_there_after_the_end() {
    let name = HeaderName::from_static("x-amz-checksum-crc32");
    let plan = plan(decoder(Some(vec![name.clone()])), Some(1));
    let facts = plan.facts.clone();
    let sent = pieces(&["1\r\na\r\n0\r\n", "x-amz-checksum-crc32:6Le+Qw==\r\n\r\n"]);
    let mut body = DecodedBody::new(sent, plan);
    assert!(facts.trailers().is_none());
    // The byte that completes the length is passed on only after the trailer was read.
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "a");
    assert_eq!(facts.trailers().unwrap()[name], "6Le+Qw==");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn broken_connections_are_incomplete_bodies() {
    let frames = stream::iter([
        Ok(Frame::data(Bytes::from_static(b"abc"))),
        Err(std::io::Error::other("reset")),
    ]);
    let body = DecodedBody::new(StreamBody::new(frames), plan(Framing::Plain, Some(6)));
    let (passed, error) = read(body).await;
    assert_eq!(passed, b"abc");
    assert_eq!(error, Some(BodyError::Transport("reset".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_body() {
    let slow = stream::unfold(0u64, |turn| async move {
        // Four seconds are within the limit, eight are not.
        sleep(Duration::from_secs(if turn < 3 { 4 } else { 8 })).await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), turn + 1))
    });
    let body = DecodedBody::new(StreamBody::new(slow.boxed()), plan(Framing::Plain, None));
    assert_eq!(read(body).await, (b"xxx".to_vec(), Some(BodyError::Stalled)));
}

/// A body that sends `bytes` each second, without end.
fn trickle(bytes: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    let drip = stream::unfold((), move |()| async move {
        sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; bytes]))), ()))
    });
    StreamBody::new(drip.boxed())
}

fn plan_at(bytes_per_second_min: u64) -> BodyPlan {
    let plan = plan(Framing::Plain, None);
    BodyPlan { patience: BodyTimeouts { bytes_per_second_min, ..plan.patience }, ..plan }
}

#[tokio::test(start_paused = true)]
async fn a_body_below_the_least_rate_ends() {
    let begun = Instant::now();
    let (passed, error) = read(DecodedBody::new(trickle(4), plan_at(8))).await;
    assert_eq!(error, Some(BodyError::Stalled));
    // Received bytes refill half a second for each second of waiting.
    assert!((5..=11).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(passed.len() >= 16);
    let steady = DecodedBody::new(trickle(8), plan_at(8));
    let hour = timeout(Duration::from_hours(1), read(steady)).await;
    assert!(hour.is_err(), "one at the least rate goes on");
}

#[tokio::test(start_paused = true)]
async fn bytes_sent_fast_earn_at_most_the_allowed_silence() {
    let fast = stream::iter([Ok(Frame::data(Bytes::from(vec![7; 1 << 20])))]);
    let body = StreamBody::new(
        fast.chain(stream::unfold((), |()| async {
            sleep(Duration::from_secs(4)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), ()))
        }))
        .boxed(),
    );
    let begun = Instant::now();
    let (_, error) = read(DecodedBody::new(body, plan_at(1024))).await;
    assert_eq!(error, Some(BodyError::Stalled));
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

fn share() -> DocumentMemory {
    Documents::new(8 << 20).begin(None)
}

#[tokio::test]
async fn documents_are_bounded() {
    let sent = || pieces(&["abc", "def"]);
    let body = |length| DecodedBody::new(sent(), plan(Framing::Plain, length));
    assert_eq!(collect(body(None), 6, &mut share()).await.unwrap(), "abcdef");
    let too_long = Err(BodyError::TooLong { limit: 5 });
    assert_eq!(collect(body(None), 5, &mut share()).await, too_long);
    assert_eq!(collect(body(Some(1 << 40)), 5, &mut share()).await, too_long);
    let long =
        StreamBody::new(stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(vec![
            7;
            5 << 20
        ])))]));
    let long = DecodedBody::new(long, plan(Framing::Plain, None));
    assert_eq!(collect(long, 6 << 20, &mut share()).await, Err(BodyError::NoMemory));
}

#[tokio::test(start_paused = true)]
async fn a_document_has_to_be_whole_in_time() {
    let begun = Instant::now();
    let body = DecodedBody::new(trickle(1000), plan(Framing::Plain, None));
    assert_eq!(collect(body, 1 << 20, &mut share()).await, Err(BodyError::Stalled));
    assert_eq!(begun.elapsed().as_secs(), 10);
}
