//! The client and the builders against real programs: `docker-registry`, open and with htpasswd, `tar` and `skopeo`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use oci::RegistryAuth;
use registry::ErrorKind;
use registry::testing::{BuiltIndex, Entry, EntryKind, ImageBuilder, LayerBuilder, PushAuth};

use crate::support::{client, fetch, noise, reference};

const PROGRAM: &str = "/usr/bin/docker-registry";
/// bcrypt of `swordfish`.
const HTPASSWD: &str = "ada:$2y$05$0WAVrJ8V0HwjvT9e8h0HDeMQ66d5w2K99BqishCGisDJa3wqvYEMW\n";

pub(crate) struct Registry {
    process: Child,
    pub(crate) host: String,
    _dir: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a real registry is a program")]
pub(crate) fn start(with_password: bool) -> Registry {
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
    // Keep reading, so that the process always has a reader of its output.
    std::thread::spawn(move || lines.for_each(drop));
    Registry { process, host, _dir: dir }
}

#[tokio::test]
#[ignore = "needs docker-registry: scripts/test.sh"]
async fn everything_is_fetched() {
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
#[ignore = "needs docker-registry: scripts/test.sh"]
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

/// The tar writer against GNU tar, which reads what it wrote.
#[test]
#[expect(clippy::disallowed_methods, reason = "tar is a program")]
fn tar_reads_it() {
    let long = format!("{}/{}", "d".repeat(90), "f".repeat(120));
    let entry = |path: &str, kind| Entry::new(path, kind);
    let mut gnu = entry(&long, EntryKind::File(b"gnu".to_vec()));
    gnu.gnu_long_names = true;
    let layer = LayerBuilder::new()
        .dir_mode("etc/", 0o700)
        .entry(entry("etc/a", EntryKind::File(b"hello".to_vec())).owner(1000, 3_000_000_000).mtime(1, 500_000_000))
        .entry(entry("before-1970", EntryKind::File(Vec::new())).mtime(-2, 0).mode(0o4755))
        .entry(entry(&format!("pax-{long}"), EntryKind::File(b"pax".to_vec())).xattr("user.x", "y"))
        .entry(gnu)
        .symlink("s", &long)
        .hardlink("h", "etc/a")
        .whiteout("etc/gone")
        .opaque("etc/")
        .char_device("null", 1, 3)
        .block_device("sda", 8, 0)
        .fifo("pipe")
        .build();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("layer.tar");
    std::fs::write(&path, &layer.tar).expect("written");
    let output = std::process::Command::new("tar")
        .args(["--list", "--verbose", "--numeric-owner", "--full-time", "--utc", "--file"])
        .arg(&path)
        .env("LC_ALL", "C")
        .output()
        .expect("tar runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let got = String::from_utf8_lossy(&output.stdout);
    let got: Vec<String> = got.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let usual = "2023-11-14 22:13:20";
    let want = [
        format!("drwx------ 0/0 0 {usual} etc/"),
        "-rw-r--r-- 1000/3000000000 5 1970-01-01 00:00:01.5 etc/a".into(),
        "-rwsr-xr-x 0/0 0 1969-12-31 23:59:58 before-1970".into(),
        format!("-rw-r--r-- 0/0 3 {usual} pax-{long}"),
        format!("-rw-r--r-- 0/0 3 {usual} {long}"),
        format!("lrwxrwxrwx 0/0 0 {usual} s -> {long}"),
        format!("hrw-r--r-- 0/0 0 {usual} h link to etc/a"),
        format!("-rw-r--r-- 0/0 0 {usual} etc/.wh.gone"),
        format!("-rw-r--r-- 0/0 0 {usual} etc/.wh..wh..opq"),
        format!("crw-r--r-- 0/0 1,3 {usual} null"),
        format!("brw-r--r-- 0/0 8,0 {usual} sda"),
        format!("prw-r--r-- 0/0 0 {usual} pipe"),
    ];
    assert_eq!(got, want);
}

/// The layout writer against skopeo, which reads what it wrote.
#[test]
#[ignore = "needs skopeo: scripts/test.sh"]
#[expect(clippy::disallowed_methods, reason = "skopeo is a program")]
fn skopeo_reads_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = ImageBuilder::tiny("a");
    image.write_layout(dir.path(), "1").expect("written");
    let index = BuiltIndex::new(vec![image.clone()]);
    let multi = tempfile::tempdir().expect("a directory");
    index.write_layout(multi.path(), "1").expect("written");
    for (dir, want) in [(dir.path(), &image.manifest), (multi.path(), &index.bytes)] {
        let output = std::process::Command::new("skopeo")
            .args(["inspect", "--raw"])
            .arg(format!("oci:{}:1", dir.display()))
            .output()
            .expect("skopeo is installed by scripts/prerequisites.sh");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.stdout, *want);
    }
}
