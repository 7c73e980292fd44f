//! The API of a real agent: by curl, by other users, and as `imagelet top` shows it while a pull is under way.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::support::gate::Gate;
use crate::support::process::{eventually, run, tool};
use crate::support::pty::Pty;
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing, runtime};

/// A user and a group without an account.
const USER: u32 = 64_123;
const GROUP: u32 = 64_124;

/// The agent's answer to a request.
fn get(socket: &Path, path: &str) -> Value {
    let socket = socket.display().to_string();
    let text = run(tool("curl").args(["--silent", "--unix-socket", &socket, &format!("http://imagelet{path}")]));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_example_in_shell_does_what_it_says() {
    let s = Scene::new();
    let (name, image) = s.push_file("api/one:1", "a", vec![7_u8; 1 << 20]);
    let _agent = s.imagelet.serve(&s.scratch.join("cri.sock"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/api.sh");
    let socket = s.scratch.join("store/admin.sock");
    let text = run(tool("sh").arg(script).arg(&socket).arg(&name));
    for part in [
        r#""mayChange":true"#,
        "event: progress",
        "event: pulled",
        r#""outcome":"pulled""#,
        &image.id,
        &format!(r#"{{"results":[{{"image":"{name}"}}]}}"#),
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(s.imagelet.ids(), Vec::<String>::new(), "it removed the image again");
    let document = get(&socket, "/v1/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn watch_of_images_follows_the_agent_and_continues_without_one() {
    let s = Scene::new();
    let (one, _) = s.push_file("watch/one:1", "a", "one");
    let (two, _) = s.push_file("watch/two:1", "a", "two");
    let mut agent = s.imagelet.serve(&s.scratch.join("cri.sock"));
    let watch = s.imagelet.clone().global("--log-level", "debug").daemon(&[
        "images",
        "--watch",
        "-o",
        "custom-columns=TAG:.repoTags[0]",
    ]);
    watch.wait_for("that it follows", |line| line.contains("following the images of the agent").then_some(()));
    // Waits until this many lists have arrived, and this is the last one.
    let shows = |count: usize, want: &[&str]| {
        watch.wait_until(&format!("{want:?} as list {count}"), |lines| {
            let lists = lines.iter().filter(|line| *line == "TAG").count();
            let last = lines.iter().rev().take_while(|line| *line != "TAG").filter(|line| !line.contains("DEBUG"));
            let last: BTreeSet<&str> = last.map(String::as_str).collect();
            (lists == count && last == want.iter().copied().collect()).then_some(())
        });
    };
    shows(1, &[]);
    s.imagelet.ok(&["pull", &one]);
    shows(2, &[&one]);
    s.imagelet.ok(&["pull", &two]);
    shows(3, &[&one, &two]);
    s.imagelet.ok(&["rmi", &one]);
    shows(4, &[&two]);

    agent.stop();
    watch.wait_for("that the agent is gone", |line| line.contains("the agent ended").then_some(()));
    s.imagelet.ok(&["pull", &one]);
    shows(5, &[&one, &two]);
    // Another agent is followed as the first one.
    let follows = |lines: &[String]| lines.iter().filter(|line| line.contains("following the images")).count() == 2;
    let _agent = s.imagelet.serve(&s.scratch.join("cri.sock"));
    watch.wait_until("that it follows the next", |lines| follows(lines).then_some(()));
    s.imagelet.ok(&["rmi", &two]);
    shows(6, &[&one]);
}

/// An agent with an image of two layers behind a gate, and a pull of it by a command that is under way.
struct Pulling {
    _agent: crate::support::process::Daemon,
    pull: std::process::Child,
    gate: Gate,
    name: String,
    _runtime: tokio::runtime::Runtime,
    s: Scene,
}

fn pulling() -> Pulling {
    let s = Scene::new();
    let layers: Vec<_> =
        ["one", "two"].iter().map(|name| s.file_layer(name, noise_of(name, 3_000_000), Packing::Gzip)).collect();
    s.registry.push(&s.layout, &s.layout.image(&layers), "team/app:1");
    let runtime = runtime();
    let gate = runtime.block_on(Gate::start(s.registry.host().to_owned()));
    gate.hold_answers_after(500_000);
    let name = format!("{}/team/app:1", gate.host());
    let agent = s.imagelet.serve(&s.scratch.join("cri.sock"));
    let pull = s.imagelet.spawn(&["pull", &name]);
    Pulling { _agent: agent, pull, gate, name, _runtime: runtime, s }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_of_another_command_is_seen_with_its_layers() {
    let mut p = pulling();
    let socket = p.s.scratch.join("store/admin.sock");
    let pulls = || get(&socket, "/v1/pulls");
    eventually("bytes of both layers", || {
        let pulls = pulls();
        let layers = pulls["pulls"][0]["layers"].as_array().cloned().unwrap_or_default();
        layers.len() == 2 && layers.iter().all(|layer| layer["receivedBytes"].as_u64() > Some(100_000))
    });
    let pull = pulls()["pulls"][0].clone();
    assert_eq!((&pull["image"], &pull["step"]), (&Value::from(p.name.as_str()), &Value::from("fetching")), "{pull:#}");
    assert_eq!(pull["waiters"], 1, "{pull:#}");
    assert!(pull["totalBytes"].as_u64() > Some(5_900_000) && pull["layers"][0]["state"] == "fetching", "{pull:#}");

    let plain = p.s.imagelet.ok(&["top"]);
    assert!(plain.contains(&p.name) && plain.contains("fetching") && plain.contains("0/2"), "{plain}");
    assert!(!plain.contains('\u{1b}'), "no escape sequences: {plain:?}");

    let terminal = p.s.imagelet.clone().env("TERM", "xterm-256color");
    let mut pty = Pty::start(terminal.command(&["top"]), (80, 24));
    pty.until_screen("the pull", |screen| screen.contains("team/app:1") && screen.contains("fetching"));
    pty.until_screen("the keys", |screen| screen.contains("q quit  ? help") && screen.contains("Enter details"));
    pty.press("?");
    pty.until_screen("the help", |screen| screen.contains("select a pull, a pod or an image"));
    pty.press("?");
    pty.until_screen("the list", |screen| screen.contains("fetching"));
    pty.press("j");
    pty.press("\r");
    pty.until_screen("the layers", |screen| screen.contains("requested by") && screen.matches("layer ").count() == 2);
    pty.press("\x7f");
    pty.resize((60, 12));
    pty.until_screen("the pull on a smaller one", |screen| screen.contains("fetching") && screen.lines().count() == 12);
    p.gate.open();
    assert!(p.pull.wait().expect("it ends").success());
    pty.until_screen("its end", |screen| screen.contains("pulled 6") && screen.contains("no running pulls"));
    // The image of the pull is listed, and its details have commands.
    pty.resize((80, 24));
    pty.until_screen("the list of images", |screen| screen.contains("IMAGE ID"));
    pty.press("g");
    pty.press("\r");
    pty.until_screen("the image", |screen| screen.contains("on disk") && screen.contains("$ imagelet gc explain"));
    pty.press("q");
    assert_eq!(pty.end(), Some(0));
    assert_eq!(pty.text(), "\n", "the screen before is back");

    let ended = pulls()["ended"][0].clone();
    assert_eq!((&ended["outcome"], &ended["wantedBy"][0]["kind"]), (&Value::from("pulled"), &Value::from("command")));
    assert!(ended["receivedBytes"].as_u64() > Some(5_900_000), "{ended:#}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_kernel_says_who_may_change_things_and_who_may_read() {
    let s = Scene::new();
    let (name, _) = s.push_file("api/who:1", "a", "a");
    s.imagelet.ok(&["pull", &name]);
    let shared = tempfile::Builder::new().prefix("imagelet-api").tempdir().expect("a directory");
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let socket = shared.path().join("admin.sock");
    let settings = |imagelet: Imagelet| imagelet.global("--admin-socket", &socket.display().to_string());
    let opened = settings(s.imagelet.clone()).global("--admin-group", &GROUP.to_string());
    // The caller has a root of its own, which does not exist, and a program that it may start.
    let program = shared.path().join("imagelet");
    std::fs::copy(env!("CARGO_BIN_EXE_imagelet"), &program).expect("a copy");
    let as_user = |groups: &str| {
        let setpriv = tool("setpriv").get_program().display().to_string();
        let user = [format!("--reuid={USER}"), format!("--regid={USER}"), format!("--groups={groups}")];
        let words: Vec<&str> = [setpriv.as_str()].into_iter().chain(user.iter().map(String::as_str)).collect();
        let root = PathBuf::from("/nonexistent/root");
        settings(Imagelet::on(&root).program(program.clone())).through(&words)
    };
    let (member, other) = (as_user(&GROUP.to_string()), as_user(&USER.to_string()));

    let mut agent = opened.serve(&s.scratch.join("cri.sock"));
    assert_eq!(std::fs::metadata(&socket).expect("it is there").permissions().mode() & 0o777, 0o660);
    assert_eq!(member.ok(&["backoff", "reset", "--all"]), "0\n");
    other.fails(77, &["backoff"]);
    agent.stop();

    let mut agent = opened.flag("--admin-others-read=true").serve(&s.scratch.join("cri.sock"));
    assert_eq!(member.ok(&["backoff", "reset", "--all"]), "0\n");
    assert!(other.ok(&["top"]).contains("1 image"));
    other.ok(&["backoff"]);
    let line = other.fails(77, &["backoff", "reset", "--all"]);
    assert!(line.contains(&format!("user {USER} may not do this")) && line.contains("adminGroup"), "{line}");
    agent.stop();

    let line = s.imagelet.clone().global("--admin-group", "0").fails(64, &["serve", "--listen", "unix:///run/x.sock"]);
    assert!(line.contains("adminGroup is set and adminSocket is not"), "{line}");
}

/// A request on the admin socket, and the first line of its answer.
fn first_line(socket: &Path, target: &str) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(socket).expect("connect to the admin socket");
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").expect("written");
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("an answer");
    (stream, line)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn another_user_cannot_take_the_streams_of_root() {
    let s = Scene::new();
    let shared = tempfile::Builder::new().prefix("imagelet-api").tempdir().expect("a directory");
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let socket = shared.path().join("admin.sock");
    let agent = s.imagelet.clone().global("--admin-socket", &socket.display().to_string());
    let _agent = agent.flag("--admin-others-read=true").serve(&s.scratch.join("cri.sock"));
    // As many connections as a user may have: eight have a stream each, the rest are refused.
    let curl = tool("curl").get_program().display().to_string();
    let mut streams = tool("setpriv");
    streams.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups", &curl, "--silent"]);
    streams.args(["--parallel", "--parallel-immediate", "--parallel-max", "16", "--unix-socket"]).arg(&socket);
    streams.args(["--output", "/dev/null", "--write-out", "%{stderr}\\nstatus %{http_code}\\n"]);
    let mut streams = streams.arg("http://imagelet/v1/pulls/events?since=[1-16]").stderr(Stdio::piped()).spawn();
    let streams = streams.as_mut().expect("start curl");
    // Between them is what curl says of its progress.
    let lines = BufReader::new(streams.stderr.take().expect("piped")).lines().map(|line| line.expect("text"));
    let answers: Vec<String> = lines.filter(|line| line.starts_with("status ")).take(8).collect();
    assert_eq!(answers, ["status 429"; 8]);

    // Root has all of its own.
    let own: Vec<(UnixStream, String)> = (0..64).map(|_| first_line(&socket, "/v1/pulls/events")).collect();
    for (_, line) in &own {
        assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    }
    assert_eq!(first_line(&socket, "/v1/images/events").1, "HTTP/1.1 429 Too Many Requests\r\n");
    assert_eq!(first_line(&socket, "/v1/pulls").1, "HTTP/1.1 200 OK\r\n");
    streams.kill().expect("it runs");
    streams.wait().expect("it is our child");
}
