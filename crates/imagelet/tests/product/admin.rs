//! The admin endpoint of a real agent, by the commands that use it and by a plain HTTP client: metrics, health, back-off,
//! and the life of the socket file.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::cli::end_of;
use crate::support::images;
use crate::support::process::PATIENCE;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Scratch};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).permissions().mode() & 0o7777
}

/// The value of a sample, which must be there.
#[track_caller]
fn sample(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

/// A request as curl makes it.
fn get(socket: &Path, target: &str, accept: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("connect to the admin socket");
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")
        .expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn metrics_of_a_kubelet_can_have_the_own_prefix() {
    let s = Scene::new();
    let socket = s.scratch.join("cri.sock");
    let prefixes = |imagelet: &Imagelet| {
        let mut agent = imagelet.serve(&socket);
        Imagelet::remote(&format!("unix://{}", socket.display())).ok(&["images"]);
        let text = imagelet.ok(&["metrics"]);
        agent.stop();
        ["kubelet", "imagelet"].map(|prefix| text.contains(&format!("\n{prefix}_runtime_operations_total{{")))
    };
    let set = |prefix: &str| s.imagelet.clone().global("--metrics-prefix", prefix);
    assert_eq!(prefixes(&s.imagelet), [true, false], "no runtime is behind it");
    assert_eq!(prefixes(&set("imagelet")), [false, true]);
    assert_eq!(prefixes(&set("kubelet")), [true, false]);
    let line = set("other").fails(2, &["images"]);
    assert!(line.contains("--metrics-prefix") && line.contains("must be one of auto, kubelet, imagelet"), "{line}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_counts_what_it_serves() {
    let s = Scene::new();
    let (name, _) = s.push_file("admin/one:1", "a", vec![7_u8; 1 << 20]);
    let socket = s.scratch.join("cri.sock");
    let mut agent = s.imagelet.serve(&socket);
    let through = Imagelet::remote(&format!("unix://{}", socket.display()));
    through.ok(&["pull", &name]);
    through.fails(1, &["pull", &s.registry.name("admin/missing:1")]);
    through.ok(&["images"]);

    let text = s.imagelet.ok(&["metrics"]);
    assert_eq!(sample(&text, "kubelet_runtime_operations_total{operation_type=\"pull_image\"}"), 2.0);
    assert_eq!(sample(&text, "kubelet_runtime_operations_errors_total{operation_type=\"pull_image\"}"), 1.0);
    assert!(sample(&text, "kubelet_runtime_operations_total{operation_type=\"list_images\"}") >= 1.0);
    assert_eq!(sample(&text, "kubelet_runtime_operations_duration_seconds_count{operation_type=\"pull_image\"}"), 2.0);
    assert_eq!(sample(&text, "kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"0-10MB\"}"), 1.0);
    assert_eq!(sample(&text, "imagelet_pull_failures_total{cause=\"not_found\"}"), 1.0);
    assert_eq!(sample(&text, "imagelet_pulls_in_flight"), 0.0);
    assert!(sample(&text, "imagelet_pulled_bytes_total") > 500.0, "a layer came:\n{text}");
    assert!(sample(&text, "process_resident_memory_bytes") > 1e6);
    for line in ["# TYPE kubelet_runtime_operations_total counter", "# TYPE imagelet_pull_queue_wait_seconds histogram"]
    {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }

    let admin = s.scratch.join("store/admin.sock");
    let scraped = get(&admin, "/metrics", "application/openmetrics-text; version=1.0.0");
    assert!(scraped.starts_with("HTTP/1.1 200 OK\r\n"), "{scraped}");
    assert!(
        scraped.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{scraped}"
    );
    assert!(scraped.ends_with("\n# EOF\n"), "{scraped}");
    for target in ["/healthz", "/livez", "/readyz"] {
        let answer = get(&admin, target, "*/*");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{target}: {answer}");
    }

    assert!(fs::symlink_metadata(&admin).expect("it is there").file_type().is_socket());
    assert_eq!((mode(&admin), mode(&s.scratch.join("store"))), (0o600, 0o700));
    agent.stop();
    assert!(!admin.exists(), "an agent that ends in order takes its socket along");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_keeps_no_back_off_and_says_so() {
    let s = Scene::new();
    let _agent = s.imagelet.serve(&s.scratch.join("cri.sock"));
    let done = s.imagelet.run(&["backoff"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "POD   IMAGE   CAUSE   FAILURES   NEXT TRY   MESSAGE\n"));
    let note = "this process keeps no back-off: the client that pulls through its socket decides when to try again";
    assert!(done.stderr.contains(note), "{}", done.stderr);
    let list: Value = serde_json::from_str(&s.imagelet.ok(&["backoff", "-o", "json"])).expect("JSON");
    assert_eq!(list, json!({"entries": [], "note": note}));
    assert_eq!(s.imagelet.ok(&["backoff", "reset", "--all"]), "0\n");
}

#[test]
fn unanswered_socket_is_reported_with_what_serves_it() {
    let scratch = Scratch::new();
    let imagelet = Imagelet::on(&scratch.join("store"));
    let socket = scratch.join("store/admin.sock");
    let check = |imagelet: &Imagelet, socket: &Path| {
        for args in [&["metrics"][..], &["backoff"], &["backoff", "reset", "--image", "x"]] {
            let line = imagelet.fails(69, args);
            assert!(
                line.contains(&socket.display().to_string()) && line.contains("imagelet serve"),
                "{args:?}: {line}"
            );
        }
    };
    check(&imagelet, &socket);
    fs::create_dir(scratch.join("store")).expect("a directory");
    drop(UnixListener::bind(&socket).expect("a socket"));
    check(&imagelet, &socket);
    let other = scratch.join("elsewhere.sock");
    check(&imagelet.clone().global("--admin-socket", &other.display().to_string()), &other);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_socket_of_a_killed_agent_is_replaced_and_that_of_a_living_one_left() {
    let s = Scene::new();
    let admin = s.scratch.directory("run").join("admin.sock");
    let imagelet = s.imagelet.clone().global("--admin-socket", &admin.display().to_string());
    imagelet.serve(&s.scratch.join("cri.sock")).kill();
    assert!(admin.exists(), "what a killed agent leaves");
    let mut agent = imagelet.serve(&s.scratch.join("cri.sock"));
    sample(&imagelet.ok(&["metrics"]), "imagelet_pulls_in_flight");

    let listen = format!("unix://{}", s.scratch.join("second.sock").display());
    let second = Imagelet::on(&s.scratch.join("other")).global("--admin-socket", &admin.display().to_string());
    let line = second.fails(1, &["serve", "--listen", &listen]);
    let pid = agent.pid().to_string();
    assert!(
        line.contains("another process answers on") && line.contains("admin.sock") && line.contains(&pid),
        "{line}"
    );
    sample(&imagelet.ok(&["metrics"]), "imagelet_pulls_in_flight");
    agent.stop();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn metrics_over_tcp_are_a_matter_of_the_configuration() {
    let s = Scene::new();
    let imagelet = s.imagelet.clone().global("--metrics-address", "127.0.0.1:0");
    let agent = imagelet.serve(&s.scratch.join("cri.sock"));
    let url = agent.wait_for("where the metrics are", |line| {
        let (_, rest) = line.split_once("metrics endpoint=http://")?;
        Some(rest.trim_end_matches("/metrics").to_owned())
    });
    let ask = |target: &str| {
        let mut stream = std::net::TcpStream::connect(&url).expect("connect");
        write!(stream, "GET {target} HTTP/1.0\r\nHost: {url}\r\n\r\n").expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    assert!(ask("/metrics").contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(ask("/readyz").ends_with("ok\n"));
    assert!(ask("/backoff").starts_with("HTTP/1.0 404"), "back-off is the owner's matter");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn details_say_how_long_things_took() {
    let s = Scene::new();
    let (name, _) = s.push_file("admin/spans:1", "a", "a");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: {name}}}]}}\n"
    );
    let ensure = |level: &str| {
        let done = s.imagelet.clone().global("--log-level", level).run_with_input(&["ensure", "-f", "-"], &pod);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stderr
    };
    let said = ensure("debug");
    let ended = |what: &str| said.lines().filter(|l| l.contains(what) && l.contains("}: close time.busy=")).count();
    assert_eq!(ended("outcome=\"pulled\"}: close "), 1, "{said}");
    assert_eq!(ended(":wait_for_turn{"), 1, "{said}");
    assert!(said.lines().any(|l| l.contains("DEBUG EnsureImageExists{pod=default/p ")), "{said}");
    let said = ensure("info");
    assert!(!said.contains("time.busy"), "nobody asked for details:\n{said}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn who_waits_pulls_as_soon_as_back_off_is_forgotten() {
    let s = Scene::new();
    let name = s.registry.name("admin/late:1");
    let manifest = s.scratch.join("pod.yaml");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop}}\n\
         spec: {{containers: [{{name: c, image: {name}}}]}}\n"
    );
    fs::write(&manifest, pod).expect("write a manifest");
    // Longer than any test waits: only a reset can end it.
    let waiting = s.imagelet.clone().global("--image-pull-back-off-initial", "5m");
    let programs = s.scratch.directory("providers");
    images::write(&programs.join("never"), "#!/bin/sh\nexit 1\n");
    fs::set_permissions(programs.join("never"), fs::Permissions::from_mode(0o755)).expect("chmod");
    let providers = s.scratch.join("providers.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: never\n  \
                apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: [elsewhere.test]\n  defaultCacheDuration: 1m\n";
    fs::write(&providers, text).expect("write a configuration");
    let waiting = waiting
        .global("--image-credential-provider-config", &providers.display().to_string())
        .global("--image-credential-provider-bin-dir", &programs.display().to_string());
    let mut child = waiting.spawn(&["ensure", "--wait", "-f", &manifest.display().to_string()]);
    let until = Instant::now() + PATIENCE;
    let entry = loop {
        let done = s.imagelet.run(&["backoff", "-o", "json"]);
        let list: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
        if list["entries"][0].is_object() {
            break list["entries"][0].clone();
        }
        assert!(done.code == Some(0) || done.code == Some(69), "{}", done.stderr);
        assert!(Instant::now() < until, "nothing is in back-off: {}{}", done.stdout, done.stderr);
    };
    assert_eq!((&entry["namespace"], &entry["pod"]), (&json!("shop"), &json!("web")));
    assert_eq!((&entry["image"], &entry["cause"]), (&json!(name), &json!("not_found")));
    assert_eq!((&entry["failures"], &entry["windowMilliseconds"]), (&json!(1), &json!(300_000)));
    let table = s.imagelet.ok(&["backoff"]);
    let row = table.lines().nth(1).unwrap_or_else(|| panic!("no row:\n{table}"));
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..5], ["shop/web", name.as_str(), "not_found", "1", "in"], "{table}");
    let metrics = s.imagelet.ok(&["metrics"]);
    assert_eq!(sample(&metrics, "imagelet_backoff_entries"), 1.0);
    assert_eq!(sample(&metrics, "imagelet_pull_failures_total{cause=\"not_found\"}"), 1.0);

    assert!(metrics.contains("\nkubelet_credential_provider_config_info{hash=\"sha256:"), "{metrics}");
    assert_eq!(sample(&metrics, "kubelet_imagemanager_ondisk_pullintents"), 0.0);
    let request = "pull_policy=\"ifnotpresent\",present_locally=\"false\",pull_required=\"true\"";
    let requests = format!("kubelet_image_manager_ensure_image_requests_total{{{request}}}");
    assert!(sample(&metrics, &requests) >= 1.0, "{metrics}");
    assert!(sample(&metrics, "kubelet_runtime_operations_total{operation_type=\"image_status\"}") >= 1.0, "{metrics}");

    let (_, image) = s.push_file("admin/late:1", "a", "late");
    assert_eq!(s.imagelet.ok(&["backoff", "reset", "--image", "another"]), "0\n");
    assert_eq!(
        s.imagelet.ok(&["backoff", "reset", "--pod", "shop/web", "-o", "json"]).replace(['\n', ' '], ""),
        "{\"reset\":1}"
    );
    assert!(end_of(&mut child).success(), "who waited asked again and got it");
    assert_eq!(s.imagelet.ids(), [image.id]);
    s.imagelet.fails(69, &["backoff"]);
}
