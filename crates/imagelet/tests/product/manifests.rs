//! Commands about manifests and settings as they are typed, and every line that is answered: files, directories, addresses and streams; kinds of
//! others; misspelt fields, keys and variables. Needs no daemon and no store; the same for root and for an ordinary user.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use crate::support::Imagelet;
use crate::support::home::Home;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec:\n  containers:\n  - name: c\n    image: 127.0.0.1:1/x:1\n    \
                   imagePullPolicy: Never\n";
const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n";
const ROLLOUT: &str = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  strategy: {canary: {}}\n  \
                       template: {spec: {containers: [{name: c, image: '127.0.0.1:1/x:1', imagePullPolicy: Never}]}}\n";
/// Titles of the answer of `explain`.
const HEAD: &str = "POD CONTAINER IMAGE POLICY DECISION WHY CREDENTIALS\n";

/// A command with its standard input, and what is answered. `D` is the directory of the manifests; runs of blanks are one blank.
struct Row {
    typed: &'static str,
    input: String,
    stdout: String,
    stderr: &'static str,
    code: i32,
}

fn row(typed: &'static str, stdout: &[&str], stderr: &'static str, code: i32) -> Row {
    let line = |pod: &&str| {
        format!("{pod} c 127.0.0.1:1/x:1 Never refuse the image is not present, and the pull policy is Never -\n")
    };
    let body: String = stdout.iter().map(line).collect();
    let stdout = if stdout.is_empty() { String::new() } else { format!("{HEAD}{body}") };
    Row { typed, input: String::new(), stdout, stderr, code }
}

fn pod(name: &str) -> String {
    POD.replace("NAME", name)
}

/// Manifests as people have them.
fn write_manifests(root: &Path) {
    for directory in ["many/below", "none/below", "kustomized"] {
        fs::create_dir_all(root.join(directory)).expect("made");
    }
    let misspelt = pod("bad").replace("imagePullPolicy", "imagePullPolcy");
    for (name, text) in [
        ("many/b.yml", ROLLOUT.to_owned()),
        ("many/a.yaml", format!("# Source: chart\n---\n---\n{SERVICE}---\n{}---\n# end\n", pod("a"))),
        (
            "many/c.json",
            "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"m\"}}".to_owned(),
        ),
        ("many/notes.txt", "no manifest".to_owned()),
        ("many/.a.yaml", "no manifest".to_owned()),
        ("many/below/d.yaml", pod("d")),
        ("none/below/d.yaml", pod("d")),
        ("kustomized/kustomization.yaml", "resources: [d.yaml]\nimages: [{name: x, newTag: '2'}]\n".to_owned()),
        ("service.yaml", SERVICE.to_owned()),
        ("empty.yaml", "# nothing\n---\n".to_owned()),
        ("misspelt.yaml", misspelt),
        ("kind.yaml", pod("k").replace("Pod", "pod")),
        ("note.yaml", pod("n").replace("spec:\n", "spec:\n  hostNetwrk: true\n")),
        ("order.yaml", pod("o").replace("name: c", "name: 1").replace("spec:\n", "spec:\n  priority: high\n")),
    ] {
        fs::write(root.join(name), text).expect("written");
    }
}

/// Answers each request with the same status and body.
fn serve(status: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        }
    });
    format!("http://{address}/pod.yaml")
}

fn rows() -> Vec<Row> {
    let stream = format!("{SERVICE}---\n\n---\n# a comment\n{}---\n{ROLLOUT}---\n", pod("p"));
    let mut rows = vec![
        row("explain -f D/many", &["pod/a", "rollout/r"], "", 0),
        row("explain -R -f D/many", &["pod/a", "rollout/r", "pod/d"], "", 0),
        row("explain --recursive -f D/none -f D/service.yaml", &["pod/d"], "", 0),
        row("explain -f D/many/b.yml D/many/a.yaml --skip-other-kinds", &["rollout/r", "pod/a"], "", 0),
        row(
            "explain -f D/none",
            &[],
            "error: read D/none: there is no manifest in it (*.yaml, *.yml, *.json); -R reads the directories below it, too\n",
            1,
        ),
        row(
            "explain -f D/nowhere.yaml",
            &[],
            "error: read D/nowhere.yaml: No such file or directory (os error 2)\n",
            1,
        ),
        row("explain -f D/service.yaml", &[], "error: D/service.yaml: there is no pod in it, only service/s\n", 1),
        row("explain -f D/empty.yaml", &[], "error: D/empty.yaml: there is no pod in it\n", 1),
        row(
            "explain -f D/empty.yaml -f D/service.yaml",
            &[],
            "error: there is no pod in any of the manifests, only service/s\n",
            1,
        ),
        row(
            "explain -f D/kustomized",
            &[],
            "error: D/kustomized/kustomization.yaml:1: document 1: a kustomization is not built here: `kubectl kustomize DIR | \
             imagelet ensure -f -`\n",
            1,
        ),
        row(
            "explain -f D/kind.yaml",
            &[],
            "error: D/kind.yaml:1: document 1: kind pod (v1) is not known; did you mean \"Pod\"?\n",
            1,
        ),
        row(
            "explain -f D/order.yaml",
            &[],
            "error: D/order.yaml:5: document 1: spec.priority must be a whole number of 32 bits, not \"high\"\n",
            1,
        ),
        row(
            "run --dry-run -f D/order.yaml",
            &[],
            "error: D/order.yaml: pod default/o-here: [spec.priority: Invalid value: \"high\": must be a whole number of 32 bits, \
             spec.containers[0].name: Invalid value: 1: must be text]\n",
            1,
        ),
        row(
            "explain -f s3://bucket/pod.yaml",
            &[],
            "error: -f: addresses are read over http and https, not over s3: fetch the manifest and give the file\n",
            2,
        ),
        row("explain -f - -f -", &[], "error: -f -: standard input can be read only once\n", 2),
        row(
            "run --dry-run -f D/service.yaml",
            &[],
            "error: D/service.yaml: there is no pod in it, only service/s\n",
            1,
        ),
        row(
            "run --dry-run -f D/many/b.yml",
            &[],
            "error: D/many/b.yml: Rollout \"r\" (argoproj.io/v1alpha1) is passed over: only Pod, ConfigMap, Secret and lists of \
             them are taken\n",
            1,
        ),
        row("run --dry-run -R -f D/none -q", &[], "", 0),
    ];
    let note = "WARN spec.hostNetwrk: Unknown field; did you mean \"hostNetwork\"? path=D/note.yaml line=5\n";
    rows.push(row("explain -f D/note.yaml", &["pod/n"], note, 0));
    for typed in ["explain -f D/misspelt.yaml", "ensure -f D/misspelt.yaml"] {
        let line = "error: D/misspelt.yaml:8: document 1: spec.containers[0].imagePullPolcy: Unknown field; did you mean \
                    \"imagePullPolicy\"?\n";
        rows.push(row(typed, &[], line, 1));
    }
    rows.push(row(
        "run --dry-run -f D/misspelt.yaml",
        &[],
        "error: D/misspelt.yaml: pod default/bad-here: spec.containers[0].imagePullPolcy: Unknown field; did you mean \
         \"imagePullPolicy\"?\n",
        1,
    ));
    rows.push(Row { input: stream, ..row("explain -f -", &["pod/p", "rollout/r"], "", 0) });
    rows.push(Row {
        input: "# nothing\n".to_owned(),
        ..row("explain -f -", &[], "error: standard input: there is no pod in it\n", 1)
    });
    // The uid is made of the path, which is another one each time.
    for row in rows.iter_mut().filter(|row| row.typed.ends_with("-q")) {
        row.stdout = "UID\n".to_owned();
    }
    rows
}

/// Types everything, as this user.
fn check(imagelet: &Imagelet, root: &Path) {
    write_manifests(root);
    let shown = root.display().to_string();
    let imagelet = imagelet.clone().global("--node-name", "here");
    for row in rows() {
        let words: Vec<String> = row.typed.split(' ').map(|word| word.replace("D/", &format!("{shown}/"))).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let done =
            if row.input.is_empty() { imagelet.run(&words) } else { imagelet.run_with_input(&words, &row.input) };
        let plain = |text: &str| {
            let lines = text
                .replace(&shown, "D")
                .lines()
                .filter(|line| !line.contains("no store exists in"))
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>();
            lines.into_iter().map(|line| line + "\n").collect::<String>()
        };
        let stdout = if row.typed.ends_with("-q") { "UID\n".to_owned() } else { plain(&done.stdout) };
        assert_eq!(
            (stdout, plain(&done.stderr), done.code),
            (row.stdout, row.stderr.to_owned(), Some(row.code)),
            "{}",
            row.typed
        );
    }
}

#[test]
fn manifests_are_read_as_kubectl_reads_them() {
    let directory = tempfile::tempdir().expect("a directory");
    check(&Imagelet::on(&directory.path().join("store")), directory.path());
    assert!(!directory.path().join("store").exists(), "nothing of that needs a store");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn manifests_are_read_as_kubectl_reads_them_by_an_ordinary_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("opened");
    check(&Home::new().imagelet(), directory.path());
}

#[test]
fn manifests_come_from_addresses() {
    let directory = tempfile::tempdir().expect("a directory");
    let imagelet = Imagelet::on(&directory.path().join("store"));
    let (there, gone) = (serve("200 OK", pod("web")), serve("404 Not Found", String::new()));
    assert_eq!(imagelet.ok(&["explain", "-q", "-f", &there]), "refuse\n");
    assert_eq!(imagelet.ok(&["run", "--dry-run", "-o", "name", "--node-name", "here", "-f", &there]), "pod/web-here\n");
    assert_eq!(imagelet.fails(1, &["explain", "-f", &gone]), format!("error: get {gone}: status 404"));
    assert_eq!(imagelet.fails(1, &["run", "--dry-run", "-f", &gone]), format!("error: {gone}: status 404"));
    // A password in the URL is not in the message.
    let with_password = gone.replace("http://", "http://user:s3cret@") + "?token=s3cret";
    assert_eq!(imagelet.fails(1, &["explain", "-f", &with_password]), format!("error: get {gone}: status 404"));
}

#[test]
fn misspelt_settings_are_named_with_those_that_were_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.yaml");
    let imagelet = || Imagelet::on(&directory.path().join("store"));
    for (text, want) in [
        ("rooot: /x", "unknown field \"rooot\"; did you mean root?"),
        ("logFormat: json", "unknown field \"logFormat\"; did you mean logging.format?"),
        ("zzz: 1", "unknown field \"zzz\"; `imagelet config` shows all fields"),
    ] {
        fs::write(&file, format!("apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n{text}\n"))
            .expect("written");
        let shown = file.display().to_string();
        let line = imagelet().fails(64, &["--config", &shown, "explain", "x"]);
        assert_eq!(line, format!("error: configuration {shown}:3: {want}"));
    }
    let line = imagelet().env("IMAGELET_ROTO", "/x").fails(64, &["explain", "x"]);
    assert_eq!(line, "error: there is no variable IMAGELET_ROTO; did you mean IMAGELET_ROOT?");
    // Kubernetes sets it in every pod whose namespace has a Service of this name.
    let done =
        imagelet().env("IMAGELET_SERVICE_HOST", "10.0.0.1").env("IMAGELET_PROGRESS", "none").run(&["explain", "x"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.starts_with(" WARN unknown variable variable=IMAGELET_SERVICE_HOST\n"), "{}", done.stderr);
}

#[test]
fn a_json_log_has_fields() {
    let directory = tempfile::tempdir().expect("a directory");
    write_manifests(directory.path());
    let imagelet = Imagelet::on(&directory.path().join("store")).global("--log-format", "json");
    let manifest = |name: &str| directory.path().join(name).display().to_string();
    let log = |args: &[&str]| -> Vec<serde_json::Value> {
        let done = imagelet.run(args);
        done.stderr.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    };
    let lines = log(&["explain", "-f", &manifest("note.yaml")]);
    assert_eq!((&lines[0]["path"], &lines[0]["line"]), (&manifest("note.yaml").into(), &5.into()), "{lines:?}");
    // Why a command failed, once.
    let lines = log(&["ensure", "-f", &manifest("note.yaml")]);
    assert_eq!(lines.iter().filter(|line| line.to_string().contains("ErrImageNeverPull")).count(), 1, "{lines:?}");
    let last = lines.last().expect("a line");
    assert_eq!((&last["level"], &last["message"]), (&"ERROR".into(), &"command failed".into()));
    assert!(last["error"].as_str().is_some_and(|error| error.starts_with("pod/n: c: ErrImageNeverPull")), "{last}");
}
