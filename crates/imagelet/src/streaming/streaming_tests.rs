//! Streams against a peer that sends frames, over a pipe in memory: a runtime at its worst. Real runtimes are covered by the product's
//! tests.

use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio_util::task::TaskTracker;

use super::remote_command::{Ended, Streams, run};
use super::session::{Session, StreamError};
use super::spdy::{self, Frame};

/// Returns a reply, a reset or a ping, which only a runtime sends.
fn control(kind: u8, words: &[u32]) -> Vec<u8> {
    let length = u8::try_from(4 * words.len()).expect("short");
    let mut frame = vec![0x80, 3, 0, kind, 0, 0, 0, length];
    words.iter().for_each(|word| frame.extend(word.to_be_bytes()));
    frame
}

async fn say(peer: &mut DuplexStream, frames: &[Vec<u8>]) {
    for frame in frames {
        peer.write_all(frame).await.expect("said");
    }
}

fn data(stream: u32, text: &str) -> Vec<u8> {
    spdy::data(stream, text.as_bytes(), false).to_vec()
}

const REPLY: u8 = 2;
const RESET: u8 = 3;
const PING: u8 = 6;

/// Runs a command with `stdin` against a runtime that sends `frames` once it has received the end of standard input.
async fn against(stdin: &[u8], frames: Vec<Vec<u8>>) -> (Result<Ended, StreamError>, String, String, String) {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let peer = TaskTracker::new().spawn(async move {
        let mut heard = Vec::new();
        // Streams: 1 error, 3 standard input, 5 output, 7 error output.
        let mut frames_of_ours = spdy::Reader::new(&mut theirs);
        loop {
            match frames_of_ours.next().await.expect("frames") {
                Some(Frame::Data { stream: 3, bytes, last }) => {
                    heard.extend_from_slice(&bytes);
                    if last {
                        break;
                    }
                }
                Some(_) => {}
                None => return (heard, theirs),
            }
        }
        say(&mut theirs, &frames).await;
        (heard, theirs)
    });
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { stdin: Some(stdin), stdout: &mut out, stderr: Some(&mut err), sizes: None, leave: &[] };
    let (ended, peer) = tokio::join!(run(Session::new(ours), streams), async {
        let (heard, theirs) = peer.await.expect("it goes on");
        // The connection ends after the last frame.
        drop(theirs);
        heard
    });
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (ended, text(out), text(err), text(peer))
}

fn taken() -> Vec<Vec<u8>> {
    [1, 3, 5, 7].map(|stream| control(REPLY, &[stream])).to_vec()
}

#[tokio::test]
async fn a_command_has_its_streams_and_its_end() {
    let status =
        r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
    let mut frames = taken();
    frames.extend([control(PING, &[2]), data(5, "out"), data(7, "err"), data(5, "put"), data(1, status)]);
    // Runtimes reset all streams after all data was sent.
    frames.extend([1, 3, 5, 7].map(|stream| control(RESET, &[stream, 5])));
    let (ended, out, err, heard) = against(&[b'x'; 100_000], frames).await;
    assert_eq!(ended, Ok(Ended::Exited(3)));
    assert_eq!((&*out, &*err, heard.len()), ("output", "err", 100_000));
}

#[tokio::test]
async fn a_disconnected_runtime_is_an_error() {
    let mut frames = taken();
    frames.push(data(5, "half"));
    let (ended, out, ..) = against(b"", frames).await;
    assert_eq!((ended, &*out), (Err(StreamError::Closed), "half"));
    let (ended, ..) =
        against(b"", vec![control(RESET, &[1, 3]), control(RESET, &[5, 3]), control(RESET, &[7, 3])]).await;
    assert_eq!(ended, Err(StreamError::Refused(3)));
    // Invalid data in place of a frame.
    let (ended, ..) = against(b"", vec![vec![0x80, 3, 0, 3, 0, 0xff, 0xff, 0xff]]).await;
    assert_eq!(ended, Err(StreamError::Closed));
}

#[tokio::test]
async fn keys_that_leave_are_not_handed_on() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (mut keys, typed) = tokio::io::duplex(64);
    keys.write_all(b"ls\x10\x11").await.expect("typed");
    let streams = Streams {
        stdin: Some(typed),
        stdout: tokio::io::sink(),
        stderr: None::<tokio::io::Sink>,
        sizes: None,
        leave: &[16, 17],
    };
    assert_eq!(run(Session::new(ours), streams).await, Ok(Ended::Left));
    drop(theirs);
}
