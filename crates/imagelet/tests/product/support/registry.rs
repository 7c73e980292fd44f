//! Debian's docker-registry on a free port, with its own directory, behind a [`Front`] that notes what is asked. Pushes images over plain HTTP/1.1 written here, so
//! that imagelet's client is only ever on the reading side.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::front::Front;
use super::images::{Image, Layout};
use super::process::{Daemon, run, tool};

/// A running registry.
pub(crate) struct DockerRegistry {
    front: Front,
    /// Where the registry itself listens.
    inner: String,
    directory: PathBuf,
    daemon: Daemon,
}

impl DockerRegistry {
    /// Starts one that keeps its content in `directory`.
    #[track_caller]
    pub(crate) fn start(directory: &Path) -> Self {
        let (daemon, inner) = start_daemon(directory, "127.0.0.1:0", "", "");
        Self { front: Front::start(&inner), inner, directory: directory.to_path_buf(), daemon }
    }

    /// Stops it. Later requests are cut off.
    pub(crate) fn stop(&mut self) {
        self.daemon.stop();
    }

    /// Starts it again where it was, after [`DockerRegistry::stop`]. Its port is free only in a network of the test's own.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        (self.daemon, self.inner) = start_daemon(&self.directory, &self.inner, "", "");
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn host(&self) -> &str {
        self.front.host()
    }

    /// The whole name of an image here.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.host())
    }

    /// Pushes an image as `repository:tag`. The answer is its whole name.
    #[track_caller]
    pub(crate) fn push(&self, layout: &Layout, image: &Image, name: &str) -> String {
        let (repository, tag) = name.rsplit_once(':').expect("a name with a tag");
        for blob in &image.blobs {
            let path = layout.blob_path(&blob.digest);
            if blob.media_type == oci::media_type::OCI_MANIFEST {
                let body = fs::read(&path).expect("read a manifest");
                self.put(
                    &format!("/v2/{repository}/manifests/{}", blob.digest),
                    &blob.media_type,
                    &mut &body[..],
                    blob.size,
                );
                continue;
            }
            let (status, headers, _) =
                self.request("POST", &format!("/v2/{repository}/blobs/uploads/"), &[], &mut io::empty(), 0);
            assert_eq!(status, 202, "start an upload");
            let location = header(&headers, "location").expect("an upload has a location");
            let path_and_query =
                location.split_once(&self.inner).map_or(location.as_str(), |(_, rest)| rest).to_owned();
            let separator = if path_and_query.contains('?') { '&' } else { '?' };
            let target = format!("{path_and_query}{separator}digest={}", blob.digest);
            let mut file = File::open(&path).expect("open a blob");
            self.put(&target, "application/octet-stream", &mut file, blob.size);
        }
        let body = fs::read(layout.blob_path(&image.manifest.digest)).expect("read a manifest");
        let target = format!("/v2/{repository}/manifests/{tag}");
        self.put(&target, &image.manifest.media_type, &mut &body[..], image.manifest.size);
        self.name(name)
    }

    #[track_caller]
    fn put(&self, target: &str, media_type: &str, body: &mut dyn io::Read, size: u64) {
        let (status, _, answer) = self.request("PUT", target, &[("Content-Type", media_type)], body, size);
        assert_eq!(status, 201, "PUT {target}: {}", String::from_utf8_lossy(&answer));
    }

    /// Makes a request on a connection of its own. Returns status, headers and body.
    #[track_caller]
    fn request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &mut dyn io::Read,
        size: u64,
    ) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.inner).expect("connect to the registry");
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.inner);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {size}\r\n\r\n"));
        stream.write_all(head.as_bytes()).expect("send a request");
        io::copy(body, &mut stream).expect("send a body");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("read an answer");
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("an answer has a head");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("an answer has a status");
        (status, head, answer[end + 4..].to_vec())
    }

    /// Waits until the registry's own access log, pushes included, has what `wanted` makes something of.
    #[track_caller]
    pub(crate) fn accesses_until<T>(&self, what: &str, wanted: impl Fn(&[Access]) -> Option<T>) -> T {
        self.daemon.wait_until(what, |lines| wanted(&accesses(lines)))
    }

    /// `METHOD path` of every request so far but those of [`DockerRegistry::push`].
    pub(crate) fn requests(&self) -> Vec<String> {
        self.front.requests()
    }
}

/// A registry that wants TLS and a password. It starts with what another one, without either, was filled with.
pub(crate) struct GuardedRegistry {
    /// Where it listens: `127.0.0.1:PORT`.
    pub(crate) host: String,
    /// The authority that clients must trust, as a file.
    pub(crate) authority: PathBuf,
    /// The password file, which it reads again when it changes.
    users: PathBuf,
    /// Number of lines of the access log that were already returned.
    told: AtomicUsize,
    daemon: Daemon,
}

impl GuardedRegistry {
    /// Starts one on the directory that [`DockerRegistry::start`] had, for these users and their passwords.
    #[track_caller]
    pub(crate) fn start(directory: &Path, users: &[(&str, &str)]) -> Self {
        let file = |name: &str| directory.join(name);
        let (authority, authority_key) = (file("ca.pem"), file("ca.key"));
        let (certificate, key, passwords) = (file("cert.pem"), file("key.pem"), file("htpasswd"));
        make_certificate(&authority, &authority_key, &["-subj", "/CN=test authority"]);
        let signed_by = [
            "-CA",
            &authority.display().to_string(),
            "-CAkey",
            &authority_key.display().to_string(),
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ];
        make_certificate(&certificate, &key, &signed_by);
        write_passwords(&passwords, users);
        let tls = format!(", tls: {{certificate: {}, key: {}}}", certificate.display(), key.display());
        let auth = format!("auth: {{htpasswd: {{realm: guarded, path: {}}}}}\n", passwords.display());
        let (daemon, host) = start_daemon(directory, "127.0.0.1:0", &tls, &auth);
        Self { host, authority, users: passwords, told: AtomicUsize::new(0), daemon }
    }

    /// The whole name of an image here.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }

    /// Replaces the accepted users and passwords.
    #[track_caller]
    pub(crate) fn set_users(&self, users: &[(&str, &str)]) {
        write_passwords(&self.users, users);
    }

    /// Writes `hosts.toml` with its authority below `certs`; the answer is `certs`, for `--registry-config-path`.
    #[track_caller]
    pub(crate) fn hosts_file(&self, certs: &Path) -> String {
        let directory = certs.join(&self.host);
        fs::create_dir_all(&directory).expect("create a directory of hosts");
        let text = format!("server = \"https://{}\"\nca = \"{}\"\n", self.host, self.authority.display());
        fs::write(directory.join("hosts.toml"), text).expect("write a hosts file");
        certs.display().to_string()
    }

    /// The access log since the last call.
    #[track_caller]
    pub(crate) fn asked(&self) -> Vec<Access> {
        // A marker request: when its line is in the log, all earlier lines are.
        let marker = format!("/v2/marker/manifests/{}", self.told.load(Ordering::Relaxed));
        let script = format!(
            "printf 'GET {marker} HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -connect {} -CAfile {} 2>&1",
            self.host,
            self.authority.display()
        );
        run(tool("bash").args(["-c", &script]));
        let mut all = self.daemon.wait_until("the marker in the access log", |lines| {
            let all = accesses(lines);
            all.iter().any(|a| a.path == marker).then_some(all)
        });
        let mut new = all.split_off(self.told.swap(all.len(), Ordering::Relaxed));
        new.retain(|access| access.path != marker);
        new
    }
}

/// A line of the registry's access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
}

impl Access {
    /// Returns true for a request for a manifest of this repository.
    pub(crate) fn is_manifest_of(&self, repository: &str) -> bool {
        self.path.starts_with(&format!("/v2/{repository}/manifests/"))
    }

    /// Returns true for a request for a blob.
    pub(crate) fn is_blob(&self) -> bool {
        self.path.contains("/blobs/sha256:")
    }
}

fn accesses(lines: &[String]) -> Vec<Access> {
    let read = |line: &String| {
        // The combined log format: host - user [time] "METHOD path protocol" status length "referrer" "agent"
        let (_, rest) = line.split_once("] \"")?;
        let (request, rest) = rest.split_once("\" ")?;
        let [method, path, protocol] = request.split(' ').collect::<Vec<_>>().try_into().ok()?;
        protocol.starts_with("HTTP/").then_some(())?;
        let mut numbers = rest.split(' ');
        let (status, bytes) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        Some(Access { method: method.to_owned(), path: path.to_owned(), status, bytes })
    };
    lines.iter().filter_map(read).collect()
}

/// Writes a password file in one step: the registry may be reading it.
#[track_caller]
fn write_passwords(file: &Path, users: &[(&str, &str)]) {
    users.iter().for_each(|(user, password)| super::secrets::note(user, password));
    // A low cost: the registry computes it for every request.
    let entries = users.iter().map(|(user, password)| run(tool("htpasswd").args(["-BbnC", "4", user, password])));
    let new = file.with_extension("new");
    fs::write(&new, entries.collect::<String>()).expect("write a password file");
    fs::rename(&new, file).expect("put a password file in place");
}

/// Makes a key and a certificate for it.
#[track_caller]
fn make_certificate(certificate: &Path, key: &Path, more: &[&str]) {
    run(tool("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"])
        .args(more)
        .arg("-out")
        .arg(certificate)
        .arg("-keyout")
        .arg(key));
}

/// Starts docker-registry at this address with additions to its configuration; the answer is where it listens.
#[track_caller]
fn start_daemon(directory: &Path, address: &str, http: &str, more: &str) -> (Daemon, String) {
    fs::create_dir_all(directory).expect("create the registry's directory");
    let config = directory.join("config.yml");
    let text = format!(
        "version: 0.1\n\
         log: {{level: info, formatter: json, accesslog: {{disabled: false}}}}\n\
         storage: {{filesystem: {{rootdirectory: {}}}, delete: {{enabled: true}}}}\n\
         http: {{addr: '{address}', secret: loopback{http}}}\n{more}",
        directory.join("data").display()
    );
    fs::write(&config, text).expect("write the registry's configuration");
    let program = tool("docker-registry");
    let daemon = Daemon::start(Path::new(program.get_program()), &["serve", &config.display().to_string()]);
    let host = daemon.wait_for("where it listens", |line| {
        let (_, rest) = line.split_once("listening on ")?;
        Some(rest.split(['"', ',']).next().unwrap_or_default().to_owned())
    });
    (daemon, host)
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (n, value) = line.split_once(':')?;
        n.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}
