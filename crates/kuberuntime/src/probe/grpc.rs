//! [`grpc`]: the call `Check` of gRPC's health protocol, version 1, in plain text. Its two messages have one field each,
//! so they are written and read here by hand; nothing else of gRPC is known.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::dial::{dial, join};
use super::{ProbeReply, percent_decoded, shown};

/// More than any answer of this call has.
const MAX_MESSAGE: usize = 64 << 10;
/// The pause before a second attempt to connect, and what the next ones are multiplied by: those of gRPC.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_FACTOR: f64 = 1.6;

/// Status of a call that did not succeed.
struct GrpcStatus {
    code: u32,
    message: String,
}

/// Asks whether `service` is healthy; empty: the server as a whole.
pub async fn grpc(host: &str, port: u16, service: &str, timeout: Duration) -> ProbeReply {
    let (deadline, authority) = (Instant::now() + timeout, join(host, port));
    let stream = match connect(host, port, deadline).await {
        Ok(stream) => stream,
        Err(last) => {
            let because = if last.is_empty() { String::new() } else { format!(": {last}") };
            return ProbeReply::failure(format!(
                "timeout: failed to connect service {authority:?} within {}: context deadline exceeded{because}",
                shown(timeout)
            ));
        }
    };
    let left = deadline.saturating_duration_since(Instant::now());
    match tokio::time::timeout_at(deadline, check(stream, &authority, service, left)).await {
        Err(_) | Ok(Err(GrpcStatus { code: DEADLINE_EXCEEDED, .. })) => {
            ProbeReply::failure(format!("timeout: health rpc did not complete within {}", shown(timeout)))
        }
        Ok(Err(GrpcStatus { code: UNIMPLEMENTED, message })) => ProbeReply::failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        Ok(Err(GrpcStatus { code, message })) => ProbeReply::failure(format!(
            "error: health rpc probe failed: rpc error: code = {} desc = {message}",
            name_of(code)
        )),
        Ok(Ok(SERVING)) => ProbeReply::success("service healthy"),
        Ok(Ok(other)) => ProbeReply::failure(format!("service unhealthy (responded with {:?})", serving_status(other))),
    }
}

/// Connects, again and again until the deadline, as a blocking gRPC client does.
async fn connect(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, String> {
    let (mut pause, mut last) = (FIRST_PAUSE, String::new());
    let attempts = async {
        loop {
            match dial(host, port).await {
                Ok(stream) => return stream,
                Err(error) => last = error,
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(PAUSE_FACTOR);
        }
    };
    let connected = tokio::time::timeout_at(deadline, attempts).await;
    connected.map_err(|_| last)
}

async fn check(stream: TcpStream, authority: &str, service: &str, left: Duration) -> Result<u64, GrpcStatus> {
    let (sender, connection) = h2::client::handshake(stream).await.map_err(|error| unavailable(&error))?;
    let answer = call(sender, authority, service, left);
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        // Data that was read already must still be delivered, and errors of the connection reach the call as well.
        _ = connection => {}
    }
    answer.await
}

async fn call(
    sender: h2::client::SendRequest<Bytes>,
    authority: &str,
    service: &str,
    left: Duration,
) -> Result<u64, GrpcStatus> {
    let request = Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", concat!("imagelet-probe/", env!("CARGO_PKG_VERSION")))
        .header("grpc-timeout", format!("{}m", left.as_millis().clamp(1, 99_999_999)))
        .body(())
        .map_err(|error| GrpcStatus { code: INTERNAL, message: error.to_string() })?;
    let mut sender = sender.ready().await.map_err(|error| unavailable(&error))?;
    let (response, mut body) = sender.send_request(request, false).map_err(|error| unavailable(&error))?;
    body.send_data(question(service), true).map_err(|error| unavailable(&error))?;
    let (head, mut body) = response.await.map_err(|error| unavailable(&error))?.into_parts();
    if head.status != StatusCode::OK {
        return Err(of_http(head.status));
    }
    // An error without any answer stands where the head is.
    if let Some(status) = status_in(&head.headers) {
        return Err(status);
    }
    let mut read = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| unavailable(&error))?;
        if read.len() + data.len() > MAX_MESSAGE {
            let message = format!("received message larger than max ({MAX_MESSAGE})");
            return Err(GrpcStatus { code: RESOURCE_EXHAUSTED, message });
        }
        // If the capacity cannot be released, the stream ends, and the next read reports it.
        let _given_back = body.flow_control().release_capacity(data.len());
        read.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.map_err(|error| unavailable(&error))?;
    match trailers.as_ref().and_then(status_in) {
        Some(GrpcStatus { code: 0, .. }) => answer(read.freeze()),
        Some(status) => Err(status),
        None => Err(GrpcStatus { code: INTERNAL, message: "server closed the stream without sending trailers".into() }),
    }
}

/// Returns the request: a message with the name of the service.
fn question(service: &str) -> Bytes {
    let mut message = Vec::with_capacity(service.len() + 6);
    if !service.is_empty() {
        message.push(1 << 3 | 2);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
            length >>= 7;
        }
        message.push(u8::try_from(length).expect("seven bits"));
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).expect("a field of a manifest");
    [&[0][..], &length.to_be_bytes(), &message].concat().into()
}

/// Returns the status in a response; 0 if there is none.
fn answer(mut frame: Bytes) -> Result<u64, GrpcStatus> {
    let bad = |what: &str| GrpcStatus { code: INTERNAL, message: format!("the answer {what}") };
    if frame.len() < 5 {
        return Err(bad("is no message"));
    }
    if frame.get_u8() != 0 {
        return Err(bad("is compressed, which was not asked for"));
    }
    let length = usize::try_from(frame.get_u32()).unwrap_or(usize::MAX);
    if length > frame.len() {
        return Err(bad("ends within a message"));
    }
    let mut message = frame.split_to(length);
    let mut status = 0;
    while !message.is_empty() {
        let key = varint(&mut message).ok_or_else(|| bad("is not understood"))?;
        let skipped = match key & 7 {
            0 => {
                let value = varint(&mut message).ok_or_else(|| bad("is not understood"))?;
                if key >> 3 == 1 {
                    status = value;
                }
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message).ok_or_else(|| bad("is not understood"))?).unwrap_or(usize::MAX),
            5 => 4,
            _ => return Err(bad("is not understood")),
        };
        if skipped > message.len() {
            return Err(bad("is not understood"));
        }
        message.advance(skipped);
    }
    Ok(status)
}

fn varint(bytes: &mut Bytes) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn status_in(headers: &HeaderMap) -> Option<GrpcStatus> {
    let code = headers.get("grpc-status")?.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(UNKNOWN);
    let message = headers.get("grpc-message").map(|value| percent_decoded(value.as_bytes())).unwrap_or_default();
    let message = String::from_utf8_lossy(&message).into_owned();
    Some(GrpcStatus { code, message })
}

fn unavailable(error: &h2::Error) -> GrpcStatus {
    GrpcStatus { code: UNAVAILABLE, message: format!("connection error: {error}") }
}

fn of_http(status: StatusCode) -> GrpcStatus {
    let code = match status.as_u16() {
        400 => INTERNAL,
        401 => 16,
        403 => 7,
        404 => UNIMPLEMENTED,
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    };
    GrpcStatus { code, message: format!("unexpected HTTP status code received from server: {status}") }
}

const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

fn name_of(code: u32) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    let known = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    known.map_or_else(|| format!("Code({code})"), |name| (*name).to_owned())
}

const SERVING: u64 = 1;

fn serving_status(status: u64) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        SERVING => "SERVING".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}
