//! The kubelet's port through the API server: `kubectl logs`, `exec`, `attach`, `cp`, `port-forward`, figures; and who is let in.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::top::top;
use crate::support::cluster::{Cluster, Namespace, play};
use crate::support::control_plane::{PATIENCE, free_ports};
use crate::support::network::{NODE_IP, get};
use crate::support::node::{FOREVER, NODE, container_status};
use crate::support::process::{Daemon, tool};
use crate::support::pty::Pty;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kubectl_reaches_into_pods() {
    let cluster = Cluster::start();
    play(
        &cluster,
        &[
            ("logs", logs),
            ("exec", exec),
            ("terminal", terminal),
            ("attach", attach),
            ("copy", copy),
            ("forward", forward),
            ("figures", figures),
            ("top", top),
            ("let-in", let_in),
        ],
    );
}

/// A pod whose container says three lines, ends once, and then runs on.
fn talker(scene: &Namespace<'_>) {
    let script = format!(
        "test -e /shared/again && n=4 || n=1; for i in 0 1 2; do echo line $((n + i)); done; \
         test -e /shared/again || {{ touch /shared/again; exit 1; }}; {FOREVER}"
    );
    let mut main = scene.cluster.container("main", &script);
    main["volumeMounts"] = json!([{"name": "work", "mountPath": "/shared"}]);
    let volume = json!({"name": "work", "emptyDir": {}});
    scene.pod("talker", json!({"terminationGracePeriodSeconds": 1, "containers": [main], "volumes": [volume]}));
    scene.until(&["pod", "talker"], "it was started again", |pod| {
        container_status(pod, "main").is_some_and(|status| status["restartCount"] == 1 && status["ready"] == true)
    });
}

fn logs(scene: &Namespace<'_>) {
    talker(scene);
    let log = |args: &[&str]| scene.kubectl(&[&["logs", "talker"], args].concat());
    assert_eq!(log(&[]), "line 4\nline 5\nline 6\n");
    assert_eq!(log(&["--previous"]), "line 1\nline 2\nline 3\n");
    assert_eq!(log(&["--tail", "1"]), "line 6\n");
    assert_eq!(log(&["--tail", "0"]), "");
    assert_eq!(log(&["--limit-bytes", "6"]), "line 4");
    assert_eq!(log(&["--since", "1h"]), "line 4\nline 5\nline 6\n");
    let stamped = log(&["--timestamps"]);
    assert!(stamped.starts_with("20") && stamped.lines().all(|line| line.contains("Z line ")), "{stamped}");
    let none = scene.try_kubectl(&["logs", "talker", "-c", "other"]);
    assert!(none.code != Some(0) && none.stderr.contains("other"), "{}", none.stderr);

    // Followed until the container ends.
    let program = scene.cluster.plane.command(&[]).get_program().to_owned();
    let config = scene.cluster.plane.admin().display().to_string();
    let args = ["--kubeconfig", &config, "logs", "-f", "talker", "-n", &scene.name, "--tail", "1"];
    let mut follow = Daemon::start(std::path::Path::new(&program), &args);
    follow.wait_for("the last line", |line| (line == "line 6").then_some(()));
    scene.kubectl(&["exec", "talker", "--", "sh", "-c", "echo a new line > /proc/1/fd/1"]);
    follow.wait_for("the new line", |line| (line == "a new line").then_some(()));
    scene.kubectl(&["delete", "pod", "talker", "--wait=false"]);
    assert_eq!(follow.ends(), Some(0), "{:?}", follow.lines());
}

fn exec(scene: &Namespace<'_>) {
    scene.running("web");
    assert_eq!(scene.kubectl(&["exec", "web", "--", "hostname"]), "web\n");
    let done = scene.try_kubectl(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(3), "out\n"), "{}", done.stderr);
    assert!(done.stderr.contains("err"), "{}", done.stderr);
    // Input to its end, and more of it than a pipe holds.
    let bytes = vec![b'x'; 300_000];
    let mut command = scene.cluster.plane.command(&["exec", "-i", "web", "-n", &scene.name, "--", "wc", "-c"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    child.stdin.take().expect("piped").write_all(&bytes).expect("kubectl reads its input");
    let output = child.wait_with_output().expect("it is our child");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), "300000", "{}", String::from_utf8_lossy(&output.stderr));
    let none = scene.try_kubectl(&["exec", "web", "-c", "none", "--", "true"]);
    assert!(none.code != Some(0) && none.stderr.contains("none"), "{}", none.stderr);
}

fn terminal(scene: &Namespace<'_>) {
    scene.running("shell");
    let command = scene.cluster.plane.command(&[
        "exec",
        "-it",
        "shell",
        "-n",
        &scene.name,
        "--",
        "sh",
        "-c",
        "until stty size 2>/dev/null | grep .; do sleep 0.1; done; tty; echo over",
    ]);
    let mut terminal = Pty::start(command, (91, 33));
    assert_eq!(terminal.end(), Some(0), "{}", terminal.text());
    let shown = terminal.text();
    assert!(shown.contains("33 91") && shown.contains("/dev/pts/") && shown.contains("over"), "{shown}");
}

/// A container with an input: it answers each line, and ends with the line `end`. On a terminal it answers with its size.
fn listener(scene: &Namespace<'_>, name: &str, is_terminal: bool) {
    let answer = if is_terminal { "stty size" } else { "echo got $line" };
    let script = format!("while read line; do test \"$line\" = end && exit 0; {answer}; done");
    let mut main = scene.cluster.container("main", &script);
    (main["stdin"], main["tty"]) = (json!(true), json!(is_terminal));
    scene.pod(name, json!({"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": [main]}));
    scene.ready(name);
}

fn attach(scene: &Namespace<'_>) {
    listener(scene, "plain", false);
    let mut command = scene.cluster.plane.command(&["attach", "-i", "plain", "-n", &scene.name]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let mut input = child.stdin.take().expect("piped");
    let (sender, said) = mpsc::channel();
    let output = BufReader::new(child.stdout.take().expect("piped"));
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    // The runtime may hand on input before it hands on output: what is said in between is in the log alone.
    let begin = Instant::now();
    loop {
        input.write_all(b"ready\n").expect("kubectl reads its input");
        if said.recv_timeout(Duration::from_millis(200)).is_ok() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "no output comes");
    }
    // All input is read, and output that is written while a client is attached arrives.
    let numbers: String = (0..500).map(|n| format!("{n}\n")).collect();
    input.write_all(numbers.as_bytes()).expect("kubectl reads its input");
    while said.recv_timeout(PATIENCE).expect("the container answers every line") != "got 499" {}
    // Only now: containerd 1.6 can close the output of a container that ends before it has forwarded the last of it.
    input.write_all(b"end\n").expect("kubectl reads its input");
    let output = child.wait_with_output().expect("it is our child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    scene.phase("plain", "Succeeded");
    assert!(scene.kubectl(&["logs", "plain"]).ends_with("got 498\ngot 499\n"));
    let over = scene.try_kubectl(&["attach", "-i", "plain"]);
    assert!(over.code != Some(0) && over.stderr.contains("completed"), "{}", over.stderr);

    // A terminal, whose size follows.
    listener(scene, "typed", true);
    let command = scene.cluster.plane.command(&["attach", "-it", "typed", "-n", &scene.name]);
    let mut terminal = Pty::start(command, (91, 33));
    scene.cluster.plane.until("the size is the terminal's", || {
        terminal.type_in("size\n");
        terminal.text().contains("33 91")
    });
    terminal.resize((77, 22));
    scene.cluster.plane.until("the size follows", || {
        terminal.type_in("size\n");
        terminal.text().contains("22 77")
    });
    terminal.type_in("end\n");
    assert_eq!(terminal.end(), Some(0), "{}", terminal.text());
    scene.phase("typed", "Succeeded");
}

fn copy(scene: &Namespace<'_>) {
    scene.running("store");
    let scratch = &scene.cluster.node.scene.scratch;
    let (there, back) = (scratch.join("there"), scratch.join("back"));
    let content: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    std::fs::write(&there, &content).expect("write a file");
    scene.kubectl(&["cp", &there.display().to_string(), "store:/tmp/file"]);
    scene.kubectl(&["cp", "store:/tmp/file", &back.display().to_string()]);
    assert!(std::fs::read_to_string(&back).expect("it came back") == content, "it came back as it was");
}

fn forward(scene: &Namespace<'_>) {
    let script = "echo page > /tmp/page; exec httpd -f -p 8080 -h /tmp";
    scene.pod(
        "page",
        json!({"terminationGracePeriodSeconds": 1, "containers": [scene.cluster.container("main", script)]}),
    );
    scene.ready("page");
    let [port] = free_ports();
    let program = scene.cluster.plane.command(&[]).get_program().to_owned();
    let config = scene.cluster.plane.admin().display().to_string();
    let ports = format!("{port}:8080");
    let args = ["--kubeconfig", &config, "port-forward", "pod/page", &ports, "-n", &scene.name];
    let forward = Daemon::start(std::path::Path::new(&program), &args);
    forward.wait_for("that it forwards", |line| line.contains("Forwarding from").then_some(()));
    for _ in 0..3 {
        scene.cluster.plane.until("the page comes", || {
            get(&format!("127.0.0.1:{port}"), "/page").is_some_and(|page| page.trim() == "page")
        });
    }
}

fn figures(scene: &Namespace<'_>) {
    scene.running("measured");
    let plane = &scene.cluster.plane;
    let proxied = |path: &str| plane.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/{path}")]);
    assert_eq!(proxied("healthz"), "ok");
    let configuration: Value = serde_json::from_str(&proxied("configz")).expect("JSON");
    assert_eq!(configuration["imageletconfig"]["nodeName"], NODE, "{configuration:#}");
    plane.until("the runtime has figures of the pod", || {
        let summary: Value = serde_json::from_str(&proxied("stats/summary")).expect("JSON");
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let pod = pods.into_iter().find(|pod| pod["podRef"]["name"] == "measured");
        summary["node"]["memory"]["workingSetBytes"].as_u64() > Some(0)
            && pod.is_some_and(|pod| pod["containers"][0]["memory"]["workingSetBytes"].as_u64() > Some(0))
    });
    let resources = proxied("metrics/resource");
    assert!(resources.contains("container_memory_working_set_bytes{container=\"main\""), "{resources}");
    assert!(resources.contains("node_cpu_usage_seconds_total "), "{resources}");
    assert!(proxied("metrics").contains("imagelet_build_info{"));
    let pods: Value = serde_json::from_str(&proxied("pods")).expect("JSON");
    let names: Vec<&str> =
        pods["items"].as_array().into_iter().flatten().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    assert!(names.contains(&"measured"), "{names:?}");
}

fn let_in(scene: &Namespace<'_>) {
    scene.running("inner");
    let plane = &scene.cluster.plane;
    let ask = |path: &str, more: &[&str]| {
        let url = format!("https://{NODE_IP}:10250/{path}");
        // The certificate is the node's own.
        let output =
            tool("curl").args(["-sSk", "-w", "\n%{http_code}"]).args(more).arg(&url).output().expect("start curl");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    assert_eq!(ask("pods", &[]), "Unauthorized\n401");
    assert_eq!(ask("", &[]), "Unauthorized\n401");
    assert_eq!(ask("pods", &["-H", "Authorization: Bearer none"]), "Unauthorized\n401");

    // A token of an account without rights, and the same with them.
    let token = plane.token(&scene.name, "default");
    let bearer = format!("Authorization: Bearer {token}");
    let name = format!("system:serviceaccount:{}:default", scene.name);
    assert_eq!(
        ask("stats/summary", &["-H", &bearer]),
        format!("Forbidden (user={name}, verb=get, resource=nodes, subresource(s)=[stats])\n\n403")
    );
    assert_eq!(
        ask("configz", &["-H", &bearer]),
        format!("Forbidden (user={name}, verb=get, resource=nodes, subresource(s)=[configz proxy])\n\n403")
    );
    assert!(ask(&format!("exec/{}/inner/main?command=id&output=1", scene.name), &["-H", &bearer]).ends_with("403"));
    plane.kubectl(&["create", "clusterrole", "reader-of-metrics", "--verb=get", "--resource=nodes/metrics"]);
    plane.kubectl(&[
        "create",
        "clusterrolebinding",
        "reader-of-metrics",
        "--clusterrole=reader-of-metrics",
        &format!("--user={name}"),
    ]);
    plane.until("the role is known", || ask("metrics/resource", &["-H", &bearer]).ends_with("200"));
    // A denied request stays denied for half a minute more, and so does one that was never granted.
    assert!(ask("stats/summary", &["-H", &bearer]).ends_with("403"));

    // Another spelling of a path is not found, and nothing is asked about it: neither who this is nor what it may.
    let exec = format!("exec/{}/inner/main?command=id&output=1", scene.name);
    for spelling in [format!("/{exec}"), format!("./{exec}"), format!("x/../{exec}"), format!("%65{}", &exec[1..])] {
        for more in [&[][..], &["-H", &bearer]] {
            let args = [&["--path-as-is"][..], more].concat();
            assert_eq!(ask(&spelling, &args), "404 page not found\n\n404", "{spelling}");
        }
    }

    // A certificate of the cluster's authority with rights, one without, and one of another authority.
    let certificate = |name: &str| {
        let file = |end: &str| plane.file(&format!("{name}.{end}")).display().to_string();
        ["--cert".to_owned(), file("crt"), "--key".to_owned(), file("key")]
    };
    let with = |name: &str, path: &str| {
        let args = certificate(name);
        ask(path, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(with("admin", "pods").ends_with("200"));
    assert!(with("admin", "configz").ends_with("200"));
    plane.user("/CN=eve");
    assert!(with("eve", "pods").contains("Forbidden (user=eve, verb=get"), "{}", with("eve", "pods"));
    assert!(with("admin", "nowhere").ends_with("404"));
    assert!(with("admin", &format!("containerLogs/{}/none/main", scene.name)).starts_with("pod does not exist"));
    assert!(
        with("admin", &format!("exec/{}/inner/main?command=id&output=1", scene.name)).ends_with("400"),
        "no upgrade"
    );
    // Streams by WebSocket, as newer API servers may ask for them: what the command says is a frame of the first channel.
    let certificate = certificate("admin");
    let mut args: Vec<&str> = certificate.iter().map(String::as_str).collect();
    args.extend(["--http1.1", "--max-time", "30"]);
    for header in [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: v4.channel.k8s.io",
    ] {
        args.extend(["-H", header]);
    }
    let said = ask(&format!("exec/{}/inner/main?command=echo&command=by-websocket&output=1", scene.name), &args);
    assert!(said.contains("\u{1}by-websocket\n") && said.ends_with("101"), "{said:?}");
}
