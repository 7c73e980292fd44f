//! Answers of a test registry, right or wrong: routes, ranges, and bodies made of pieces.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use oci::{Digest, media_type};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::faults::Fault;
use super::line::Transfer;
use super::request_log::RequestLog;
use super::state::{Auth, Content, RegistryState};
use super::tokens::{self, BasicOffer};

pub(super) type AnswerBody = BoxBody<Bytes, io::Error>;

const PIECE: usize = 64 << 10;

/// A part of a body's way.
enum Piece {
    Data(Bytes),
    Pause(Duration),
    /// Wait for the faults to be released.
    Gate(CancellationToken),
    /// Break the connection.
    Fail,
}

/// A stored manifest, index or blob, before a fault is worked into it.
struct StoredDocument {
    content_type: String,
    digest: Option<Digest>,
    bytes: Bytes,
}

pub(super) async fn answer(
    state: &Arc<RegistryState>,
    request: &RequestLog,
    reset: &Arc<AtomicBool>,
) -> Result<Response<AnswerBody>, io::Error> {
    let path = request.path.as_str();
    let is_token = path == "/token";
    if !is_token && let Some(refusal) = refuse(state, request) {
        return Ok(refusal);
    }
    let whole = format!("{path}?{}", request.query);
    let (fault, gate) = state.faults.take(&whole);
    match &fault {
        Some(Fault::Status { code, headers, body }) => return Ok(status(*code, headers, body)),
        Some(Fault::Drop) => return Err(io::Error::other("dropped on demand")),
        Some(Fault::Hang) => gate.cancelled().await,
        Some(Fault::Html) => {
            let body = "<!DOCTYPE html>\n<html><title>Please sign in</title></html>";
            return Ok(status(200, &[("content-type".into(), "text/html; charset=utf-8".into())], body));
        }
        Some(Fault::EndlessRedirect) => return Ok(redirect(&whole)),
        Some(Fault::RedirectTo { base }) => return Ok(redirect(&format!("{base}{whole}"))),
        Some(Fault::Location { url }) => return Ok(redirect(url)),
        _ => {}
    }
    if is_token {
        let Some(Auth::Token(auth)) = &state.options.auth else { return Ok(status(404, &[], "")) };
        let (code, body) = state.tokens.answer(auth, request);
        return Ok(status(code, &[("content-type".into(), "application/json".into())], &body));
    }
    let rest = path.split_once("/v2/").map_or(path.trim_start_matches('/'), |(_, rest)| rest);
    if rest.is_empty() {
        return Ok(status(200, &[], "{}"));
    }
    match find(state, rest) {
        Ok(found) => {
            let mut transfer = None;
            if rest.contains("/blobs/") {
                tokio::time::sleep(state.traffic.line().latency).await;
                match state.traffic.begin() {
                    Ok(begun) => transfer = Some(begun),
                    Err(0) => return Err(io::Error::other("too many at once")),
                    Err(code) => return Ok(status(code, &[], "")),
                }
            }
            Ok(content(state, request, reset, found, (fault, gate), transfer))
        }
        Err(code) => {
            let body = json!({ "errors": [{ "code": code, "message": format!("{code} for {rest}") }] }).to_string();
            Ok(status(404, &[("content-type".into(), "application/json".into())], &body))
        }
    }
}

/// The 401 for a request that may not read.
fn refuse(state: &RegistryState, request: &RequestLog) -> Option<Response<AnswerBody>> {
    let given = request.authorization().unwrap_or_default();
    let mut challenges = Vec::new();
    match state.options.auth.as_ref()? {
        Auth::Basic { user, password } => {
            if given == tokens::basic(user, password) {
                return None;
            }
            challenges.push("Basic realm=\"test\"".to_owned());
        }
        Auth::Token(auth) => {
            let rest = request.path.split_once("/v2/").map(|(_, rest)| rest).unwrap_or_default();
            let repository = ["/manifests/", "/blobs/", "/referrers/"]
                .iter()
                .find_map(|mark| rest.rsplit_once(mark))
                .map_or("", |(name, _)| name);
            let scope = format!("repository:{repository}:pull");
            let takes_basic = auth.basic != BasicOffer::Never;
            if let Some((user, password)) = &auth.user
                && takes_basic
                && given == tokens::basic(user, password)
                && !matches!(auth.basic, BasicOffer::For(part) if !request.path.contains(part))
            {
                return None;
            }
            let is_basic_alone = match auth.basic {
                BasicOffer::Never | BasicOffer::WithBearer => false,
                BasicOffer::AfterToken => given.starts_with("Bearer "),
                BasicOffer::For(part) => request.path.contains(part),
            };
            if is_basic_alone {
                return Some(challenged(&["Basic realm=\"test\"".to_owned()]));
            }
            if let Some(token) = given.strip_prefix("Bearer ")
                && auth.accepts_tokens
                && (auth.registry_token.as_deref() == Some(token) || state.tokens.is_good(token, &scope))
            {
                return None;
            }
            let own = format!("{}/token", state.url());
            let realm = auth.realm.as_deref().unwrap_or(&own);
            let scope = auth.challenge_scope.as_deref().unwrap_or(&scope);
            let error = if given.is_empty() { "" } else { ",error=\"invalid_token\"" };
            if auth.basic == BasicOffer::WithBearer {
                challenges.push("Basic realm=\"test\"".to_owned());
            }
            challenges.push(format!("Bearer realm=\"{realm}\",service=\"test\",scope=\"{scope}\"{error}"));
        }
    }
    Some(challenged(&challenges))
}

/// A 401 with these challenges.
fn challenged(challenges: &[String]) -> Response<AnswerBody> {
    let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    headers.extend(challenges.iter().map(|challenge| ("www-authenticate".to_owned(), challenge.clone())));
    let body = json!({ "errors": [{ "code": "UNAUTHORIZED", "message": "authentication required" }] }).to_string();
    status(401, &headers, &body)
}

/// Finds the document of `name/manifests/reference` or `name/blobs/digest`, or the code of the error.
fn find(state: &RegistryState, rest: &str) -> Result<StoredDocument, &'static str> {
    let content = state.content.lock();
    if let Some((repository, name)) = rest.rsplit_once("/manifests/") {
        let digest = match name.parse::<Digest>() {
            Ok(digest) => digest,
            Err(_) => content.tags.get(&(repository.to_owned(), name.to_owned())).cloned().ok_or("MANIFEST_UNKNOWN")?,
        };
        let (content_type, bytes) =
            content.manifests.get(&(repository.to_owned(), digest.clone())).cloned().ok_or("MANIFEST_UNKNOWN")?;
        return Ok(StoredDocument { content_type, digest: Some(digest), bytes });
    }
    if let Some((repository, name)) = rest.rsplit_once("/referrers/") {
        return Ok(StoredDocument {
            content_type: media_type::OCI_INDEX.into(),
            digest: None,
            bytes: referrers(&content, repository, name)?,
        });
    }
    let (repository, name) = rest.rsplit_once("/blobs/").ok_or("NAME_UNKNOWN")?;
    let digest: Digest = name.parse().map_err(|_| "DIGEST_INVALID")?;
    let bytes = content.blobs.get(&(repository.to_owned(), digest.clone())).cloned().ok_or("BLOB_UNKNOWN")?;
    Ok(StoredDocument { content_type: "application/octet-stream".into(), digest: Some(digest), bytes })
}

/// The index of the manifests whose subject this is. Without any it is a registry that knows of no such lists.
fn referrers(content: &Content, repository: &str, subject: &str) -> Result<Bytes, &'static str> {
    let mut manifests = Vec::new();
    for ((_, digest), (media_type, bytes)) in content.manifests.iter().filter(|((name, _), _)| name == repository) {
        let Ok(manifest) = serde_json::from_slice::<serde_json::Value>(bytes) else { continue };
        if manifest["subject"]["digest"] != *subject {
            continue;
        }
        let kind =
            [&manifest["artifactType"], &manifest["config"]["mediaType"]].into_iter().find(|kind| kind.is_string());
        manifests.push(json!({ "mediaType": media_type, "digest": digest, "size": bytes.len(), "artifactType": kind }));
    }
    if manifests.is_empty() {
        return Err("NAME_UNKNOWN");
    }
    let index = json!({ "schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": manifests });
    Ok(index.to_string().into())
}

fn content(
    state: &RegistryState,
    request: &RequestLog,
    reset: &Arc<AtomicBool>,
    found: StoredDocument,
    (fault, gate): (Option<Fault>, CancellationToken),
    transfer: Option<Transfer>,
) -> Response<AnswerBody> {
    let mut bytes = found.bytes;
    match &fault {
        Some(Fault::Corrupt) => {
            let mut changed = bytes.to_vec();
            let middle = changed.len() / 2;
            if let Some(byte) = changed.get_mut(middle) {
                *byte ^= 0xff;
            }
            bytes = changed.into();
        }
        Some(Fault::TooLong | Fault::TooLongChunked) => bytes = [&bytes[..], b"!"].concat().into(),
        Some(Fault::TooShort) => bytes.truncate(bytes.len().saturating_sub(1)),
        _ => {}
    }
    let total = bytes.len();
    let asked = request.range().and_then(parse_range).filter(|_| fault != Some(Fault::IgnoreRange));
    let mut builder = Response::builder();
    if fault != Some(Fault::NoAcceptRanges) {
        builder = builder.header("accept-ranges", "bytes");
    }
    if let Some((start, end)) = asked {
        if start >= total || fault == Some(Fault::RefuseRange) {
            return status(416, &[("content-range".into(), format!("bytes */{total}"))], "");
        }
        let end = end.map_or(total - 1, |end| end.min(total - 1));
        bytes = bytes.slice(start..=end);
        let shown = if fault == Some(Fault::WrongContentRange) { start.saturating_sub(1) } else { start };
        builder =
            builder.status(StatusCode::PARTIAL_CONTENT).header("content-range", format!("bytes {shown}-{end}/{total}"));
    }
    let content_type = match &fault {
        Some(Fault::ContentType { value }) => value.clone(),
        _ => found.content_type,
    };
    if !content_type.is_empty() {
        builder = builder.header("content-type", content_type);
    }
    let digest = match &fault {
        Some(Fault::WrongDigestHeader) => Some(Digest::sha256(b"something else")),
        _ => found.digest,
    };
    if let Some(digest) = digest {
        builder = builder.header("docker-content-digest", digest.to_string());
    }
    if !matches!(fault, Some(Fault::Chunked | Fault::TooLongChunked | Fault::Unended)) {
        builder = builder.header("content-length", bytes.len());
    }
    let size = transfer.as_ref().map_or(PIECE, |transfer| transfer.piece(PIECE));
    let pieces = if request.method == "HEAD" { Vec::new() } else { pieces(bytes, fault.as_ref(), gate, reset, size) };
    builder.body(stream(pieces, Arc::clone(&state.sent), transfer)).expect("headers are our own")
}

fn pieces(
    bytes: Bytes,
    fault: Option<&Fault>,
    gate: CancellationToken,
    reset: &Arc<AtomicBool>,
    size: usize,
) -> Vec<Piece> {
    let cut = |bytes: &Bytes, size: usize| -> Vec<Piece> {
        (0..bytes.len()).step_by(size).map(|at| Piece::Data(bytes.slice(at..bytes.len().min(at + size)))).collect()
    };
    match fault {
        Some(Fault::Truncate { after } | Fault::Reset { after }) => {
            if matches!(fault, Some(Fault::Reset { .. })) {
                reset.store(true, Ordering::SeqCst);
            }
            let mut out = cut(&bytes.slice(..bytes.len().min(*after)), size);
            // What was written must be on its way before the end; more than the buffers of a socket takes a while.
            let pause = if *after < (16 << 10) { 1 } else { 30 };
            out.push(Piece::Pause(Duration::from_millis(pause)));
            out.push(Piece::Fail);
            out
        }
        Some(Fault::Unended) => {
            let mut out = cut(&bytes, size);
            out.push(Piece::Pause(Duration::from_millis(30)));
            out.push(Piece::Fail);
            out
        }
        Some(Fault::HangAfter { after }) => {
            let after = bytes.len().min(*after);
            let mut out = cut(&bytes.slice(..after), size);
            out.push(Piece::Gate(gate));
            out.extend(cut(&bytes.slice(after..), size));
            out
        }
        Some(Fault::Drip { piece, pause }) => {
            cut(&bytes, (*piece).max(1)).into_iter().flat_map(|data| [Piece::Pause(*pause), data]).collect()
        }
        _ => cut(&bytes, size),
    }
}

fn stream(pieces: Vec<Piece>, sent: Arc<AtomicU64>, transfer: Option<Transfer>) -> AnswerBody {
    let state = (pieces.into_iter(), sent, transfer);
    let stream = futures::stream::unfold(state, |(mut pieces, sent, mut transfer)| async move {
        loop {
            match pieces.next()? {
                Piece::Data(bytes) => {
                    if let Some(transfer) = &mut transfer {
                        transfer.pace(bytes.len()).await;
                    }
                    sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
                    if pieces.len() == 0 {
                        // A client that has the last byte may ask for more at once: for that client this transfer is
                        // over.
                        transfer = None;
                    }
                    return Some((Ok(Frame::data(bytes)), (pieces, sent, transfer)));
                }
                Piece::Pause(pause) => tokio::time::sleep(pause).await,
                Piece::Gate(gate) => gate.cancelled().await,
                Piece::Fail => {
                    return Some((Err(io::Error::other("broken on demand")), (pieces, sent, transfer)));
                }
            }
        }
    });
    StreamBody::new(stream).boxed()
}

fn parse_range(text: &str) -> Option<(usize, Option<usize>)> {
    let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
    let end = if end.is_empty() { None } else { Some(end.parse().ok()?) };
    Some((start.parse().ok()?, end))
}

fn status(code: u16, headers: &[(String, String)], body: &str) -> Response<AnswerBody> {
    let mut builder = Response::builder().status(code).header("content-length", body.len());
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    let body = if body.is_empty() { Vec::new() } else { vec![Piece::Data(Bytes::copy_from_slice(body.as_bytes()))] };
    builder.body(stream(body, Arc::default(), None)).expect("headers are our own")
}

fn redirect(location: &str) -> Response<AnswerBody> {
    status(307, &[("location".to_owned(), location.to_owned())], "")
}
