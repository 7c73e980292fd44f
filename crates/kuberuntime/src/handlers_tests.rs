//! Hooks and probes over the runtime in memory and over servers on loopback.

use std::collections::BTreeMap;
use std::time::Duration;

use cri_api::testing::{CallKind, FakeExec, FakeProcess, FakeRuntimeService};
use cri_api::{ContainerMetadata, ContainerState, Error, ExecSyncOutput, Kind};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::pod::Pod;

struct Scene {
    runtime: FakeRuntimeService,
    handlers: Handlers,
    pod: Pod,
    id: String,
}

/// A container that runs, with these commands in it.
async fn scene(container: Value, commands: &[(&str, FakeExec)]) -> Scene {
    let mut container = container;
    container["name"] = json!("web");
    container["image"] = json!("x");
    let commands = commands.iter().map(|(command, exec)| {
        let words = command.split(' ').map(str::to_owned).collect::<Vec<_>>();
        (words, exec.clone())
    });
    let process = FakeProcess { commands: commands.collect::<BTreeMap<_, _>>(), ..FakeProcess::default() };
    let runtime = FakeRuntimeService::new();
    runtime.behave("web", process);
    let manifest =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [container]}});
    let pod = crate::admit(&manifest, "edge", crate::Origin::File("/etc/pods/web.yaml")).expect("admitted");
    let id = "c1".to_owned();
    let metadata = ContainerMetadata { name: "web".into(), attempt: 0 };
    let state = ContainerState::Running;
    runtime.put_container(cri_api::Container { id: id.clone(), metadata, state, ..cri_api::Container::default() });
    let handlers = Handlers::new(Arc::new(runtime.clone()));
    Scene { runtime, handlers, pod, id }
}

fn ends(code: i32, stdout: &str, stderr: &str) -> FakeExec {
    FakeExec::Ends(ExecSyncOutput { exit_code: code, stdout: stdout.into(), stderr: stderr.into() })
}

fn handler(value: &Value) -> LifecycleHandler {
    manifest::decode_text(&value.to_string(), "handler").expect("a handler")
}

fn probe_of(value: &Value) -> Probe {
    let probe: Probe = manifest::decode_text(&value.to_string(), "probe").expect("a probe");
    Probe { timeout_seconds: Some(1), ..probe }
}

impl Scene {
    fn target(&self) -> HandlerTarget<'_> {
        HandlerTarget::new(&self.pod.spec.containers[0], &self.id, Some("127.0.0.1"), "web_default(u)")
    }

    async fn ask(&self, value: &Value) -> (ProbeOutcome, String) {
        self.handlers.ask(&probe_of(value), &self.target()).await
    }

    async fn hook(&self, value: &Value, limit: Option<Duration>) -> Result<(), String> {
        self.handlers.run_hook(&handler(value), &self.target(), limit).await.map_err(|error| error.0)
    }

    fn execs(&self) -> usize {
        self.runtime.calls().iter().filter(|call| call.0 == CallKind::ExecSync).count()
    }
}

/// A server that answers every request with this, and its port.
async fn server(answer: String) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let (port, mut serving) = (listener.local_addr().expect("bound").port(), JoinSet::new());
    serving.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(0x16) | Err(_) => break,
                    Ok(byte) => head.push(byte),
                }
            }
            // The client may have disconnected.
            let _heard = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, serving)
}

#[tokio::test(start_paused = true)]
async fn programs_answer_by_their_exit_code() {
    let long = "x".repeat(20 << 10);
    let scene = scene(
        json!({"env": [{"name": "WHAT", "value": "ok"}, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        &[
            ("ok", ends(0, "fine", "")),
            ("bad", ends(3, "out ", "err")),
            ("long", ends(1, &long, "more")),
            ("hang me", FakeExec::Hangs),
        ],
    )
    .await;
    let ask = async |command: Value| scene.ask(&json!({"exec": {"command": command}})).await;
    assert_eq!(ask(json!(["ok"])).await, (ProbeOutcome::Success, "fine".into()));
    // Variables are filled in, and those that come from elsewhere are empty.
    assert_eq!(ask(json!(["$(POD)$(WHAT)"])).await, (ProbeOutcome::Success, "fine".into()));
    assert_eq!(ask(json!(["bad"])).await, (ProbeOutcome::Failure, "out err".into()));
    assert_eq!(ask(json!(["long"])).await.1.len(), 10 << 10);
    let began = Instant::now();
    let hung = ask(json!(["hang", "me"])).await;
    assert_eq!(hung, (ProbeOutcome::Failure, "command \"hang me\" timed out after 1s".into()));
    assert_eq!((began.elapsed(), scene.execs()), (Duration::from_secs(1), 5));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_take_the_question_is_asked_three_times_and_counts_for_nothing() {
    let scene = scene(json!({}), &[("ok", ends(0, "fine", ""))]).await;
    let question = json!({"exec": {"command": ["ok"]}});
    let absent = Error::new(Kind::Unavailable, "connection refused");
    scene.runtime.faults().fail_times(CallKind::ExecSync, 2, absent.clone());
    assert_eq!(scene.ask(&question).await, (ProbeOutcome::Success, "fine".into()));
    assert_eq!(scene.execs(), 3);
    scene.runtime.faults().fail(CallKind::ExecSync, absent);
    assert_eq!(scene.ask(&question).await, (ProbeOutcome::Unknown, "connection refused".into()));
    assert_eq!(scene.execs(), 6);
    // A runtime that hangs until its client's own deadline has not watched the program.
    scene.runtime.faults().clear(CallKind::ExecSync);
    scene.runtime.faults().delay(CallKind::ExecSync, Duration::from_secs(120));
    scene.runtime.faults().fail(CallKind::ExecSync, Error::new(Kind::DeadlineExceeded, "no answer in 121s"));
    let (answer, text) = scene.ask(&question).await;
    assert_eq!((answer, &*text), (ProbeOutcome::Unknown, "the runtime does not answer: no answer in 121s"));
    assert_eq!(scene.execs(), 7);
}

#[tokio::test]
async fn places_are_found_by_number_by_name_and_by_host() {
    let (port, _serving) = server("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell".into()).await;
    let scene = scene(json!({"ports": [{"name": "named", "containerPort": port}]}), &[]).await;
    let good = [json!(port), json!("named"), json!(port.to_string())];
    for at in good {
        let http = json!({"httpGet": {"path": "/", "port": at}});
        assert_eq!(scene.ask(&http).await, (ProbeOutcome::Success, "well".into()), "{at}");
        assert_eq!(
            scene.ask(&json!({"tcpSocket": {"port": at}})).await,
            (ProbeOutcome::Success, String::new()),
            "{at}"
        );
    }
    let host = json!({"httpGet": {"path": "/", "port": port, "host": "localhost"}});
    let target = HandlerTarget { ip: None, ..scene.target() };
    assert_eq!(scene.handlers.ask(&probe_of(&host), &target).await.0, ProbeOutcome::Success);
    let cases = [
        (json!({"httpGet": {"path": "/", "port": "other"}}), "container \"web\" has no port \"other\""),
        (json!({"tcpSocket": {"port": "70000"}}), "invalid port number: 70000"),
        (json!({}), "missing probe handler for web_default(u):web"),
    ];
    for (question, want) in cases {
        assert_eq!(scene.ask(&question).await, (ProbeOutcome::Unknown, want.into()));
    }
    let nowhere = scene.handlers.ask(&probe_of(&json!({"grpc": {"port": 1}})), &target).await;
    assert_eq!(nowhere, (ProbeOutcome::Unknown, "the pod has no address yet".into()));
    let (answer, text) = scene.ask(&json!({"grpc": {"port": port, "service": "s"}})).await;
    assert!(answer == ProbeOutcome::Failure && text.starts_with("error: health rpc probe failed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn hooks_run_programs_and_pauses_to_their_end_or_to_the_limit() {
    let scene = scene(json!({}), &[("bad x", ends(2, "out", "err")), ("hang", FakeExec::Hangs)]).await;
    let exec = |command: Value| json!({"exec": {"command": command}});
    let limit = Some(Duration::from_secs(5));
    assert_eq!(scene.hook(&exec(json!(["ok"])), None).await, Ok(()));
    let want = "Exec lifecycle hook ([bad x]) for Container \"web\" in Pod \"web_default(u)\" failed - error: command \
                'bad x' exited with 2: err, message: \"outerr\"";
    assert_eq!(scene.hook(&exec(json!(["bad", "x"])), limit).await, Err(want.into()));
    let began = Instant::now();
    let hung = scene.hook(&exec(json!(["hang"])), limit).await.expect_err("it hangs");
    assert!(
        hung.starts_with("Exec lifecycle hook ([hang]) for") && began.elapsed() == Duration::from_secs(5),
        "{hung}"
    );

    let sleep = json!({"sleep": {"seconds": 4}});
    let began = Instant::now();
    assert_eq!(scene.hook(&sleep, limit).await, Ok(()));
    assert_eq!(began.elapsed(), Duration::from_secs(4));
    let cut = scene.hook(&sleep, Some(Duration::from_secs(2))).await;
    let want = "Sleep lifecycle hook (4) for Container \"web\" in Pod \"web_default(u)\" failed - error: not completed \
                within 2s";
    assert_eq!(cut, Err(want.into()));
    scene.runtime.faults().be_absent(Error::new(Kind::Unavailable, "connection refused"));
    let absent = scene.hook(&exec(json!(["ok"])), None).await.expect_err("nobody runs it");
    assert!(absent.ends_with("failed - error: connection refused, message: \"\""), "{absent}");
    let odd = scene.hook(&json!({"tcpSocket": {"port": 1}}), None).await.expect_err("no hook");
    assert!(odd.contains("invalid handler"), "{odd}");
}

#[tokio::test]
async fn hooks_over_http_want_an_answer_and_no_more() {
    let scene = scene(json!({}), &[]).await;
    let get = |port: u16, scheme: &str| json!({"httpGet": {"path": "/stop", "port": port, "scheme": scheme}});
    let (port, mut serving) = server("HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n".into()).await;
    assert_eq!(scene.hook(&get(port, "HTTP"), None).await, Ok(()));
    // A server that speaks no TLS is asked without.
    assert_eq!(scene.hook(&get(port, "HTTPS"), None).await, Ok(()));
    serving.shutdown().await;
    let gone = scene.hook(&get(port, "HTTP"), None).await.expect_err("nobody is there");
    let want = "HTTP lifecycle hook (/stop) for Container \"web\" in Pod \"web_default(u)\" failed - error: Get ";
    assert!(gone.starts_with(want) && gone.ends_with("connection refused"), "{gone}");
    let target = HandlerTarget { ip: None, ..scene.target() };
    let nowhere = scene.handlers.run_hook(&handler(&get(port, "HTTP")), &target, None).await.expect_err("nowhere");
    assert!(nowhere.0.ends_with("the pod has no address yet"), "{nowhere}");
}
