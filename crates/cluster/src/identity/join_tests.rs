//! Tests of the way to a certificate: approval, denial, trouble, restarts, renewal.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::Rotation;
use super::super::certificate::tests::certificate;
use super::*;
use crate::fake::FakeServer;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

struct Scene {
    api: FakeServer,
    directory: tempfile::TempDir,
    clock: WallClock,
    random: Random,
}

impl Scene {
    /// At this time.
    fn at(time: &str) -> Self {
        let now: Timestamp = time.parse().expect("a time");
        Self {
            api: FakeServer::new(true),
            directory: tempfile::tempdir().expect("a directory"),
            clock: Arc::new(move || now),
            random: Arc::new(|| 0.5),
        }
    }

    fn files(&self) -> IdentityFiles {
        let directory = self.directory.path().join("pki");
        IdentityFiles { kubeconfig: self.directory.path().join("kubeconfig"), directory }
    }

    async fn obtain(&self) -> Result<(), JoinError> {
        let by = Path::new("/etc/bootstrap");
        obtain(&self.files(), &self.api.client(), by, "n", &self.clock, &self.random).await
    }

    /// Returns the only request, once it exists.
    async fn request(&self) -> (String, Value) {
        loop {
            if let [path] = self.api.paths(REQUESTS).as_slice() {
                return (path.clone(), self.api.get(path).expect("there"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Decides about the request.
    async fn decide(&self, status: Value) {
        let (path, mut request) = self.request().await;
        request["status"] = status;
        self.api.put(&path, request);
    }
}

/// Approved, with a certificate for the year 2026.
fn approved() -> Value {
    let pem = certificate("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    let text = base64::engine::general_purpose::STANDARD.encode(pem);
    json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": text})
}

fn line(error: &JoinError) -> String {
    cri_api::Error::from_source(cri_api::Kind::Unknown, error).message().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_approved_request_gives_a_certificate() {
    let scene = Scene::at("2026-02-01T00:00:00Z");
    for (method, code) in [("GET", 503), ("POST", 500), ("POST", 429)] {
        scene.api.fail(&format!("{method} certificatesigningrequests"), code);
    }
    let (obtained, ()) = tokio::join!(scene.obtain(), async {
        let (_, request) = scene.request().await;
        let spec = &request["spec"];
        assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
        assert_eq!(spec["usages"], json!(["digital signature", "key encipherment", "client auth"]));
        tokio::time::sleep(Duration::from_secs(30)).await;
        scene.decide(approved()).await;
    });
    obtained.expect("a certificate");
    let files = scene.files();
    let path = files.certificate();
    let text = std::fs::read_to_string(&path).expect("written");
    assert!(text.contains("BEGIN CERTIFICATE") && text.contains("BEGIN PRIVATE KEY"));
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&files.directory)), (0o600, 0o700));
    let left: Vec<_> = std::fs::read_dir(&files.directory).expect("there").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_asks_for_the_same_certificate() {
    let scene = Scene::at("2026-02-01T00:00:00Z");
    let _ = tokio::time::timeout(Duration::from_secs(60), scene.obtain()).await.expect_err("nobody approves yet");
    let (obtained, ()) = tokio::join!(scene.obtain(), scene.decide(approved()));
    obtained.expect("a certificate");
    assert_eq!(scene.api.paths(REQUESTS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_say_who_refused_and_why() {
    let denied = json!({"conditions": [{"type": "Denied", "reason": "Strange", "message": "unknown machine"}]});
    let failed = json!({"conditions": [{"type": "Failed", "reason": "SignerError"}]});
    let garbage = json!({"certificate": "AAAA"});
    for (status, want) in
        [(denied, "denied: Strange unknown machine"), (failed, "signed: SignerError"), (garbage, "cannot be used")]
    {
        let scene = Scene::at("2026-02-01T00:00:00Z");
        let (obtained, ()) = tokio::join!(scene.obtain(), scene.decide(status));
        let line = line(&obtained.expect_err(want));
        assert!(line.contains(want) && line.contains("/etc/bootstrap"), "{line}");
        assert_eq!(std::fs::read_dir(scene.files().directory).expect("there").count(), 0, "the key is not used again");
    }
    for (code, want) in [(401, "wrong, or have expired"), (403, "may not ask"), (422, "refuses the request")] {
        let scene = Scene::at("2026-02-01T00:00:00Z");
        scene.api.fail("POST certificatesigningrequests", code);
        let line = line(&scene.obtain().await.expect_err(want));
        assert!(line.contains(want), "{line}");
    }
    let scene = Scene::at("2026-02-01T00:00:00Z");
    let line = line(&scene.obtain().await.expect_err("nobody approves"));
    assert!(line.contains("within 15 minutes"), "{line}");
    // The issued certificate is not valid at the time of this clock.
    let scene = Scene::at("2028-02-01T00:00:00Z");
    let (obtained, ()) = tokio::join!(scene.obtain(), scene.decide(approved()));
    assert!(matches!(obtained, Err(JoinError::Certificate { .. })), "{obtained:?}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_in_time_and_not_before() {
    for (now, renewed) in [("2026-10-01T00:00:00Z", false), ("2026-10-30T00:00:00Z", true)] {
        let scene = Scene::at(now);
        let files = scene.files();
        std::fs::create_dir(&files.directory).expect("made");
        let old = certificate("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        std::fs::write(files.certificate(), &old).expect("written");
        let rotation = Rotation {
            files: files.clone(),
            bootstrap: "/etc/bootstrap".into(),
            node: "n".into(),
            client: scene.api.client(),
            clock: Arc::clone(&scene.clock),
            random: Arc::clone(&scene.random),
        };
        let stop = CancellationToken::new();
        let decide = async {
            if renewed {
                // Valid from the day of the renewal on.
                let pem = certificate("2026-10-30T00:00:00Z", "2027-10-30T00:00:00Z");
                let text = base64::engine::general_purpose::STANDARD.encode(pem);
                scene.decide(json!({"certificate": text})).await;
            }
            tokio::time::sleep(Duration::from_secs(3600)).await;
            stop.cancel();
        };
        tokio::join!(rotation.run(&stop), decide);
        assert_eq!(scene.api.paths(REQUESTS).len(), usize::from(renewed), "{now}");
        let text = std::fs::read_to_string(files.certificate()).expect("there");
        assert_eq!(text != old, renewed, "{now}");
    }
}

#[test]
fn the_kubeconfig_has_the_cluster_and_the_certificate() {
    let scene = Scene::at("2026-02-01T00:00:00Z");
    let files = scene.files();
    let text = "clusters:\n- name: other\n  cluster: {server: 'https://other'}\n- name: c\n  cluster: {server: 'https://127.0.0.1:6443', certificate-authority-data: QQ==}\n\
                contexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\nusers:\n- name: u\n  user: {token: abc.def}\n";
    let bootstrap = Kubeconfig::from_yaml(text).expect("a kubeconfig");
    files.write_kubeconfig(&bootstrap).expect("written");
    assert!(!files.are_foreign());
    let made = std::fs::read_to_string(&files.kubeconfig).expect("there");
    assert!(!made.contains("abc.def"), "the token stays where it is: {made}");
    let made = Kubeconfig::from_yaml(&made).expect("a kubeconfig");
    assert_eq!(made.clusters.len(), 1);
    assert_eq!(made.clusters[0].cluster.as_ref().and_then(|c| c.server.as_deref()), Some("https://127.0.0.1:6443"));
    let user = made.auth_infos[0].auth_info.as_ref().expect("a user");
    assert_eq!(user.client_certificate, Some(files.certificate().display().to_string()));
    assert_eq!(user.client_key, user.client_certificate);
    for others in [text, "]"] {
        std::fs::write(&files.kubeconfig, others).expect("written");
        assert!(files.are_foreign(), "{others}");
    }
}
