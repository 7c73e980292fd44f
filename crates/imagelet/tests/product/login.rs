//! Credentials of people, and registries that listen in TLS: `login`, `logout`, files of podman and docker, refused
//! credentials, `--tls-verify` and `--plain-http`. Against Debian's docker-registry with a password.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::Imagelet;
use crate::support::manifests::docker_config;
use crate::support::process::{run, tool};
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;

const USER: (&str, &str) = ("ada", "hornbeam-and-hazel");

/// A registry with TLS and a password, and a home directory whose user trusts its authority.
struct Fixture {
    imagelet: Imagelet,
    registry: GuardedRegistry,
    image: String,
    id: String,
    home: PathBuf,
    s: Scene,
}

impl Fixture {
    fn new() -> Self {
        let s = Scene::new();
        let (_, image) = s.push_file("team/app:1", "a", "a");
        s.layout.name(&image, "team/app:1");
        let registry = GuardedRegistry::start(&s.scratch.join("registry"), &[USER]);
        let certs = registry.hosts_file(&s.scratch.join("certs.d"));
        let home = s.scratch.directory("home");
        let runtime = s.scratch.directory("runtime");
        let imagelet = s.imagelet.clone().global("--registry-config-path", &certs);
        let imagelet = imagelet.env("HOME", &text(&home)).env("XDG_RUNTIME_DIR", &text(&runtime));
        let (image, id) = (registry.name("team/app:1"), image.id.to_string());
        Self { imagelet, registry, image, id, home, s }
    }

    fn write(&self, path: &str, user: (&str, &str)) -> String {
        self.write_for(&self.registry.host, path, user)
    }

    fn write_for(&self, location: &str, path: &str, (user, password): (&str, &str)) -> String {
        let path = self.s.scratch.join(path);
        fs::create_dir_all(path.parent().expect("has one")).expect("a directory");
        fs::write(&path, docker_config(&[(location, user, password)]).to_string()).expect("written");
        text(&path)
    }

    /// Removes the image, and pulls it.
    #[track_caller]
    fn pulls(&self, imagelet: &Imagelet) -> String {
        imagelet.run(&["rmi", &self.image]);
        let done = imagelet.run(&["pull", &self.image]);
        assert_eq!((done.code, done.stdout.trim_end()), (Some(0), self.id.as_str()), "{}", done.stderr);
        done.stderr
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn people_log_in_and_out() {
    let p = Fixture::new();
    let host = p.registry.host.as_str();
    let file = p.s.scratch.join("runtime/containers/auth.json");
    let login = ["login", "-u", USER.0, "--password-stdin", host];
    let wrong = p.imagelet.run_with_input(&login, "guessed-and-wrong\n");
    assert!(wrong.fails(77, &login).contains("401 Unauthorized") && !file.exists());
    assert_eq!(p.imagelet.fails(1, &["login", "--get-login", host]), format!("error: not logged in to {host}"));
    assert_eq!(p.imagelet.fails(1, &["logout", host]), format!("error: not logged in to {host}"));
    p.imagelet.fails(77, &["pull", &p.image]);

    let done = p.imagelet.run_with_input(&login, &format!("{}\n", USER.1));
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "Login Succeeded!\n"), "{}", done.stderr);
    assert_eq!(fs::metadata(&file).expect("written").permissions().mode() & 0o777, 0o600);
    p.pulls(&p.imagelet);
    assert_eq!(p.imagelet.ok(&["login", "--get-login", host]), "ada\n");
    assert_eq!(p.imagelet.ok(&["login", host]), format!("Already logged in to {host} as ada\n"));
    p.imagelet.ok(&["push", &p.image, &p.registry.name("team/other:1")]);
    // skopeo reads the same file.
    let inspected = run(tool("skopeo")
        .args(["inspect", "--raw", "--tls-verify=false", "--authfile", &text(&file)])
        .arg(format!("docker://{}", p.registry.name("team/other:1"))));
    assert!(inspected.contains("layers"), "{inspected}");
    let gone = format!("Removed login credentials for {host}\n");
    assert_eq!(p.imagelet.ok(&["logout", host]), gone);
    let kept: Value = serde_json::from_slice(&fs::read(&file).expect("there")).expect("JSON");
    assert_eq!(kept, json!({"auths": {}}));
    p.imagelet.fails(77, &["pull", &p.image]);

    // A part of a registry, and everything at once.
    let login = ["login", "-u", USER.0, "--password-stdin", &format!("{host}/team")];
    assert_eq!(p.imagelet.run_with_input(&login, USER.1).code, Some(0));
    p.pulls(&p.imagelet);
    assert_eq!(p.imagelet.ok(&["logout", "--all"]), format!("Removed login credentials for {host}/team\n"));

    for (args, said) in [
        (&["login", host][..], "standard input is no terminal"),
        (&["login", "--password-stdin", host], "--username"),
        (&["login", "-u", "x", "u@h"], "is not a registry"),
    ] {
        let done = p.imagelet.run(args);
        assert!(done.code == Some(2) && done.stderr.contains(said), "{args:?}: {}", done.stderr);
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn dockers_file_and_its_helper_are_used_where_they_are_there() {
    let p = Fixture::new();
    let host = p.registry.host.as_str();
    let docker = p.s.scratch.join("docker/config.json");
    fs::create_dir_all(docker.parent().expect("has one")).expect("a directory");
    fs::write(&docker, r#"{"HttpHeaders": {"a": "b"}}"#).expect("written");
    let imagelet = p.imagelet.clone().env("DOCKER_CONFIG", &text(docker.parent().expect("has one")));
    let login = ["login", "-u", USER.0, "--password-stdin", host];
    assert_eq!(imagelet.run_with_input(&login, USER.1).code, Some(0));
    let config = || serde_json::from_slice::<Value>(&fs::read(&docker).expect("there")).expect("JSON");
    assert!(config()["auths"][host]["auth"].is_string() && config()["HttpHeaders"]["a"] == "b");
    p.pulls(&imagelet);
    imagelet.ok(&["logout", host]);

    let (bin, kept) = (p.s.scratch.directory("bin"), p.s.scratch.join("kept"));
    let script = format!(
        "#!/bin/sh\ncase $1 in\nstore) cat > {kept} ;;\nerase) rm -f {kept} ;;\n\
         get) cat {kept} 2>/dev/null || {{ echo credentials not found in native keychain; exit 1; }} ;;\nesac\n",
        kept = kept.display()
    );
    let program = bin.join("docker-credential-box");
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::write(&docker, r#"{"credsStore": "box"}"#).expect("written");
    let imagelet = imagelet.env("PATH", &format!("{}:/usr/bin:/bin", bin.display()));
    let done = imagelet.run_with_input(&login, USER.1);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(kept.exists() && !fs::read_to_string(&docker).expect("there").contains("\"auth\":"));
    p.pulls(&imagelet);
    assert_eq!(imagelet.ok(&["login", "--get-login", host]), "ada\n");
    imagelet.ok(&["logout", host]);
    assert!(!kept.exists());
}

/// Each place where a person's tools keep credentials is one for imagelet, and none for an agent.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn credentials_of_peoples_tools_count_for_people() {
    let p = Fixture::new();
    let host = p.registry.host.clone();
    // The place of the file, its path, the location of the credential, and a variable that names the place.
    let rows = [
        ("runtime directory", "runtime/containers/auth.json", host.as_str(), None),
        ("configuration in the home", "home/.config/containers/auth.json", &host, None),
        ("configuration elsewhere", "conf/containers/auth.json", &host, Some(("XDG_CONFIG_HOME", "conf"))),
        ("docker's directory", "docker/config.json", &host, Some(("DOCKER_CONFIG", "docker"))),
        ("a named file", "named.json", &host, Some(("REGISTRY_AUTH_FILE", "named.json"))),
        ("a part of a registry", "runtime/containers/auth.json", &format!("{host}/team"), None),
    ];
    for (what, path, location, variable) in rows {
        let file = p.write_for(location, path, USER);
        let mut imagelet = p.imagelet.clone();
        if let Some((name, value)) = variable {
            imagelet = imagelet.env(name, &text(&p.s.scratch.join(value)));
        }
        let said = p.pulls(&imagelet);
        assert!(said.contains(&format!("file {file}\"")), "{what}: {said}");
        fs::remove_file(file).expect("removed");
        imagelet.ok(&["rmi", &p.image]);
        assert_eq!(imagelet.run(&["pull", &p.image]).code, Some(77), "{what}");
    }
    assert!(p.home.exists());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_file_is_given_by_its_name_and_a_refused_credential_is_named() {
    let p = Fixture::new();
    let good = p.write("good.json", USER);
    let imagelet = p.imagelet.clone().global("--docker-config-path", &good);
    assert!(p.pulls(&imagelet).contains(&format!("file {good}\"")));

    // A refused one before a good one.
    let bad = p.write("runtime/containers/auth.json", ("ada", "guessed-and-wrong"));
    let second = p.write("home/.docker/config.json", USER);
    let said = p.pulls(&p.imagelet);
    let warned = said.lines().find(|line| line.contains("did not work")).unwrap_or_else(|| panic!("{said}"));
    assert!(warned.contains(&bad) && warned.contains(&second) && warned.contains("401"), "{warned}");
    let pushed = p.imagelet.run(&["push", &p.image, &p.registry.name("team/pushed:1")]);
    assert_eq!(pushed.code, Some(0), "{}", pushed.stderr);
    assert!(pushed.stderr.contains(&bad), "{}", pushed.stderr);

    p.imagelet.ok(&["rmi", &p.image]);
    let explained = p.imagelet.run(&["explain", "--check-credentials", &p.image]);
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert!(
        explained.stdout.contains(&format!("file {bad}: refused, file {second}: accepted")),
        "{}",
        explained.stdout
    );
    assert!(explained.stderr.contains(&format!("file {bad} is refused")), "{}", explained.stderr);

    // The same refusal has the same exit code in every command.
    fs::remove_file(&second).expect("removed");
    let manifest = p.s.scratch.join("pod.yaml");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": p.image}]}});
    fs::write(&manifest, pod.to_string()).expect("written");
    for args in [
        &["pull", &p.image][..],
        &["ensure", "-f", &text(&manifest)],
        &["push", "--creds", "ada:guessed-and-wrong", &format!("oci:{}", p.s.layout.path().display()), &p.image],
    ] {
        let done = p.imagelet.run(args);
        assert_eq!(done.code, Some(77), "{args:?}: {}", done.stderr);
    }
}

/// A registry on loopback that listens in TLS: it is met in TLS, and its certificate counts unless it is said otherwise.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_registry_on_loopback_may_listen_in_tls() {
    let p = Fixture::new();
    let file = p.write("good.json", USER);
    // Nothing is configured for the host.
    let imagelet = p.s.imagelet.clone().global("--docker-config-path", &file);
    let imagelet = imagelet.global("--registry-config-path", &text(&p.s.scratch.directory("empty")));
    let refused = imagelet.run(&["pull", &p.image]);
    assert_eq!(refused.code, Some(69), "{}", refused.stderr);
    assert!(refused.stderr.contains("UnknownIssuer"), "{}", refused.stderr);
    imagelet.ok(&["pull", "--tls-verify=false", &p.image]);
    imagelet.ok(&["push", "--tls-verify=false", &p.image, &p.registry.name("team/new:1")]);
    let plain = imagelet.run(&["push", "--plain-http", &p.image, &p.registry.name("team/new:2")]);
    assert!(plain.code == Some(69) && plain.stderr.contains("400 Bad Request"), "{}", plain.stderr);
    let login = ["login", "--tls-verify=false", "-u", USER.0, "--password-stdin", &p.registry.host];
    let authfile = text(&p.s.scratch.join("a.json"));
    let login = [&login[..], &["--authfile", &authfile]].concat();
    assert_eq!(imagelet.run_with_input(&login, USER.1).code, Some(0));
    // Plain HTTP where there is no TLS, by the same flag.
    s_is_plain(&p, &imagelet);
    let done = imagelet.run(&["pull", "--tls-verify=false", "--plain-http", &p.image]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    let done = Imagelet::remote("unix:///run/none.sock").global("--pull-engine", "runtime").run(&[
        "pull",
        "--tls-verify=false",
        &p.image,
    ]);
    assert!(done.code == Some(2) && done.stderr.contains("hosts.toml"), "{}", done.stderr);
}

#[track_caller]
fn s_is_plain(p: &Fixture, imagelet: &Imagelet) {
    let (name, image) = p.s.push_file("plain/app:1", "b", "b");
    imagelet.ok(&["pull", "--tls-verify=false", &name]);
    imagelet.ok(&["pull", "--plain-http", &name]);
    assert!(imagelet.ids().contains(&image.id.to_string()));
}
