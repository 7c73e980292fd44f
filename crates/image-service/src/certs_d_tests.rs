//! The certs.d loader on real directories.

use super::*;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn bases(namespace: &Namespace) -> Vec<String> {
    namespace.hosts.iter().map(|h| h.base.to_string()).collect()
}

fn mirror(name: &str) -> String {
    format!("[host.\"https://{name}\"]\n")
}

#[test]
fn the_first_directory_wins() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let roots = [a.path().to_owned(), b.path().to_owned(), "/does/not/exist".into()];
    let get = |domain: &str| bases(&load(&roots, domain).expect(domain));
    assert_eq!(get("r.example"), ["https://r.example/"]);
    write(b.path(), "r.example/hosts.toml", &mirror("second"));
    assert_eq!(get("r.example"), ["https://second/", "https://r.example/"], "read again on every call");
    write(a.path(), "_default/hosts.toml", &mirror("default"));
    assert_eq!(get("r.example"), ["https://default/", "https://r.example/"], "roots in order, not names in order");
    write(a.path(), "r.example/hosts.toml", &mirror("first"));
    assert_eq!(get("r.example"), ["https://first/", "https://r.example/"]);
    write(a.path(), "r.example:5000/hosts.toml", &mirror("colon"));
    assert_eq!(get("r.example:5000"), ["https://colon/", "https://r.example:5000/"]);
    write(a.path(), "r.example_5000_/hosts.toml", &mirror("underscores"));
    assert_eq!(get("r.example:5000"), ["https://underscores/", "https://r.example:5000/"]);
    assert_eq!(get("other.example"), ["https://default/", "https://other.example/"]);
}

#[test]
fn a_directory_is_for_its_host_in_every_spelling() {
    let hosts: [(&str, &[&str]); 5] = [
        (
            "docker.io",
            &["docker.io", "Docker.io", "docker.io:443", "docker.io_443_", "DOCKER.IO_0443_", "index.docker.io"],
        ),
        ("r.example", &["r.example", "R.Example", "r.example:443", "r.example_443_"]),
        (
            "localhost:5999",
            &["localhost_5999_", "localhost:5999", "LOCALHOST:5999", "localhost:05999", "LOCALHOST_05999_"],
        ),
        ("127.0.0.1:443", &["127.0.0.1_443_", "127.0.0.1:443", "127.0.0.1:0443"]),
        ("[::1]:5999", &["[::1]_5999_", "[::1]:5999", "[0:0::0001]:5999", "[::0001]_05999_"]),
    ];
    for (domain, spellings) in hosts {
        for spelling in spellings {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), "_default/hosts.toml", &mirror("default"));
            write(root.path(), "other.example/hosts.toml", &mirror("other"));
            write(root.path(), &format!("{spelling}/hosts.toml"), &mirror("its-own"));
            let got = bases(&load(&[root.path().to_owned()], domain).expect(domain));
            assert_eq!(got[0], "https://its-own/", "{spelling} for {domain}");
        }
    }
    // The normal form goes first; of two other spellings none does.
    let root = tempfile::tempdir().unwrap();
    let load = || load(&[root.path().to_owned()], "r.example");
    write(root.path(), "R.example/hosts.toml", &mirror("upper"));
    write(root.path(), "127.1/hosts.toml", &mirror("nobody"));
    write(root.path(), "r.example:443", "no directory");
    assert_eq!(bases(&load().expect("one"))[0], "https://upper/");
    write(root.path(), "r.example_443_/hosts.toml", &mirror("port"));
    let error = load().expect_err("two").to_string();
    assert!(
        error.contains("R.example") && error.contains("r.example_443_ ") | error.contains("r.example_443_:"),
        "{error}"
    );
    assert!(error.contains("is for the same registry, r.example"), "{error}");
    write(root.path(), "r.example/hosts.toml", &mirror("normal"));
    assert_eq!(bases(&load().expect("its own"))[0], "https://normal/");
}

#[test]
fn a_broken_file_is_an_error_with_file_line_and_key() {
    let root = tempfile::tempdir().unwrap();
    let roots = [root.path().to_owned()];
    let told = |domain: &str| load(&roots, domain).expect_err(domain).to_string();
    write(root.path(), "a.example/hosts.toml", "server = \"https://a.example\"\nskip_verfy = true\n");
    let error = told("a.example");
    assert!(error.contains("a.example/hosts.toml") && error.contains("line 2: skip_verfy"), "{error}");
    write(root.path(), "b.example/hosts.toml", "[host\n");
    assert!(told("b.example").contains("b.example/hosts.toml: line 1"), "{}", told("b.example"));
    write(root.path(), "c.example/hosts.toml", "ca = \"missing.crt\"\n");
    assert!(told("c.example").contains("missing.crt"), "{}", told("c.example"));
    std::fs::create_dir_all(root.path().join("d.example/hosts.toml")).unwrap();
    assert!(told("d.example").contains("not a file"), "{}", told("d.example"));
}

#[test]
fn dockers_layout_without_hosts_toml() {
    let root = tempfile::tempdir().unwrap();
    let roots = [root.path().to_owned()];
    write(root.path(), "r.example/ca.crt", "authority");
    write(root.path(), "r.example/me.cert", "certificate");
    write(root.path(), "r.example/me.key", "key");
    write(root.path(), "r.example/notes.txt", "nothing");
    let namespace = load(&roots, "r.example").expect("loads");
    let tls = &namespace.hosts[0].tls;
    assert_eq!(tls.ca_pem, [b"authority".to_vec()]);
    assert_eq!(tls.client_identity_pem, [(b"certificate".to_vec(), b"key".to_vec())]);
    write(root.path(), "r.example/hosts.toml", "");
    assert_eq!(load(&roots, "r.example").expect("loads"), namespace, "an empty file is none");
    write(root.path(), "r.example/lonely.cert", "certificate");
    let error = load(&roots, "r.example").expect_err("no key").to_string();
    assert!(error.contains("lonely.cert") && error.contains("no lonely.key"), "{error}");
}

#[test]
fn a_domain_is_no_path() {
    for domain in ["../etc", "a/b", "..", ""] {
        let result = load(&[PathBuf::from("/etc")], domain);
        assert!(result.is_err() || domain == "..", "{domain}");
    }
}
