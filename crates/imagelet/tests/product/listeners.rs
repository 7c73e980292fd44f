//! Every TCP listener of the program: metrics, the status page, `imagelet registry`. None answers to a foreign name on loopback, and
//! idle connections do not lock clients out. Port 10250 has its own tests in `cluster`.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpSocket;

use crate::support::node::Node;
use crate::support::process::{Daemon, PATIENCE, run, tool};
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing, runtime};

/// More idle connections than a listener has room for.
const FLOOD: usize = 600;

/// The URL that follows `after` in a line of a log.
fn url_in(line: &str, after: &str) -> Option<String> {
    let rest = &line[line.find(after)?..];
    let from = rest.find("http")?;
    Some(rest[from..].split(['"', ' ']).next()?.trim_end_matches('/').to_owned())
}

/// The status with which curl is answered.
#[track_caller]
fn status(url: &str, words: &[&str]) -> String {
    let mut curl = tool("curl");
    curl.args(["-sk", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}"]).args(words).arg(url);
    String::from_utf8(curl.output().expect("curl").stdout).expect("text")
}

#[track_caller]
fn answers_to_its_own_names(url: &str) {
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example"] {
        assert_eq!(status(url, &["-H", &format!("Host: {host}")]), "421", "{host} {url}");
    }
    for host in ["localhost", "127.0.0.1:1", "[::1]"] {
        assert_eq!(status(url, &["-H", &format!("Host: {host}")]), "200", "{host} {url}");
    }
}

fn registry(s: &Scene) -> (Daemon, String) {
    let image = s.layout.image(&[s.file_layer("a", "one\n", Packing::Gzip)]);
    s.layout.name(&image, "site/app:1.0");
    let layout = s.layout.path().display().to_string();
    let daemon = Imagelet::bare().daemon(&["registry", "--layout", &layout, "--listen", "127.0.0.1:0"]);
    let host = daemon.wait_for("where it listens", |line| line.starts_with("127.0.0.1:").then(|| line.to_owned()));
    (daemon, format!("http://{host}"))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_listener_of_a_program_answers_to_another_name() {
    let s = Scene::new();
    let (_registry, at) = registry(&s);
    for path in ["/v2/", "/v2/_catalog", "/v2/site/app/manifests/1.0"] {
        answers_to_its_own_names(&format!("{at}{path}"));
    }
    let serve = s.imagelet.clone().global("--metrics-address", "127.0.0.1:0").global("--status-address", "127.0.0.1:0");
    let agent = serve.serve(&s.scratch.join("cri.sock"));
    let page = agent.wait_for("the URL of the page", |line| url_in(line, "status page"));
    let metrics = agent.wait_for("the URL of the metrics", |line| url_in(line, "metrics"));
    answers_to_its_own_names(&format!("{page}/"));
    answers_to_its_own_names(&metrics);

    // The root of the metrics port lists its paths, and each of them answers.
    let root = metrics.strip_suffix("/metrics").expect("the path of metrics");
    let list = run(tool("curl").args(["-sS", "--fail", &format!("{root}/")]));
    for path in ["/metrics", "/healthz", "/livez", "/readyz"] {
        assert!(list.contains(&format!("<a href=\"{path}\">")), "{path} in {list}");
        assert_eq!(status(&format!("{root}{path}"), &[]), "200");
    }

    // Where it is no loopback address, a name is wanted.
    let wide = Imagelet::on(&s.scratch.join("wide")).global("--metrics-address", "0.0.0.0:0");
    let agent = wide.serve(&s.scratch.join("wide.sock"));
    let metrics = agent.wait_for("the URL of the metrics", |line| url_in(line, "metrics"));
    assert_eq!(status(&metrics, &["-H", "Host: node.example:9095"]), "200");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_listener_of_a_node_answers_to_another_name() {
    let node = Node::with(&json!({"statusAddress": "127.0.0.1:0", "metricsAddress": "127.0.0.1:0"}));
    let find = |after: &str| node.log().iter().find_map(|line| url_in(line, after));
    node.eventually("both listen", || find("status page").is_some() && find("metrics").is_some());
    answers_to_its_own_names(&(find("status page").expect("a URL") + "/"));
    answers_to_its_own_names(&find("metrics").expect("a URL"));
}

/// Idle connections from several addresses, the oldest first.
fn flood(url: &str) -> Vec<TcpStream> {
    let host = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("a host");
    let to: SocketAddr = host.parse().expect("an address");
    runtime().block_on(async {
        let mut idle = Vec::new();
        for number in 0..FLOOD {
            let socket = TcpSocket::new_v4().expect("a socket");
            let from = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + number % 8).expect("small"));
            socket.bind(SocketAddr::new(IpAddr::V4(from), 0)).expect("bound");
            let stream = socket.connect(to).await.expect("connect").into_std().expect("a stream");
            stream.set_nonblocking(false).expect("blocking");
            idle.push(stream);
        }
        idle
    })
}

#[track_caller]
fn is_answered_in_a_flood(url: &str, words: &[&str]) {
    let mut idle = flood(url);
    let mut byte = [0];
    idle[0].set_read_timeout(Some(PATIENCE)).expect("a timeout");
    match idle[0].read(&mut byte) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the oldest connection to {url} is not evicted: {other:?}"),
    }
    let last = idle.last_mut().expect("many");
    last.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    assert!(last.read(&mut byte).is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the youngest is open");
    assert_eq!(status(url, words), "200", "{url}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn idle_connections_do_not_block_other_clients() {
    let s = Scene::new();
    let token = s.scratch.join("token");
    std::fs::write(&token, "token-of-readers-0123\n").expect("written");
    let serve = s.imagelet.clone().global("--metrics-address", "127.0.0.1:0").global("--status-address", "127.0.0.1:0");
    let open = serve.serve(&s.scratch.join("cri.sock"));
    let page = open.wait_for("the URL of the page", |line| url_in(line, "status page"));
    let metrics = open.wait_for("the URL of the metrics", |line| url_in(line, "metrics"));
    is_answered_in_a_flood(&format!("{page}/"), &[]);
    is_answered_in_a_flood(&metrics, &[]);

    let closed = Imagelet::on(&s.scratch.join("closed")).global("--status-address", "127.0.0.1:0");
    let closed = closed.global("--status-token-file", &token.display().to_string());
    let agent = closed.serve(&s.scratch.join("closed.sock"));
    let page = agent.wait_for("the URL of the page", |line| url_in(line, "status page"));
    is_answered_in_a_flood(&format!("{page}/"), &["-u", "reader:token-of-readers-0123"]);

    let (_registry, at) = registry(&s);
    is_answered_in_a_flood(&format!("{at}/v2/"), &[]);
}
