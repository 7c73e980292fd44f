//! Resolution of the names in pods, and the content of secrets directories.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;
use crate::directory::read as read_directory;
use crate::read::parse;

const CONFIG: &str = "{\"auths\":{\"registry.example\":{\"username\":\"u\",\"password\":\"s3cret\"}}}";

fn secret(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         type: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: '{CONFIG}'\n---\n"
    )
}

fn account(namespace: &str, name: &str, secrets: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: {namespace}, annotations: {{a: b}}}}\n\
         imagePullSecrets: {secrets}\n---\n"
    )
}

fn pod(spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: shop}}\nspec: {{containers: [{{name: c, image: i}}]{spec}}}\n---\n"
    )
}

fn resolve(manifest: &str) -> (Vec<String>, Vec<String>, String) {
    let mut objects = parse("f.yaml", manifest).expect("parses");
    let pod = objects.pods.remove(0);
    let mut store = SecretStore::default();
    store.add(objects);
    let resolved = store.resolve(&pod);
    let account = resolved.account.map(|a| format!("{}/{} {}", a.namespace, a.name, a.annotations.len()));
    (resolved.secrets.into_iter().map(|s| s.name).collect(), resolved.missing, account.unwrap_or_default())
}

#[test]
fn names_stand_for_objects_of_the_pods_namespace() {
    let all = [
        secret("shop", "a"),
        secret("shop", "b"),
        secret("other", "c"),
        account("shop", "default", "[{name: a}]"),
        account("shop", "web", "[{name: b}, {name: lost}]"),
        account("other", "web", "[{name: c}]"),
    ]
    .concat();
    let cases: [(&str, &[&str], &[&str], &str); 7] = [
        // The account's secrets count only where the pod lists none.
        ("", &["a"], &[], "shop/default 1"),
        (", imagePullSecrets: [{name: b}]", &["b"], &[], "shop/default 1"),
        (", imagePullSecrets: [{name: b}, {name: a}, {name: b}]", &["b", "a", "b"], &[], "shop/default 1"),
        (", serviceAccountName: web", &["b"], &["lost"], "shop/web 1"),
        (", serviceAccount: web", &["b"], &["lost"], "shop/web 1"),
        (", serviceAccountName: nobody, imagePullSecrets: [{name: c}]", &[], &["c"], "shop/nobody 0"),
        // Empty names are passed over, and then none is left.
        (", imagePullSecrets: [{name: ''}, {}]", &["a"], &[], "shop/default 1"),
    ];
    for (spec, secrets, missing, who) in cases {
        let got = resolve(&(pod(spec) + &all));
        let want =
            (secrets.iter().map(ToString::to_string).collect(), missing.iter().map(ToString::to_string).collect());
        assert_eq!((got.0, got.1), want, "{spec}");
        assert_eq!(got.2, who, "{spec}");
    }
}

#[test]
fn made_uids_are_stable_and_differ() {
    let uid = |text: &str| {
        let objects = parse("f", text).expect("parses");
        let uids = objects.secrets.iter().map(|s| &s.secret.uid).chain(objects.accounts.iter().map(|a| &a.account.uid));
        uids.cloned().collect::<Vec<_>>()
    };
    let all = [secret("shop", "a"), secret("shop", "b"), secret("other", "a"), account("shop", "a", "[]")].concat();
    let uids = uid(&all);
    assert_eq!(uids, uid(&all));
    assert_eq!(uids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{uids:?}");
    assert_eq!(unknown_account("shop", "a").uid, uids[3], "with and without a manifest it is the same account");
    let written = uid(&secret("shop", "a").replace("name: a,", "name: a, uid: u1,"));
    assert_eq!(written, ["u1"]);
}

#[test]
fn what_was_given_first_counts() {
    let mut store = SecretStore::default();
    let parsed = |text: &str| parse("f", text).expect("parses");
    store.add(parsed(&secret("shop", "a").replace("s3cret", "first")));
    store.add(parsed(&(secret("shop", "a") + &secret("shop", "b"))));
    let pod = parsed(&pod(", imagePullSecrets: [{name: a}, {name: b}]")).pods.remove(0);
    let got = store.resolve(&pod).secrets;
    assert!(got[0].data[".dockerconfigjson"].expose().contains("first"));
    assert!(got[1].data[".dockerconfigjson"].expose().contains("s3cret"));
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

#[test]
fn a_directory_gives_what_it_can_and_tells_the_rest() {
    let directory = tempfile::tempdir().expect("temporary directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let path = |name: &str| directory.path().join(name);
    write(&path("1.yaml"), &(secret("shop", "a") + &account("shop", "web", "[{name: a}]")), 0o600);
    write(
        &path("2.json"),
        "{\"apiVersion\":\"v1\",\"kind\":\"SecretList\",\"items\":[{\"metadata\":{\"name\":\"b\"}}]}",
        0o640,
    );
    write(&path("3.yml"), &secret("shop", "c"), 0o644);
    write(&path("4.yaml"), "s3cret: [s3cret\n- s3cret", 0o600);
    write(&path("5.yaml"), &pod(""), 0o600);
    write(&path("6.yaml"), "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: s3cret}\n", 0o600);
    write(&path("7.yaml"), "s3cret\n", 0o600);
    write(&path("8.yaml"), &secret("shop", "a"), 0o600);
    write(&path(".hidden.yaml"), "s3cret", 0o600);
    write(&path("notes.txt"), "s3cret", 0o644);
    fs::create_dir(path("9.yaml")).expect("made");
    fs::write(path("a.yaml"), [0xff, b's', b'3', b'c', b'r', b'e', b't']).expect("written");

    let read = read_directory(directory.path()).expect("read");
    let names: Vec<_> = read.objects.secrets.iter().map(|s| s.secret.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "a"]);
    assert_eq!(read.objects.accounts.len(), 1);
    let short = |line: &String| line.replace(&format!("{}/", directory.path().display()), "");
    let problems: Vec<String> = read.problems.iter().map(short).collect();
    assert!(problems.iter().all(|line| !line.contains("s3cret")), "{problems:?}");
    let want = [
        "3.yml: every user of this machine can read it (mode 0644); use 0600",
        "4.yaml:",
        "5.yaml:1: document 1: kind Pod (v1) is none of Secret, ServiceAccount, List (v1); its secrets are not known",
        "6.yaml:4: document 1: Secret default/x: data.a is not base64; its secrets are not known",
        "7.yaml:1: document 1: an object was expected, not text; its secrets are not known",
        "read 9.yaml: it is no file; its secrets are not known",
        "read a.yaml: it is not UTF-8 text; its secrets are not known",
    ];
    assert_eq!(problems.len(), want.len(), "{problems:#?}");
    for (got, want) in problems.iter().zip(want) {
        assert!(got.starts_with(want), "{got}\n{want}");
    }
    let twice = short(&read.duplicates().expect("told"));
    assert_eq!(
        twice,
        "8.yaml:1: document 1: Secret shop/a was given before, at 1.yaml:1: document 1; the first counts"
    );

    // In a directory that other users cannot enter, the files' modes do not matter.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("permissions");
    let read = read_directory(directory.path()).expect("read");
    assert!(!read.problems.iter().any(|line| line.contains("every user")), "{:?}", read.problems);
    assert!(read_directory(&path("nowhere")).is_err());
}
