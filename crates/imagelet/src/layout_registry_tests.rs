//! A layout on disk, served on a real port and read by plain HTTP/1.1 over a socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use oci::media_type;
use tokio::io::AsyncWriteExt as _;
use tokio_util::task::TaskTracker;

use super::*;

struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    config: Digest,
    manifest: Digest,
    _directory: tempfile::TempDir,
}

struct Got {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn put(directory: &Path, bytes: &[u8]) -> Digest {
    let digest = Digest::sha256(bytes);
    let blobs = directory.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("directory");
    std::fs::write(blobs.join(digest.hex()), bytes).expect("blob");
    digest
}

async fn served() -> Served {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path();
    std::fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    let config = put(path, br#"{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[]}}"#);
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": media_type::OCI_MANIFEST,
        "config": {"mediaType": media_type::OCI_CONFIG, "digest": config, "size": 82},
        "layers": [],
    });
    let manifest = put(path, manifest.to_string().as_bytes());
    let entry = |name: &str| {
        serde_json::json!({
            "mediaType": media_type::OCI_MANIFEST, "digest": manifest, "size": 1,
            "annotations": {"org.opencontainers.image.ref.name": name},
        })
    };
    let manifests: Vec<_> = ["h.example:5000/demo/x:1.0", "demo/x:2", "demo/x:3", "busybox"].map(entry).into();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": manifests});
    std::fs::write(path.join("index.json"), index.to_string()).expect("written");

    let layout = Content::open(path, None).expect("a layout");
    let port = listen("127.0.0.1:0").await.expect("a port");
    let address = port.address();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    tasks.spawn(serve(port, layout, stop.clone()));
    Served { address, stop, tasks, config, manifest, _directory: directory }
}

impl Served {
    async fn ask(&self, method: &str, path: &str, range: Option<&str>) -> Got {
        self.ask_as("localhost", method, path, range).await
    }

    /// Sends a request with this name as the registry's host.
    async fn ask_as(&self, host: &str, method: &str, path: &str, range: Option<&str>) -> Got {
        let mut stream = tokio::net::TcpStream::connect(self.address).await.expect("connected");
        let range = range.map(|r| format!("Range: {r}\r\n")).unwrap_or_default();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{range}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("answered");
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|l| l.split(' ').nth(1)).and_then(|s| s.parse().ok()).expect("a status");
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Got { status, headers, body: bytes[end + 4..].to_vec() }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

#[tokio::test]
async fn the_pull_side_of_the_specification() {
    let served = served().await;
    assert_eq!(served.ask("GET", "/v2/", None).await.status, 200);

    for reference in ["1.0", "2", &served.manifest.to_string()] {
        let got = served.ask("GET", &format!("/v2/demo/x/manifests/{reference}"), None).await;
        assert_eq!((got.status, got.header("content-type")), (200, media_type::OCI_MANIFEST), "{reference}");
        assert_eq!(got.header("docker-content-digest"), served.manifest.to_string());
        assert_eq!(Digest::sha256(&got.body), served.manifest);
    }
    assert_eq!(served.ask("GET", "/v2/busybox/manifests/latest", None).await.status, 200);

    let path = format!("/v2/demo/x/blobs/{}", served.config);
    let whole = served.ask("GET", &path, None).await;
    assert_eq!((whole.status, Digest::sha256(&whole.body)), (200, served.config.clone()));
    let escaped = served.ask("GET", &path.replace(':', "%3A"), None).await;
    assert_eq!(escaped.body, whole.body);

    let head = served.ask("HEAD", &path, None).await;
    assert_eq!((head.status, head.header("content-length")), (200, whole.header("content-length")));
    assert_eq!(head.header("docker-content-digest"), served.config.to_string());
    assert!(head.body.is_empty());
    let head = served.ask("HEAD", "/v2/demo/x/manifests/1.0", None).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_ne!(head.header("content-length"), "0");
    served.stop().await;
}

#[tokio::test]
async fn ranges_resume_a_blob() {
    let served = served().await;
    let path = format!("/v2/demo/x/blobs/{}", served.config);
    let whole = served.ask("GET", &path, None).await.body;
    let part = served.ask("GET", &path, Some("bytes=10-")).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &whole[10..]));
    assert_eq!(part.header("content-range"), format!("bytes 10-{}/{}", whole.len() - 1, whole.len()));
    let part = served.ask("GET", &path, Some("bytes=3-5")).await;
    assert_eq!((part.status, part.body.as_slice(), part.header("content-length")), (206, &whole[3..6], "3"));
    let none = served.ask("GET", &path, Some("bytes=100000-")).await;
    assert_eq!((none.status, none.header("content-range")), (416, format!("bytes */{}", whole.len()).as_str()));
    served.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let served = served().await;
    let got = served.ask("GET", "/v2/demo/x/tags/list", None).await;
    assert_eq!(got.json(), serde_json::json!({"name": "demo/x", "tags": ["1.0", "2", "3"]}));
    let got = served.ask("GET", "/v2/demo/x/tags/list?n=2", None).await;
    assert_eq!(got.json()["tags"], serde_json::json!(["1.0", "2"]));
    assert_eq!(got.header("link"), "</v2/demo/x/tags/list?n=2&last=2>; rel=\"next\"");
    let got = served.ask("GET", "/v2/demo/x/tags/list?n=2&last=2", None).await;
    assert_eq!((got.json()["tags"].clone(), got.header("link")), (serde_json::json!(["3"]), ""));
    let got = served.ask("GET", "/v2/_catalog", None).await;
    assert_eq!(got.json(), serde_json::json!({"repositories": ["busybox", "demo/x"]}));
    served.stop().await;
}

#[tokio::test]
async fn refusals_have_the_specified_form() {
    let served = served().await;
    let absent = Digest::sha256(b"absent");
    let cases = [
        ("GET", "/v2/demo/x/manifests/none".to_owned(), 404, "MANIFEST_UNKNOWN"),
        ("GET", format!("/v2/demo/x/manifests/{absent}"), 404, "MANIFEST_UNKNOWN"),
        // A blob that is no manifest is not served as a manifest.
        ("GET", format!("/v2/demo/x/manifests/{}", served.config), 404, "MANIFEST_UNKNOWN"),
        ("GET", format!("/v2/demo/x/blobs/{absent}"), 404, "BLOB_UNKNOWN"),
        ("GET", "/v2/demo/x/blobs/sha256:../../../etc/passwd".to_owned(), 400, "DIGEST_INVALID"),
        ("GET", "/v2/none/manifests/1".to_owned(), 404, "NAME_UNKNOWN"),
        ("GET", "/v2/none/tags/list".to_owned(), 404, "NAME_UNKNOWN"),
        ("GET", "/etc/passwd".to_owned(), 404, "NAME_UNKNOWN"),
        ("GET", "/v2x/demo/x/manifests/1.0".to_owned(), 404, "NAME_UNKNOWN"),
        ("PUT", "/v2/demo/x/manifests/4".to_owned(), 405, "UNSUPPORTED"),
        ("POST", "/v2/demo/x/blobs/uploads/".to_owned(), 405, "UNSUPPORTED"),
    ];
    for (method, path, status, code) in cases {
        let got = served.ask(method, &path, None).await;
        assert_eq!(got.status, status, "{method} {path}");
        assert_eq!(got.json()["errors"][0]["code"], code, "{method} {path}");
    }
    served.stop().await;
}

#[tokio::test]
async fn another_name_reaches_no_registry_on_loopback() {
    let served = served().await;
    for path in ["/v2/", "/v2/_catalog", "/v2/demo/x/manifests/1.0"] {
        for host in ["evil.example", "evil.example:5000", "127.0.0.1.evil.example", ""] {
            let got = served.ask_as(host, "GET", path, None).await;
            assert_eq!(got.status, 421, "{host} {path}");
            assert!(!got.body.starts_with(b"{"), "{host} {path}");
        }
        for host in ["127.0.0.1:5000", "LOCALHOST", "[::1]:5000"] {
            assert_eq!(served.ask_as(host, "GET", path, None).await.status, 200, "{host} {path}");
        }
    }
    served.stop().await;
}
