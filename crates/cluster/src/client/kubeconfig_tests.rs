//! Tests of kubeconfig files: the credentials they may hold, and errors.

use super::*;

const CLUSTER: &str = "clusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:6443\n";
const USES: &str = "contexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n";

/// The client of this kubeconfig, or the error in one line.
async fn open(text: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, text).expect("written");
    client(&path).await.map(drop).map_err(|error| {
        let line = chain(&error);
        assert!(line.contains(&path.display().to_string()), "the file is named: {line}");
        line
    })
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    cri_api::Error::from_source(cri_api::Kind::Unknown, error).message().to_owned()
}

#[tokio::test]
async fn credentials_of_each_kind_make_a_client() {
    let head = format!("apiVersion: v1\nkind: Config\n{CLUSTER}{USES}");
    let exec = "{apiVersion: client.authentication.k8s.io/v1, command: /bin/echo, interactiveMode: Never, args: ['{\"apiVersion\": \
                \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"t\"}}']}";
    for user in ["{token: abc}", "{}", &format!("{{exec: {exec}}}")] {
        let opened = open(&format!("{head}users:\n- name: u\n  user: {user}\n")).await;
        assert_eq!(opened, Ok(()), "{user}");
    }
}

#[tokio::test]
async fn errors_name_the_file_and_the_cause() {
    let head = format!("apiVersion: v1\nkind: Config\n{CLUSTER}{USES}");
    let user = |user: &str| format!("{head}users:\n- name: u\n  user: {user}\n");
    let proxied = CLUSTER.replace("server:", "proxy-url: http://127.0.0.1:3128\n    server:");
    for (text, want) in [
        ("]".to_owned(), ""),
        (format!("{CLUSTER}users: []\n"), "context"),
        (user("{tokenFile: /not/there}"), "/not/there"),
        (user("{client-certificate: /no.crt, client-key: /no.key}"), "/no."),
        (
            user("{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}}"),
            "/bin/false",
        ),
        (format!("{proxied}{USES}users:\n- name: u\n  user: {{}}\n"), "proxy-url"),
    ] {
        let line = open(&text).await.expect_err(&text);
        assert!(line.contains(want), "{want}: {line}");
    }
    let absent = client(Path::new("/not/there")).await.map(drop).expect_err("absent");
    assert!(chain(&absent).starts_with("kubeconfig /not/there"), "{absent}");
}

#[tokio::test]
async fn files_are_merged_as_kubectl_merges_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let head = "apiVersion: v1\nkind: Config\n";
    std::fs::write(path("cluster"), format!("{head}{CLUSTER}")).expect("written");
    std::fs::write(path("rest"), format!("{head}{USES}users:\n- name: u\n  user: {{token: abc}}\n")).expect("written");
    let (cluster, rest, absent) = (path("cluster"), path("rest"), path("absent"));
    let merge = async |paths: &[&PathBuf]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
        merged(&paths).await.map(drop).map_err(|error| chain(&error))
    };
    assert_eq!(merge(&[&cluster, &absent, &rest]).await, Ok(()));
    assert!(merge(&[&cluster]).await.is_err(), "no context");
    let error = merge(&[&absent]).await.expect_err("no file");
    assert!(error.starts_with(&format!("kubeconfig {}", absent.display())), "{error}");
}
