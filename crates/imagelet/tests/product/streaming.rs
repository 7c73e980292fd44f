//! `exec`, `attach` and `port-forward` on Debian's containerd with runc: exit codes, separate streams, input that ends,
//! terminals, many connections at once, and the errors for missing targets.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use cri_api::{ContainerConfig, ContainerMetadata, ImageSpec, PodSandboxConfig, RuntimeService as _};
use kuberuntime::labels::{CONTAINER_NAME, CONTAINERS, NODE, POD_NAME, POD_NAMESPACE, POD_UID};

use crate::support::cli::{Imagelet, PROGRAM};
use crate::support::process::{eventually, tool};
use crate::support::stage::{Does, Stage};

/// A stage with a pod, `shop/web-n1`, and the program that enters it.
struct Entered {
    stage: Stage,
    config: PodSandboxConfig,
    sandbox: String,
    imagelet: Imagelet,
}

impl Entered {
    async fn new() -> Self {
        let stage = Stage::new().await;
        let mut config = stage.pod("web-n1", 0);
        config.labels = labels("");
        config.annotations =
            [(NODE, "n1"), (CONTAINERS, "main,done")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let sandbox = stage.sandbox(&config).await;
        stage.container((&sandbox, &config), "main", 0, Does::Sleep).await;
        let imagelet = Imagelet::bare().global("-r", &stage.containerd.endpoint());
        Self { stage, config, sandbox, imagelet }
    }

    /// Starts another container, which runs this script with its standard input open.
    async fn reads(&self, name: &str, script: &str, tty: bool) {
        let mut config = ContainerConfig {
            metadata: ContainerMetadata { name: name.into(), attempt: 0 },
            image: ImageSpec::new(&self.stage.image),
            command: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            labels: labels(name),
            log_path: format!("{name}.log"),
            stdin: true,
            stdin_once: true,
            tty,
            ..ContainerConfig::default()
        };
        config.linux.security.namespaces = Stage::namespaces();
        let service = &self.stage.service;
        let id = service.create_container(&self.sandbox, &config, &self.config).await.expect("create a container");
        service.start_container(&id).await.expect("start a container");
    }
}

fn labels(container: &str) -> BTreeMap<String, String> {
    let labels =
        [(POD_NAME, "web-n1"), (POD_NAMESPACE, "shop"), (POD_UID, "uid-of-web-n1"), (CONTAINER_NAME, container)];
    labels.into_iter().filter(|(_, value)| !value.is_empty()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// With a terminal of its own, as a person has it: each text is typed, and then something is waited for. The answer is the
/// exit code, and all that was seen.
fn on_terminal(args: &str, endpoint: &str, steps: &[(&str, &str)]) -> (Option<i32>, String) {
    // Bounds a test that never sees the output that it waits for.
    let mut command = tool("timeout");
    command.args(["--foreground", "60", "script", "-qec", &format!("{PROGRAM} -r {endpoint} {args}"), "/dev/null"]);
    let piped = std::process::Stdio::piped;
    let mut child = command.stdin(piped()).stdout(piped()).spawn().expect("start");
    let (mut stdin, mut stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let mut seen = Vec::new();
    for (typed, until) in steps {
        stdin.write_all(typed.as_bytes()).expect("typed");
        while !String::from_utf8_lossy(&seen).contains(until) {
            let mut byte = [0];
            let count = stdout.read(&mut byte).expect("read");
            assert_eq!(count, 1, "{until:?} is never seen: {}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
    }
    stdout.read_to_end(&mut seen).expect("read");
    // Open until now: the typing client stays connected.
    drop(stdin);
    (child.wait().expect("it is our child").code(), String::from_utf8_lossy(&seen).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn commands_run_in_containers() {
    let entered = Entered::new().await;
    let Entered { stage, imagelet, .. } = &entered;
    let done = stage.container((&entered.sandbox, &entered.config), "done", 0, Does::Say("over", 0)).await;
    stage.ended(&done).await;

    let said = imagelet.run(&["exec", "web", "-c", "main", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((said.code, &*said.stdout, &*said.stderr), (Some(7), "out\n", "err\n"));
    // The first container, where none is named.
    let said = imagelet.run(&["exec", "-n", "shop", "web-n1", "--", "hostname"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("Defaulted container \"main\" out of: main, done"), "{}", said.stderr);

    // Without a flag in the command, `--` may be left out.
    let said = imagelet.run(&["exec", "-c", "main", "web", "cat", "/etc/hostname"]);
    assert_eq!((said.code, said.stdout.is_empty()), (Some(0), false), "{}", said.stderr);
    let said = imagelet.run(&["exec", "web", "sh", "-c", "echo main"]);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(said.stderr.contains("tip: add `--` before the command: imagelet exec POD -- sh"), "{}", said.stderr);
    let said = imagelet.run(&["exec", "-c", "main", "web", "ls", "-l"]);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(said.stderr.contains("add `--` before that command"), "{}", said.stderr);

    // Input has an end, and a program that does not read it does not delay the command.
    let text = "0123456789abcde\n".repeat(200_000);
    let counted = imagelet.run_with_input(&["exec", "-i", "shop/web", "-c", "main", "--", "wc", "-c"], &text);
    assert_eq!((counted.code, counted.stdout.trim()), (Some(0), "3200000"), "{}", counted.stderr);
    let unread = imagelet.run_with_input(&["exec", "-i", "uid-of-web-n1", "-c", "main", "--", "true"], "x");
    assert_eq!(unread.code, Some(0), "{}", unread.stderr);
    let big = imagelet.run(&["exec", "web", "-c", "main", "--", "sh", "-c", "yes 0123456 | head -c 8000000"]);
    assert_eq!((big.code, big.stdout.len()), (Some(0), 8_000_000));

    let endpoint = stage.containerd.endpoint();
    let script = "exec -it web -c main -- sh -c 'test -t 0 && test -t 1 && echo terminal; exit 5'";
    let (code, seen) = on_terminal(script, &endpoint, &[]);
    assert!(code == Some(5) && seen.contains("terminal\r\n"), "{code:?} {seen}");
    let steps = [("", "# "), ("echo $((6*7))\n", "42\r\n"), ("exit 3\n", "")];
    let (code, seen) = on_terminal("exec -it web -c main -- sh", &endpoint, &steps);
    assert_eq!(code, Some(3), "{seen}");

    let wrong = |args: &[&str], code: i32, want: &str| {
        let line = imagelet.fails(code, args);
        assert!(line.contains(want), "{args:?}: {line}");
    };
    wrong(&["exec", "web", "-c", "main", "--", "/no/program"], 1, "no such file or directory");
    wrong(&["exec", "we", "--", "true"], 1, "pod \"we\" not found; there is shop/web-n1");
    wrong(
        &["exec", "web", "-c", "side", "--", "true"],
        1,
        "container \"side\" is not in pod shop/web-n1, which has main, done",
    );
    wrong(&["exec", "web", "-c", "done", "--", "true"], 1, "does not run: it has ended");
    let absent = Imagelet::bare().global("-r", "unix:///run/nobody/here.sock");
    assert!(absent.fails(69, &["exec", "web", "--", "true"]).contains("/run/nobody/here.sock"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn people_attach_to_processes() {
    let entered = Entered::new().await;
    let script = "while read line; do echo got $line; echo not $line >&2; done; echo end; exit 4";
    entered.reads("reader", script, false).await;
    let said = entered.imagelet.run_with_input(&["attach", "-i", "web", "-c", "reader"], "one\ntwo\n");
    assert_eq!((said.code, &*said.stdout, &*said.stderr), (Some(0), "got one\ngot two\nend\n", "not one\nnot two\n"));
    // The detach keys leave a terminal, and its process keeps running.
    entered.reads("shell", "sh", true).await;
    let endpoint = entered.stage.containerd.endpoint();
    let steps = [("echo $((6*7))\n", "42\r\n"), ("\u{10}\u{11}", "")];
    let (code, seen) = on_terminal("attach -it web -c shell", &endpoint, &steps);
    assert_eq!(code, Some(0), "{seen}");
    let line = entered.imagelet.ok(&["exec", "web", "-c", "shell", "--", "ps"]);
    assert!(line.contains("sh"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn ports_are_forwarded() {
    let entered = Entered::new().await;
    // Pods of this stage have the node's network: a port without a listener.
    let free = || TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let (echoes, nobody) = (free(), free());
    entered.reads("echoes", &format!("nc -ll -p {echoes} -e cat"), false).await;
    eventually("it listens", || TcpStream::connect(("127.0.0.1", echoes)).is_ok());
    let mut daemon = entered.imagelet.daemon(&["port-forward", "web", &format!(":{echoes}"), &format!(":{nobody}")]);
    let local = |remote: u16| {
        daemon.wait_for("where it listens", |line| {
            let at = line.strip_prefix("Forwarding from 127.0.0.1:")?;
            let (local, to) = at.split_once(" -> ")?;
            (to == remote.to_string()).then(|| local.parse::<u16>().expect("a port"))
        })
    };
    let port = local(echoes);
    let ask = |size: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let mut writer = stream.try_clone().expect("cloned");
        let sent = "0123456789".repeat(size / 10);
        let mut echo = vec![0; sent.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(sent.as_bytes()).expect("written"));
            stream.read_exact(&mut echo).expect("answered");
        });
        assert!(echo == sent.as_bytes());
    };
    ask(10);
    std::thread::scope(|scope| (1..=8).for_each(|index| drop(scope.spawn(move || ask(index * 100_000)))));
    // Nothing listens on the port: the client sees the end of the connection, the user a line, and the other forwards continue.
    let mut stream = TcpStream::connect(("127.0.0.1", local(nobody))).expect("connected");
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    daemon.wait_for("why", |line| (line.contains(&nobody.to_string()) && line.contains("refused")).then_some(()));
    ask(20);
    // With the pod it ends, at the next connection.
    entered.stage.service.stop_pod_sandbox(&entered.sandbox).await.expect("stopped");
    drop(TcpStream::connect(("127.0.0.1", port)));
    daemon.wait_for("that it is over", |line| line.contains("pod shop/web-n1 runs no longer").then_some(()));
    daemon.stop();
}
