//! `kubectl top`: figures of the node and its pods by the resource metrics API. An API server of the test's own answers it as metrics-server
//! does: with the token of a service account it reads `/metrics/resource` of the kubelet's port, and makes rates of two samples.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use base::lock::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::support::cluster::Namespace;
use crate::support::control_plane::ControlPlane;
use crate::support::network::NODE_IP;
use crate::support::node::{FOREVER, NODE};
use crate::support::process::tool;

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

pub(super) fn top(scene: &Namespace<'_>) {
    let plane = &scene.cluster.plane;
    serve(plane);
    // One that takes all the CPU time that it may have, one with 32 MiB in memory, and one that sleeps.
    let mut busy = scene.cluster.container("main", "while :; do :; done");
    busy["resources"] = json!({"limits": {"cpu": "200m"}});
    let large = format!("head -c 33554432 /dev/zero > /dev/shm/zeroes; {FOREVER}");
    for (name, container) in [
        ("busy", busy),
        ("large", scene.cluster.container("main", &large)),
        ("idle", scene.cluster.container("main", FOREVER)),
    ] {
        scene.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [container]}));
        scene.ready(name);
    }
    plane.until("the API of metrics is available", || plane.try_kubectl(&["get", "--raw", GROUP]).code == Some(0));

    // A row of the table without its heading: thousandths of a processor and MiB.
    let rows = |args: &[&str]| -> BTreeMap<String, (u64, u64)> {
        let done = scene.try_kubectl(&[&["top"], args, &["--no-headers"]].concat());
        let number = |cell: &str| cell.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let [name, figures @ ..] = &cells[..] else { return None };
            let figures = figures.iter().filter(|cell| !cell.ends_with('%')).filter_map(|cell| number(cell));
            Some(((*name).to_owned(), <[u64; 2]>::try_from(figures.collect::<Vec<_>>()).ok()?.into()))
        };
        done.stdout.lines().filter_map(row).collect()
    };
    let mut pods = BTreeMap::new();
    plane.until("kubectl top has figures of all pods", || {
        pods = rows(&["pod"]);
        pods.len() == 3 && pods["busy"].0 > 50 && pods["large"].1 >= 32
    });
    let (busy, large, idle) = (pods["busy"], pods["large"], pods["idle"]);
    assert!(busy.0 <= 300, "it may have 200m: {pods:?}");
    assert!((32..100).contains(&large.1), "{pods:?}");
    assert!(idle.0 < busy.0 / 2 && idle.1 < 32, "{pods:?}");
    let nodes = rows(&["node"]);
    let (cpu, memory) = nodes[NODE];
    assert!(cpu >= busy.0 / 2 && memory > 32, "the node has more than its pods: {nodes:?} {pods:?}");
    let table = scene.kubectl(&["top", "node"]);
    assert!(table.contains("CPU(%)") || table.contains("CPU%"), "{table}");
    assert!(!table.contains("<unknown>"), "the node says how much it has: {table}");
}

/// Registers the API, and serves it until the process ends.
#[track_caller]
fn serve(plane: &ControlPlane) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen on loopback");
    let port = listener.local_addr().expect("it listens").port();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "metrics-server", "namespace": "kube-system"}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:metrics-server"},
                      "rules": [{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "system:metrics-server"},
                         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:metrics-server"},
                         "subjects": [{"kind": "ServiceAccount", "name": "metrics-server", "namespace": "kube-system"}]});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics-server", "namespace": "kube-system"},
                         "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let api = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
                     "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                              "groupPriorityMinimum": 100, "versionPriority": 100,
                              "service": {"name": "metrics-server", "namespace": "kube-system", "port": port}}});
    for object in [account, role, binding, service] {
        plane.apply(&object);
    }
    let token = plane.token("kube-system", "metrics-server");
    let file = |name: &str| plane.file(name);
    let certificates = CertificateDer::pem_file_iter(file("server.crt")).expect("read a certificate");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("read a key");
    let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(certificates.map(|found| found.expect("a certificate")).collect(), key)
        .expect("a certificate and its key");
    let (tls, metrics) = (Arc::new(tls), Arc::new(Metrics { token, first: Mutex::default() }));
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (tls, metrics) = (Arc::clone(&tls), Arc::clone(&metrics));
            thread::spawn(move || drop(answer(client, tls, &metrics)));
        }
    });
    // The server asks at once what the API has.
    plane.apply(&api);
}

/// Answers the requests of one connection.
fn answer(client: TcpStream, tls: Arc<ServerConfig>, metrics: &Metrics) -> std::io::Result<()> {
    let connection = ServerConnection::new(tls).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, client));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let target = head.split(' ').nth(1).unwrap_or_default();
        let path = target.split('?').next().unwrap_or_default();
        let (status, body) = match metrics.answer(path) {
            Some(body) => ("200 OK", body),
            None => ("404 Not Found", json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})),
        };
        let body = body.to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        stream.get_mut().write_all((head + &body).as_bytes())?;
        stream.get_mut().flush()?;
    }
}

/// Samples by name and labels, with their times in milliseconds.
type Samples = BTreeMap<String, (f64, Option<i64>)>;

/// The metrics of the node.
struct Metrics {
    /// The token that they are asked for with.
    token: String,
    /// Guards the samples that were the first of their names.
    first: Mutex<Samples>,
}

impl Metrics {
    fn answer(&self, path: &str) -> Option<Value> {
        let list = |kind: &str, items: Vec<Value>| json!({"kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items});
        let path = path.strip_prefix(GROUP)?;
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts[..] {
            [] => {
                let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": ["get", "list"]});
                Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
                            "resources": [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)]}))
            }
            ["nodes"] => {
                let samples = self.sample();
                let usage = self.usage(&samples, "node_cpu_usage_seconds_total", "node_memory_working_set_bytes");
                let node = |usage| json!({"metadata": {"name": NODE}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s", "usage": usage});
                Some(list("NodeMetricsList", usage.map(node).into_iter().collect()))
            }
            ["namespaces", namespace, "pods"] => Some(list("PodMetricsList", self.pods(&self.sample(), namespace))),
            _ => None,
        }
    }

    /// The pods of a namespace of which everything is known.
    fn pods(&self, samples: &Samples, namespace: &str) -> Vec<Value> {
        let of_containers = samples.keys().filter_map(|name| name.strip_prefix("container_start_time_seconds"));
        let of_namespace = of_containers.filter(|labels| labels.contains(&format!("namespace=\"{namespace}\"")));
        let pod = |labels: &str| {
            let label = |name: &str| labels.split(&format!("{name}=\"")).nth(1)?.split('"').next();
            let cpu = format!("container_cpu_usage_seconds_total{labels}");
            let usage = self.usage(samples, &cpu, &format!("container_memory_working_set_bytes{labels}"))?;
            Some(
                json!({"metadata": {"name": label("pod")?, "namespace": namespace}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
                        "containers": [{"name": label("container")?, "usage": usage}]}),
            )
        };
        of_namespace.filter_map(pod).collect()
    }

    /// CPU time between the first sample and this one, and the memory of now.
    fn usage(&self, samples: &Samples, cpu: &str, memory: &str) -> Option<Value> {
        let (now, at) = samples.get(cpu)?;
        let (then, from) = *self.first.lock().get(cpu)?;
        let milliseconds = (*at)?.checked_sub(from?).filter(|time| *time > 0)?;
        #[expect(clippy::cast_precision_loss, reason = "rates are floats")]
        let nanocores = (now - then) * 1e12 / milliseconds as f64;
        let bytes = samples.get(memory)?.0;
        Some(json!({"cpu": format!("{nanocores:.0}n"), "memory": format!("{:.0}Ki", bytes / 1024.0)}))
    }

    /// Asks the node, as metrics-server does.
    fn sample(&self) -> Samples {
        let url = format!("https://{NODE_IP}:10250/metrics/resource");
        let header = format!("Authorization: Bearer {}", self.token);
        let output = tool("curl").args(["-sSkf", "-H", &header, &url]).output().expect("start curl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut samples = Samples::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.rsplitn(3, ' ').collect::<Vec<_>>();
            words.reverse();
            let (name, value, at) = match words[..] {
                [name, value, at] => (name, value, at.parse().ok()),
                [name, value] => (name, value, None),
                _ => continue,
            };
            if let Ok(value) = value.parse() {
                samples.insert(name.to_owned(), (value, at));
            }
        }
        let mut first = self.first.lock();
        for (name, sample) in &samples {
            first.entry(name.clone()).or_insert(*sample);
        }
        samples
    }
}
