//! `-i` with the socket of `imagelet serve`: the engine that is reported is that of the agent behind the socket, and its pins and collection are
//! the agent's.

use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

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
