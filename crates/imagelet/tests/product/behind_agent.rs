//! `-i` with the socket of `imagelet serve`: the engine that is reported is that of the agent behind the socket, and its pins and collection are
//! the agent's. The lines of docs/behind-your-kubelet.md that say how to see that it works.

use std::fs;
use std::path::Path;

use crate::support::process::run;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet, Packing};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn engine_is_that_of_the_agent_behind_the_socket() {
    let s = Scene::new();
    let (name, image) = s.push_file("front/app:1", "a", "a");
    let containerd = Containerd::start(s.registry.host());
    let endpoint = containerd.endpoint();
    let filled = "embedded: it fills containerd's snapshotter";
    for (number, (flags, want)) in [
        (&["-i", &endpoint, "-r", &endpoint][..], filled),
        (&["-i", &endpoint], filled),
        (&["-i", &endpoint, "-r", &endpoint, "--pull-engine", "runtime"], "runtime: pullEngine is runtime"),
        (&[], "embedded: it fills the store of imagelet"),
    ]
    .into_iter()
    .enumerate()
    {
        let (root, socket) = (s.scratch.join(&format!("agent{number}")), s.scratch.join(&format!("{number}.sock")));
        let agent = flags.chunks(2).fold(Imagelet::on(&root), |agent, flag| agent.global(flag[0], flag[1]));
        let mut agent = agent.serve(&socket);
        let front = Imagelet::on(&s.scratch.join("client")).global("-i", &format!("unix://{}", socket.display()));
        let explained = front.run(&["explain", &name]);
        assert_eq!(explained.code, Some(0), "{}", explained.stderr);
        let line = explained.stderr.lines().next().expect("a line");
        assert!(line.contains(&format!("pullEngine={want}")), "{flags:?}: {line}");
        let status = front.ok(&["status"]);
        if !flags.is_empty() {
            assert!(status.contains(&format!("Pull engine: {want}")), "{flags:?}: {status}");
        }
        assert!(!(explained.stderr + &status).contains("not containerd"));
        assert_eq!(front.ok(&["pull", &name]).trim(), image.id);
        front.ok(&["pin", &name]);
        let pins = Imagelet::on(&root).env("IMAGELET_LOG_LEVEL", "error");
        let pins = flags.first().map_or(pins.clone(), |_| pins.global("-i", &endpoint)).ok(&["pins"]);
        assert!(pins.contains(&name), "{flags:?}: the agent has the pin: {pins}");
        let refused = front.clone().global("--signature-policy", "/nowhere/policy.json").fails(64, &["pull", &name]);
        assert!(refused.contains("signaturePolicy is /nowhere/policy.json, and the agent on "), "{refused}");
        agent.stop();
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn lines_of_the_document_about_success_are_what_is_printed() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/behind-your-kubelet.md");
    let text = fs::read_to_string(document).expect("the document");
    let chapter = text.split("\n## Check that it works\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let chapter = chapter.expect("the chapter");
    let quoted: Vec<&str> = chapter.split('`').skip(1).step_by(2).collect();
    let has = |words: &str| assert!(quoted.contains(&words), "{words:?} is not in {quoted:?}");

    let s = Scene::new();
    let layer = s.file_layer("a", "a", Packing::Gzip);
    let chain = layer.diff_id.to_string();
    let name = s.registry.push(&s.layout, &s.layout.image(&[layer]), "checked/app:1");
    let containerd = Containerd::start(s.registry.host());
    let endpoint = containerd.endpoint();
    let root = s.scratch.join("imagelet-serve");
    let config = s.scratch.join("config.yaml");
    fs::write(
        &config,
        format!("kind: ImageletConfiguration\napiVersion: imagelet.dev/v1alpha1\nroot: {}\n", root.display()),
    )
    .expect("write a configuration");
    let imagelet = Imagelet::bare().global("--config", &config.display().to_string());
    let agent = imagelet.clone().global("-i", &endpoint).global("-r", &endpoint).global("--runtime-layers", "erofs");
    let socket = s.scratch.join("cri.sock");
    let agent = agent.serve(&socket);

    let engine = "Pull engine: embedded: it fills containerd's snapshotter overlayfs with EROFS files.";
    has(engine);
    for with in [vec![], vec!["-i".to_owned(), format!("unix://{}", socket.display())]] {
        let words: Vec<&str> = with.iter().map(String::as_str).chain(["status"]).collect();
        has("imagelet status");
        assert_eq!(imagelet.ok(&words).lines().last(), Some(engine), "{words:?}");
    }
    let first = "pullEngine=embedded: it fills containerd's snapshotter overlayfs with EROFS files";
    has(first);
    let lines = agent.lines();
    assert!(lines.iter().find(|line| line.contains("INFO")).is_some_and(|line| line.ends_with(first)), "{lines:?}");

    Imagelet::remote(&format!("unix://{}", socket.display())).ok(&["pull", &name]);
    has("image pulled image=… size=… duration=…");
    agent.wait_for("the line of the pull", |line| {
        let rest = line.split_once("image pulled image=")?.1;
        (rest.contains(" size=") && rest.contains(" duration=")).then_some(())
    });
    has("ctr -n k8s.io images ls -q");
    assert!(run(containerd.ctr().args(["images", "ls", "-q"])).lines().any(|line| line == name));
    has("ctr -n k8s.io snapshots info CHAIN");
    has("imagelet.io/blob");
    assert!(run(containerd.ctr().args(["snapshots", "info", &chain])).contains("imagelet.io/blob"));
}

/// Where the path of the admin socket leads to another agent, as in another mount namespace, that agent is not asked in its place.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn admin_socket_of_another_agent_is_refused() {
    let s = Scene::new();
    let admin = s.scratch.join("admin.sock");
    let serve = |name: &str| {
        let agent = Imagelet::on(&s.scratch.join(name)).global("--admin-socket", &admin.display().to_string());
        let socket = s.scratch.join(&format!("{name}.sock"));
        (
            agent.serve(&socket),
            Imagelet::on(&s.scratch.join("client")).global("-i", &format!("unix://{}", socket.display())),
        )
    };
    let (_first, to_first) = serve("first");
    to_first.ok(&["images"]);
    fs::remove_file(&admin).expect("take the socket's path");
    let (_second, to_second) = serve("second");
    to_second.ok(&["images"]);
    for words in
        [&["images"][..], &["pull", "registry.test/app:1"], &["gc", "--all-unused"], &["pin", "registry.test/app:1"]]
    {
        let refused = to_first.fails(64, words);
        let wanted = format!("answers on its admin socket {}", admin.display());
        assert!(refused.contains(&wanted), "{words:?}: {refused}");
    }
    assert_eq!(to_second.ok(&["pins", "-q"]), "", "the second agent got no pin");
}
