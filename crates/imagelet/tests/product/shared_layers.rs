//! Layers that nodes share: bytes are counted by source, spegel finds in containerd what imagelet pulled, and the configuration in the page
//! is accepted.

use std::fs;
use std::path::Path;

use crate::support::process::run;
use crate::support::scene::Scene;
use crate::support::{Containerd, DockerRegistry, Imagelet};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn bytes_are_counted_by_source() {
    let s = Scene::new();
    let mirror = DockerRegistry::start(&s.scratch.join("mirror"));
    let (_, both) = s.push_file("team/both:1", "a", vec![7_u8; 1 << 20]);
    s.push_file("team/rest:1", "b", vec![8_u8; 1 << 20]);
    mirror.push(&s.layout, &both, "team/both:1");
    let (server, at) = (s.registry.host(), mirror.host());
    let directory = s.scratch.directory(&format!("certs.d/{server}"));
    fs::write(directory.join("hosts.toml"), format!("server = \"http://{server}\"\n[host.\"http://{at}\"]\n"))
        .expect("written");
    let certs = s.scratch.join("certs.d").display().to_string();
    let imagelet = s.imagelet.clone().global("--registry-config-path", &certs);
    let socket = s.scratch.join("cri.sock");
    let mut agent = imagelet.serve(&socket);
    let through = Imagelet::remote(&format!("unix://{}", socket.display()));
    let counts = || {
        let text = imagelet.ok(&["metrics"]);
        let of = |labels: &str| {
            let name = format!("imagelet_pull_bytes_total{{{labels}}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap_or(0)
        };
        (of("source=\"registry\",mirror=\"\""), of(&format!("source=\"mirror\",mirror=\"{at}\"")))
    };
    through.ok(&["pull", &s.registry.name("team/both:1")]);
    let (from_registry, from_mirror) = counts();
    assert!(from_registry == 0 && from_mirror > 500, "{from_registry} and {from_mirror}");
    through.ok(&["pull", &s.registry.name("team/rest:1")]);
    let (after, same) = counts();
    assert!(after > 500 && same == from_mirror, "{after} and {same}:\n{}", imagelet.ok(&["metrics"]));
    agent.stop();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn spegel_finds_what_was_pulled_if_blobs_are_kept() {
    let s = Scene::new();
    let (name, _) = s.push_file("team/shared:1", "a", "shared");
    let host = s.registry.host().split(':').next().expect("a host").to_owned();
    for keeps in [true, false] {
        let containerd = Containerd::start(s.registry.host());
        let remote = Imagelet::remote(&containerd.endpoint()).global("--pull-engine", "embedded");
        remote.flag(&format!("--keep-blobs={keeps}")).ok(&["pull", &name]);
        let listed = run(containerd.ctr().args(["images", "ls", "-q"]));
        assert!(listed.lines().any(|line| line == name), "{listed}");
        let content = run(containerd.ctr().args(["content", "ls"]));
        let label = format!("containerd.io/distribution.source.{host}=team/shared");
        let blobs: Vec<&str> = content.lines().filter(|line| line.starts_with("sha256:")).collect();
        assert_eq!(blobs.len(), if keeps { 3 } else { 2 }, "manifest, config and layer:\n{content}");
        assert!(blobs.iter().all(|line| line.contains(&label)), "{label} in\n{content}");
    }
}

/// The blocks of a page in one language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn configuration_in_the_page_is_accepted() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/shared-layers.md");
    let page = fs::read_to_string(page).expect("the page");
    let hosts = blocks(&page, "toml");
    assert_eq!(hosts.len(), 3);
    for text in hosts {
        let file = registry::hosts::parse(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let mut no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        let namespace = file.into_namespace("registry.example", &mut no_files).expect("hosts");
        assert_eq!(namespace.hosts.len(), 2, "the mirror and the registry:\n{text}");
        assert!(!namespace.hosts[0].upstream && namespace.hosts[0].capabilities.pull);
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let configurations = blocks(&page, "yaml");
    assert_eq!(configurations.len(), 3);
    for (n, text) in configurations.into_iter().enumerate() {
        let file = scratch.path().join(format!("{n}.yaml"));
        let head = "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n";
        fs::write(&file, format!("{head}{text}")).expect("written");
        if text.contains("/etc/imagelet/config.yaml") {
            Imagelet::bare().ok(&["config", "check", &file.display().to_string()]);
        } else {
            assert!(text.contains("\nmirrors:\n  registry.example:\n"), "{text}");
        }
    }
}
