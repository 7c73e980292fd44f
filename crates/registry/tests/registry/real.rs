//! The client and the builder's push against Debian's `docker-registry`, open and with htpasswd.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use oci::RegistryAuth;
use registry::ErrorKind;
use registry::testing::{BuiltIndex, ImageBuilder, LayerBuilder, PushAuth};

use crate::support::{client, fetch, noise, reference};

const PROGRAM: &str = "/usr/bin/docker-registry";
/// bcrypt of `swordfish`.
const HTPASSWD: &str = "ada:$2y$05$0WAVrJ8V0HwjvT9e8h0HDeMQ66d5w2K99BqishCGisDJa3wqvYEMW\n";

struct Registry {
    process: Child,
    host: String,
    _dir: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a real registry is a program")]
fn start(with_password: bool) -> Registry {
    let installed = Path::new(PROGRAM).exists();
    assert!(installed, "{PROGRAM} is missing: scripts/prerequisites.sh installs it");
    let dir = tempfile::tempdir().expect("a directory");
    let auth = if with_password {
        let path = dir.path().join("htpasswd");
        std::fs::write(&path, HTPASSWD).expect("written");
        format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", path.display())
    } else {
        String::new()
    };
    let config = format!(
        "version: 0.1\nlog:\n  level: info\n  formatter: json\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n{auth}",
        dir.path().join("data").display()
    );
    let path = dir.path().join("registry.yml");
    std::fs::write(&path, config).expect("written");
    let mut process = std::process::Command::new(PROGRAM)
        .arg("serve")
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // It chooses a port and says so.
    let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
    let host = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| {
            let at = line.find("listening on ")? + "listening on ".len();
            line[at..].split('"').next().map(str::to_owned)
        })
        .expect("says where it listens");
    // Nobody may be left without a reader.
    std::thread::spawn(move || lines.for_each(drop));
    Registry { process, host, _dir: dir }
}

#[tokio::test]
async fn everything_comes_back() {
    let real = start(false);
    let base = format!("http://{}", real.host);
    let big = LayerBuilder::new().file("big", noise(3_000_000)).plain();
    let image = ImageBuilder::new().layer(big).layer(LayerBuilder::new().file("a", "b").zstd()).user("1000").build();
    image.push_http(&base, "team/app", "1").await.expect("pushed");
    let session = client().repository(&reference(&format!("{}/team/app:1", real.host)), None).expect("hosts");
    let fetched = session.resolve().await.expect("resolves");
    assert_eq!((&fetched.digest, &fetched.bytes), (image.digest(), &image.manifest));
    assert_eq!(session.blob_bytes(&image.config_descriptor, 1 << 20).await.expect("config"), image.config);
    for layer in &image.layers {
        assert_eq!(fetch(&session, &layer.descriptor).await.expect("layer"), layer.blob);
    }
    let index = BuiltIndex::docker(vec![image, ImageBuilder::tiny("x")]);
    index.push_http(&base, "team/multi", "1").await.expect("pushed");
    let session = client().repository(&reference(&format!("{}/team/multi:1", real.host)), None).expect("hosts");
    assert_eq!(session.resolve().await.expect("resolves").bytes, index.bytes);
    assert_eq!(session.manifest(&index.images[1].descriptor).await.expect("manifest").bytes, index.images[1].manifest);

    let nobody = client().repository(&reference(&format!("{}/team/app:2", real.host)), None).expect("hosts");
    let error = nobody.resolve().await.expect_err("no such tag");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("404 Not Found (MANIFEST_UNKNOWN: manifest unknown)"), "{error}");
}

#[tokio::test]
async fn with_a_password() {
    let real = start(true);
    let base = format!("http://{}", real.host);
    let image = ImageBuilder::tiny("a");
    let auth = PushAuth { user: "ada", password: "swordfish" };
    image.push_http_as(&base, "app", "1", Some(auth)).await.expect("pushed");
    let name = reference(&format!("{}/app:1", real.host));
    let with = |auth: Option<RegistryAuth>| client().repository(&name, auth).expect("hosts");
    let session = with(Some(RegistryAuth::basic("ada", "swordfish")));
    session.resolve().await.expect("resolves");
    session.blob_bytes(&image.config_descriptor, 1 << 20).await.expect("config");
    for auth in [None, Some(RegistryAuth::basic("ada", "wrong-password"))] {
        let error = with(auth).resolve().await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        assert!(error.to_string().contains("UNAUTHORIZED: authentication required"), "{error}");
    }
}
