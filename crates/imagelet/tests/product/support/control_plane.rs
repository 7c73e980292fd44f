//! A Kubernetes control plane of the test's own: etcd, kube-apiserver, and on request kube-controller-manager and kube-scheduler, on
//! free ports of loopback, with their own certificates and a kubeconfig for each user of a test. `kubectl` is the client.
//! `scripts/control-plane.sh` downloads the programs, or `KUBEBUILDER_ASSETS=DIR` names others.

use std::fs;
use std::io::BufReader;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::cli::Done;
use super::clock::Time;
use super::process::{Daemon, run, signal, tool};
use super::scratch::Scratch;

/// How long a server may take to start, and an object to reach a state, while other tests run on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long one watch may deliver nothing.
const WATCH: Duration = Duration::from_secs(15);
/// The addresses of services.
const SERVICES: &str = "10.0.0.0/24";

/// The control plane. Fields are dropped in this order: a field before those that it uses.
pub(crate) struct ControlPlane {
    managers: Vec<Daemon>,
    server: Option<Daemon>,
    etcd: Daemon,
    server_port: u16,
    etcd_port: u16,
    scratch: Scratch,
}

impl ControlPlane {
    /// Starts etcd and the API server, and returns when it is ready. A test that does not share the machine's network is in its
    /// own already ([`super::network::enter_own_network`]).
    #[track_caller]
    pub(crate) fn start() -> Self {
        let scratch = Scratch::new();
        make_certificates(&scratch);
        let [server_port, etcd_port, peer_port] = free_ports();
        let (client, peer) = (format!("http://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peer_port}"));
        let etcd = Daemon::start(
            &program("etcd"),
            &[
                &format!("--data-dir={}", scratch.join("etcd").display()),
                &format!("--listen-client-urls={client}"),
                &format!("--advertise-client-urls={client}"),
                &format!("--listen-peer-urls={peer}"),
                &format!("--initial-advertise-peer-urls={peer}"),
                &format!("--initial-cluster=default={peer}"),
                "--unsafe-no-fsync",
            ],
        );
        let mut plane = Self { managers: Vec::new(), server: None, etcd, server_port, etcd_port, scratch };
        plane.user("/O=system:masters/CN=admin");
        plane.start_server();
        plane
    }

    /// The same with the controller manager and the scheduler.
    #[track_caller]
    pub(crate) fn with_managers() -> Self {
        let mut plane = Self::start();
        let certificate = |name: &str| plane.scratch.join(name).display().to_string();
        let common = ["--leader-elect=false".to_owned(), "--secure-port=0".to_owned()];
        let manager = [
            // All controllers in one, with one identity: it needs the rights of each of them.
            format!("--kubeconfig={}", plane.user("/O=system:masters/CN=system:kube-controller-manager").display()),
            format!("--root-ca-file={}", certificate("ca.crt")),
            format!("--cluster-signing-cert-file={}", certificate("ca.crt")),
            format!("--cluster-signing-key-file={}", certificate("ca.key")),
            format!("--service-account-private-key-file={}", certificate("accounts.key")),
        ];
        let scheduler = [format!("--kubeconfig={}", plane.user("/CN=system:kube-scheduler").display())];
        for (name, args) in [("kube-controller-manager", &manager[..]), ("kube-scheduler", &scheduler[..])] {
            let args: Vec<&str> = args.iter().chain(&common).map(String::as_str).collect();
            plane.managers.push(Daemon::start(&program(name), &args));
        }
        // The account that pods have without asking for one.
        plane.until("the account of pods is there", || {
            plane.try_kubectl(&["get", "serviceaccount", "default"]).code == Some(0)
        });
        plane
    }

    /// Starts the API server at its previous address, and returns when it is ready.
    #[track_caller]
    pub(crate) fn start_server(&mut self) {
        assert!(self.server.is_none(), "an API server runs already");
        let file = |name: &str| self.scratch.join(name).display().to_string();
        let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
                            "rules": [{"level": "Metadata", "userGroups": ["system:nodes"]}, {"level": "None"}]});
        fs::write(self.file("audit-policy.json"), policy.to_string()).expect("write a policy");
        let args = [
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            // So that a test can read what etcd has.
            "--storage-media-type=application/json".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.server_port),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("accounts.pub")),
            format!("--service-account-signing-key-file={}", file("accounts.key")),
            format!("--service-cluster-ip-range={SERVICES}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            "--allow-privileged=true".to_owned(),
            // Loopback is no address of an endpoint.
            "--endpoint-reconciler-type=none".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
            format!("--kubelet-client-key={}", file("kubelet-client.key")),
            format!("--audit-policy-file={}", file("audit-policy.json")),
            format!("--audit-log-path={}", file("audit.log")),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let server = Daemon::start(&program("kube-apiserver"), &args);
        let ready = || {
            let mut curl = tool("curl");
            curl.args(["-sS", "--cacert", &file("ca.crt"), "--cert", &file("admin.crt"), "--key", &file("admin.key")]);
            let answer = curl.arg(format!("{}/readyz", self.url())).output().expect("start curl");
            answer.stdout == b"ok"
        };
        let from = Instant::now();
        while !ready() {
            assert!(from.elapsed() < PATIENCE, "the API server is not ready:\n{}", last_of(&server.lines()));
            std::thread::park_timeout(Duration::from_millis(100));
        }
        self.server = Some(server);
    }

    /// Kills the API server as `kill -9` does.
    #[track_caller]
    pub(crate) fn kill_server(&mut self) {
        self.server.take().expect("an API server runs").kill();
    }

    /// Process of the API server.
    #[track_caller]
    pub(crate) fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("an API server runs").pid()
    }

    /// Stops the API server from answering; its connections stay open.
    #[track_caller]
    pub(crate) fn freeze_server(&self) {
        signal(self.server.as_ref().expect("an API server runs").pid(), Signal::STOP);
    }

    /// Lets the stopped server continue.
    #[track_caller]
    pub(crate) fn thaw_server(&self) {
        signal(self.server.as_ref().expect("an API server runs").pid(), Signal::CONT);
    }

    /// Restarts the API server with a certificate of another authority. `ca.crt` has both from now on; controllers and scheduler know
    /// the old one alone.
    #[track_caller]
    pub(crate) fn change_authority(&mut self) {
        self.kill_server();
        let file = |name: &str| self.scratch.join(name);
        let old = fs::read_to_string(file("ca.crt")).expect("an authority");
        make_authority(&self.scratch, "/CN=another-ca");
        make_server_certificate(&self.scratch);
        let new = fs::read_to_string(file("ca.crt")).expect("an authority");
        fs::write(file("ca.crt"), new + &old).expect("write two authorities");
        self.start_server();
    }

    /// Makes etcd forget all revisions but the present ones, as an API server does every five minutes.
    #[track_caller]
    pub(crate) fn compact(&self) {
        let at = |path: &str, body: &Value| -> Value {
            let url = format!("http://127.0.0.1:{}/v3/{path}", self.etcd_port);
            let answer = run(tool("curl").args(["-sSf", "-d", &body.to_string(), &url]));
            serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{path}: {e}: {answer}"))
        };
        let now = at("kv/range", &json!({"key": "AA=="}))["header"]["revision"].clone();
        at("kv/compaction", &json!({"revision": now, "physical": true}));
    }

    /// Watches the keys of etcd with a prefix: a line of JSON for each message. Continues while the API server is down.
    #[track_caller]
    pub(crate) fn watch_etcd(&self, prefix: &str) -> Daemon {
        let (from, mut end) = (prefix.as_bytes().to_vec(), prefix.as_bytes().to_vec());
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let body = json!({"create_request": {"key": STANDARD.encode(from), "range_end": STANDARD.encode(end)}});
        let url = format!("http://127.0.0.1:{}/v3/watch", self.etcd_port);
        let watch = Daemon::start(tool("curl").get_program().as_ref(), &["-sSN", "-d", &body.to_string(), &url]);
        watch.wait_for("that etcd watches", |line| line.contains("\"created\":true").then_some(()));
        watch
    }

    /// `https://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.server_port)
    }

    /// A file of the control plane: `ca.crt`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// The kubeconfig of the administrator.
    pub(crate) fn admin(&self) -> PathBuf {
        self.scratch.join("admin.kubeconfig")
    }

    /// A kubeconfig with the identity of a node.
    #[track_caller]
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.user(&format!("/O=system:nodes/CN=system:node:{name}"))
    }

    /// A kubeconfig with a client certificate for this subject.
    #[track_caller]
    pub(crate) fn user(&self, subject: &str) -> PathBuf {
        let name = subject.rsplit_once("/CN=").expect("a subject has a common name").1.replace(':', "-");
        let certificate = self.file(&format!("{name}.crt"));
        if !certificate.exists() {
            make_certificate(&self.scratch, &name, subject, "extendedKeyUsage=clientAuth", &[]);
        }
        let key = self.file(&format!("{name}.key"));
        self.kubeconfig(&name, &json!({"client-certificate": certificate, "client-key": key}))
    }

    /// A kubeconfig of this name, with whatever its user has.
    #[track_caller]
    pub(crate) fn kubeconfig(&self, name: &str, user: &Value) -> PathBuf {
        self.kubeconfig_of(name, &json!({"server": self.url(), "certificate-authority": self.file("ca.crt")}), user)
    }

    /// The same with whatever its cluster has.
    #[track_caller]
    pub(crate) fn kubeconfig_of(&self, name: &str, cluster: &Value, user: &Value) -> PathBuf {
        let path = self.file(&format!("{name}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(&path, text.to_string()).expect("write a kubeconfig");
        path
    }

    /// A token of a service account. TokenRequest has been there since 1.12, `kubectl create token` asks servers from 1.24 on.
    #[track_caller]
    pub(crate) fn token(&self, namespace: &str, account: &str) -> String {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let file = self.file("token-request.json");
        fs::write(&file, body.to_string()).expect("write a request");
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let answer = self.kubectl(&["create", "--raw", &path, "-f", &file.display().to_string()]);
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let token = answer["status"]["token"].as_str().expect("a token").to_owned();
        super::secrets::note_bare(&token);
        token
    }

    /// `kubectl` as the administrator.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_as(&self.admin(), args)
    }

    /// Returns `kubectl` as another user.
    pub(crate) fn command_as(&self, kubeconfig: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program("kubectl"));
        command.env_clear().env("HOME", self.scratch.path()).env("KUBECONFIG", kubeconfig).env("PATH", "/usr/bin:/bin");
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Runs `kubectl` to its end, whatever that is.
    #[track_caller]
    pub(crate) fn try_kubectl(&self, args: &[&str]) -> Done {
        end(&mut self.command(args))
    }

    /// Runs `kubectl` to a good end. The answer is its standard output.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        run(&mut self.command(args))
    }

    /// Makes or changes objects, as `kubectl apply` does.
    #[track_caller]
    pub(crate) fn apply(&self, objects: &Value) {
        let file = self.file("apply.json");
        fs::write(&file, objects.to_string()).expect("write objects");
        self.kubectl(&["apply", "-f", &file.display().to_string()]);
    }

    /// `kubectl get … -o json`.
    #[track_caller]
    pub(crate) fn get(&self, args: &[&str]) -> Value {
        let text = self.kubectl(&[&["get"], args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("get {args:?}: {e}:\n{text}"))
    }

    /// The same; `None` where the object is not there, or the server.
    #[track_caller]
    pub(crate) fn try_get(&self, args: &[&str]) -> Option<Value> {
        let done = self.try_kubectl(&[&["get"], args, &["-o", "json"]].concat());
        (done.code == Some(0)).then(|| serde_json::from_str(&done.stdout).expect("kubectl answers JSON"))
    }

    /// Waits until an object is such, and answers it.
    #[track_caller]
    pub(crate) fn until_object(&self, args: &[&str], what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let from = Instant::now();
        loop {
            // A watch instead of polling. It ends when the object does not exist, and with the server. One that began while the server
            // recovered from a fault may deliver nothing, so that another one follows.
            let mut watch =
                Watch::start(self.command(&[&["get"], args, &["-o", "json", "-w", "--output-watch-events"]].concat()));
            while let Some(mut object) = watch.next(WATCH.min(PATIENCE.saturating_sub(from.elapsed()))) {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                if wanted(&object) {
                    return object;
                }
                last = Some(object);
            }
            assert!(
                from.elapsed() < PATIENCE,
                "{args:?} never comes to this: {what}; it is {:#}",
                last.unwrap_or_default()
            );
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// Waits until something is so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let from = Instant::now();
        while !is_so() {
            assert!(from.elapsed() < PATIENCE, "it never comes to this: {what}");
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// `kubectl wait`, for what it can wait for.
    #[track_caller]
    pub(crate) fn wait(&self, args: &[&str]) {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl(&[&["wait", &timeout], args].concat());
    }

    /// The requests of nodes so far, as the API server's audit log has them.
    #[track_caller]
    pub(crate) fn requests_of_nodes(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.file("audit.log")).expect("read the audit log");
        // The last line may be being written.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Returns true if the server has this resource in this version of its group: `batch/v1`, `cronjobs`.
    #[track_caller]
    pub(crate) fn serves(&self, version: &str, resource: &str) -> bool {
        let found = self.try_kubectl(&["get", "--raw", &format!("/apis/{version}")]);
        let list: Value = serde_json::from_str(&found.stdout).unwrap_or_default();
        list["resources"].as_array().into_iter().flatten().any(|found| found["name"] == resource)
    }

    /// Major and minor version of the API server, for what an older one drops without a word.
    #[track_caller]
    pub(crate) fn version(&self) -> (u32, u32) {
        let text = self.kubectl(&["get", "--raw", "/version"]);
        let version: Value = serde_json::from_str(&text).expect("a version is JSON");
        let number = |field: &str| version[field].as_str().and_then(|n| n.trim_end_matches('+').parse().ok());
        number("major").zip(number("minor")).unwrap_or_else(|| panic!("no version is in {text}"))
    }
}

#[expect(clippy::print_stderr, reason = "a test that fails says what its daemons said")]
impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said =
                end(&mut self.command(&["get", "nodes,pods,events", "-A", "-o", "wide", "--request-timeout=5s"]));
            eprintln!("the cluster:\n{}{}", said.stdout, said.stderr);
            for daemon in self.server.iter().chain([&self.etcd]).chain(&self.managers) {
                eprintln!("a daemon of the control plane:\n{}", last_of(&daemon.lines()));
            }
        }
    }
}

/// A `kubectl get -w` that runs.
struct Watch {
    child: Child,
    objects: Receiver<Value>,
}

impl Watch {
    #[track_caller]
    fn start(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let (sender, objects) = mpsc::channel();
        let events = BufReader::new(child.stdout.take().expect("piped"));
        let events = serde_json::Deserializer::from_reader(events).into_iter::<Value>();
        std::thread::spawn(move || {
            let lasting = events.map_while(Result::ok).filter(|event| event["type"] != "DELETED");
            lasting.map(|mut event| event["object"].take()).try_for_each(|object| sender.send(object))
        });
        Self { child, objects }
    }

    /// How the object is next; `None` at the end of the watch or of the patience.
    fn next(&mut self, patience: Duration) -> Option<Value> {
        self.objects.recv_timeout(patience).ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program of the control plane.
#[track_caller]
fn program(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/");
        let said = run(tool("bash").arg(repository.join("scripts/control-plane.sh")));
        PathBuf::from(said.trim())
    });
    let found = [directory.join(name), PathBuf::from("/usr/bin").join(name)].into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not in {}", directory.display()))
}

fn end(command: &mut Command) -> Done {
    let output = command.output().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

fn last_of(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Returns unused ports. In the test's own network no other process takes them meanwhile.
#[track_caller]
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("listen on loopback"));
    listeners.map(|listener| listener.local_addr().expect("it listens").port())
}

/// The authority, the certificates that every control plane has, and the key of service accounts.
#[track_caller]
fn make_certificates(scratch: &Scratch) {
    make_authority(scratch, "/CN=ca");
    make_server_certificate(scratch);
    for (name, subject) in
        [("admin", "/O=system:masters/CN=admin"), ("kubelet-client", "/O=system:masters/CN=kubelet-client")]
    {
        make_certificate(scratch, name, subject, "extendedKeyUsage=clientAuth", &[]);
    }
    let file = |name: &str| scratch.join(name).display().to_string();
    run(tool("openssl").args(["genrsa", "-out", &file("accounts.key"), "2048"]));
    run(tool("openssl").args(["rsa", "-in", &file("accounts.key"), "-pubout", "-out", &file("accounts.pub")]));
}

#[track_caller]
fn make_authority(scratch: &Scratch, subject: &str) {
    let usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"];
    make_certificate(scratch, "ca", subject, "basicConstraints=critical,CA:TRUE", &usage);
}

#[track_caller]
fn make_server_certificate(scratch: &Scratch) {
    let names =
        "subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.0.0.1";
    make_certificate(scratch, "server", "/CN=kube-apiserver", "extendedKeyUsage=serverAuth", &["-addext", names]);
}

/// A key and a certificate that the authority has signed; the authority signs its own. It is two days old, as if clocks were never off.
#[track_caller]
fn make_certificate(scratch: &Scratch, name: &str, subject: &str, extension: &str, more: &[&str]) {
    let file = |name: &str| scratch.join(name).display().to_string();
    let mut openssl = tool("openssl");
    openssl.envs(Time { set: -2 * 24 * 3600, ..Time::default() }.environment());
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
    openssl.args(["-subj", subject, "-addext", extension]).args(more);
    if name != "ca" {
        openssl.args([
            "-CA",
            &file("ca.crt"),
            "-CAkey",
            &file("ca.key"),
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
    }
    run(openssl.args(["-keyout", &file(&format!("{name}.key")), "-out", &file(&format!("{name}.crt"))]));
}
