//! Registries that want TLS and a password, `hosts.toml` files with mirrors and certificates, and proxies: which host gets which
//! requests, and that no secret is printed.

use base::lock::Mutex;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;
use crate::support::{DockerRegistry, Imagelet};

const USER: &str = "operator";
const PASSWORD: &str = "cor-rect:horse=battery";

/// Writes `certs.d/<host>/hosts.toml`; the answer is the directory of all.
fn hosts_file(s: &Scene, host: &str, text: &str) -> String {
    let directory = s.scratch.directory(&format!("certs.d/{host}"));
    fs::write(directory.join("hosts.toml"), text).expect("write a hosts file");
    s.scratch.join("certs.d").display().to_string()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_registry_with_tls_and_a_password() {
    let s = Scene::new();
    let (_, image) = s.push_file("guarded/one:1", "a", "one");
    let guarded = GuardedRegistry::start(&s.scratch.join("registry"), &[(USER, PASSWORD)]);
    let name = guarded.name("guarded/one:1");
    let creds = format!("{USER}:{PASSWORD}");

    // The certificate is not signed by a known authority. Loopback is plain HTTP unless a file says otherwise.
    let unknown = hosts_file(&s, &guarded.host, &format!("server = \"https://{}\"\n", guarded.host));
    let careful = s.imagelet.clone().global("--registry-config-path", &unknown);
    let said = careful.fails(69, &["pull", &name, "--creds", &creds]);
    assert!(said.contains(&guarded.host) && said.contains("certificate"), "{said}");

    let trusting = guarded.hosts_file(&s.scratch.join("certs.d"));
    let imagelet = s.imagelet.clone().global("--registry-config-path", &trusting);
    let anonymous = imagelet.fails(77, &["pull", &name]);
    assert!(anonymous.contains(&guarded.host), "{anonymous}");
    let wrong = imagelet.fails(77, &["pull", &name, "--creds", &format!("{USER}:wrong-{PASSWORD}")]);
    assert!(!wrong.contains(PASSWORD), "{wrong}");
    assert_eq!(s.imagelet.ids(), Vec::<String>::new());

    let traced = imagelet.clone().env("IMAGELET_CREDS", &creds).run(&["--log-level", "trace", "pull", &name]);
    assert_eq!(traced.code, Some(0), "{}", traced.stderr);
    assert_eq!(s.imagelet.ids(), [image.id]);
    // The encoded form on the wire is as secret.
    let encoded = "b3BlcmF0b3I6Y29yLXJlY3Q6aG9yc2U9YmF0dGVyeQ==";
    for secret in [PASSWORD, encoded] {
        assert!(!traced.stderr.contains(secret) && !traced.stdout.contains(secret), "the log tells {secret}");
    }

    let skipped = format!("server = \"https://{}\"\nskip_verify = true\n", guarded.host);
    let careless = Imagelet::on(&s.scratch.join("careless"))
        .global("--registry-config-path", &hosts_file(&s, &guarded.host, &skipped))
        .env("IMAGELET_CREDS", &creds);
    careless.ok(&["pull", &name]);

    // Revoked: the image is here, but the registry was asked and said no.
    guarded.set_users(&[("somebody-else", PASSWORD)]);
    guarded.asked();
    imagelet.fails(77, &["pull", &name, "--creds", &creds]);
    let asked = guarded.asked();
    assert!(asked.iter().any(|a| a.is_manifest_of("guarded/one")), "{asked:?}");
    assert!(asked.iter().all(|a| a.status == 401 && !a.is_blob()), "{asked:?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_mirror_is_asked_first_and_the_registry_when_it_has_not() {
    let s = Scene::new();
    let mirror = DockerRegistry::start(&s.scratch.join("mirror"));
    let (_, both) = s.push_file("team/both:1", "a", "both");
    s.push_file("team/here-only:1", "a", "here only");
    mirror.push(&s.layout, &both, "team/both:1");
    let text = format!(
        "server = \"http://{}\"\n[host.\"http://{}\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
        s.registry.host(),
        mirror.host()
    );
    // The name that pods use does not resolve: it exists in the hosts file alone.
    let imagelet = s.imagelet.clone().global("--registry-config-path", &hosts_file(&s, "images.example", &text));
    imagelet.ok(&["pull", "images.example/team/both:1"]);
    assert_eq!(s.registry.requests(), Vec::<String>::new(), "the mirror had it all");
    assert!(mirror.requests().iter().any(|r| r.contains("/blobs/")), "{:?}", mirror.requests());
    imagelet.ok(&["pull", "images.example/team/here-only:1"]);
    assert!(s.registry.requests().iter().any(|r| r.contains("/team/here-only/blobs/")), "{:?}", s.registry.requests());
    let listed = imagelet.ok(&["images", "-o", "name"]);
    assert!(listed.contains("images.example/team/both:1") && !listed.contains(mirror.host()), "{listed}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_broken_hosts_file_is_an_error_that_names_its_line() {
    let s = Scene::new();
    let (name, _) = s.push_file("any/one:1", "a", "one");
    for (text, names) in [
        ("server = \n", "hosts.toml"),
        ("server = \"http://x\"\nno_such_key = 1\n", "no_such_key"),
        ("server = \"http://x\"\n[host.\"http://y\"]\ncapabilities = [\"fly\"]\n", "fly"),
        ("ca = \"/nowhere/ca.pem\"\n", "/nowhere/ca.pem"),
    ] {
        let certs = hosts_file(&s, s.registry.host(), text);
        let done = s.imagelet.clone().global("--registry-config-path", &certs).run(&["pull", &name]);
        let code = done.code.expect("it has one");
        assert!(matches!(code, 1 | 64), "{text}: {done:?}");
        let said = done.fails(code, &["pull"]);
        assert!(said.contains(names), "{text}: {said}");
    }
    assert_eq!(s.registry.requests(), Vec::<String>::new(), "nobody is asked when the file is broken");
}

/// A proxy that connects to `to`, whatever name it is asked for; the answers are its address and the heads that it gets. It
/// ends with the process.
fn tunnel(to: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&heads);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (to, log) = (to.clone(), Arc::clone(&log));
            std::thread::spawn(move || forward(stream, &to, &log));
        }
    });
    (address, heads)
}

fn forward(mut near: TcpStream, to: &str, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        near.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    log.lock().push(String::from_utf8_lossy(&head).into_owned());
    let mut far = TcpStream::connect(to).ok()?;
    near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    let (mut near_in, mut far_out) = (near.try_clone().ok()?, far.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut near_in, &mut far_out);
        let _ = far_out.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut far, &mut near);
    let _ = near.shutdown(std::net::Shutdown::Both);
    Some(())
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn https_uses_the_proxy_of_the_environment() {
    let s = Scene::new();
    let (_, image) = s.push_file("guarded/one:1", "a", "one");
    let guarded = GuardedRegistry::start(&s.scratch.join("registry"), &[(USER, PASSWORD)]);
    let (proxy, heads) = tunnel(guarded.host.clone());
    // Only the proxy knows this name.
    let certs = hosts_file(&s, "guarded.example", "server = \"https://guarded.example\"\nskip_verify = true\n");
    let imagelet = s
        .imagelet
        .clone()
        .global("--registry-config-path", &certs)
        .env("HTTPS_PROXY", &format!("http://proxy-user:proxy-word@{proxy}"))
        .env("IMAGELET_CREDS", &format!("{USER}:{PASSWORD}"));
    let direct = imagelet.clone().env("NO_PROXY", "10.0.0.0/8,.example");
    direct.fails(69, &["pull", "guarded.example/guarded/one:1"]);
    assert_eq!(*heads.lock(), Vec::<String>::new());

    let done = imagelet.run(&["--log-level", "trace", "pull", "guarded.example/guarded/one:1"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(s.imagelet.ids(), [image.id]);
    let heads = heads.lock().clone();
    assert!(!heads.is_empty());
    for head in heads {
        assert!(head.starts_with("CONNECT guarded.example:443 HTTP/1.1\r\n"), "{head}");
        // `proxy-user:proxy-word`, and nothing that is the registry's.
        assert!(
            head.to_lowercase()
                .contains("proxy-authorization: basic cHJveHktdXNlcjpwcm94eS13b3Jk".to_lowercase().as_str()),
            "{head}"
        );
        assert!(!head.contains(PASSWORD) && !head.contains("b3BlcmF0b3I6"), "{head}");
    }
    for secret in ["proxy-word", "cHJveHktdXNlcjpwcm94eS13b3Jk", PASSWORD] {
        assert!(!done.stderr.contains(secret) && !done.stdout.contains(secret), "the log tells {secret}");
    }
}
