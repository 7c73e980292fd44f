//! Lists as people type them, as root and as an ordinary user: filters, order, columns, and expressions with kubectl's rules; and
//! help with typing: help texts, suggestions, completion and manual pages. Forms of output are frozen here.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cri_api::{ImageFilter, ImageService as _, ImageSpec};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use serde_json::json;

use crate::support::cli::PROGRAM;
use crate::support::containerd::Containerd;
use crate::support::home::Home;
use crate::support::images::{self, platform};
use crate::support::process::{run, tool};
use crate::support::scene::Scene;
use crate::support::{Imagelet, Layout, Packing};

/// Name, time of creation, labels, and bytes of the only file.
type TestImage = (&'static str, &'static str, &'static [(&'static str, &'static str)], usize);

const IMAGES: [TestImage; 4] = [
    ("docker.io/library/app:1", "2025-01-01T00:00:00Z", &[("tier", "web"), ("team", "a")], 3_000_000),
    ("docker.io/library/app:2", "2026-01-01T00:00:00Z", &[("tier", "db")], 1_000_000),
    ("quay.io/team/tool:v1", "2024-06-01T12:00:00Z", &[], 2_000_000),
    // Loses its name to the one below, whose name is the same.
    ("docker.io/library/old:1", "2023-01-01T00:00:00Z", &[], 500_000),
];
const OVER: TestImage = ("docker.io/library/old:1", "2023-02-01T00:00:00Z", &[], 400_000);

/// A store with these images; the answer is their ids: of the four, and of the one that took a name.
fn import(imagelet: &Imagelet, layouts: &Path) -> Vec<String> {
    let mut ids = Vec::new();
    for (n, (name, created, labels, bytes)) in IMAGES.iter().chain([&OVER]).enumerate() {
        let directory = layouts.join(format!("layout-{n}"));
        let layout = Layout::at(&directory);
        let tree = tempfile::tempdir().expect("a directory");
        images::write(&tree.path().join("file"), crate::support::random::noise_of(&n.to_string(), *bytes));
        images::settle(tree.path());
        let layer = layout.layer(tree.path(), Packing::Plain);
        let labels: serde_json::Map<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        let mut config = json!({
            "created": created,
            "config": { "Cmd": ["/bin/sh"], "Labels": labels },
            "rootfs": { "type": "layers", "diff_ids": [layer.diff_id.to_string()] },
        });
        for (key, value) in platform().as_object().expect("an object") {
            config[key] = value.clone();
        }
        let image = layout.image_of(&[layer], config.to_string().as_bytes());
        layout.name(&image, name);
        imagelet.ok(&["import", &directory.display().to_string(), "--name", name]);
        ids.push(image.id);
    }
    ids
}

/// Output with what differs from machine to machine replaced: ids by the numbers of their images, sizes by `SIZE`. Cells of
/// tables stand between bars.
fn frozen(text: &str, ids: &[String]) -> String {
    let mut text = text.to_owned();
    for (n, id) in ids.iter().enumerate() {
        let hex = id.trim_start_matches("sha256:");
        text = text.replace(id.as_str(), &format!("ID{n}")).replace(hex, &format!("ID{n}"));
        text = text.replace(&hex[..12], &format!("ID{n}"));
    }
    let is_size = |cell: &str| {
        let number = cell.trim_end_matches(['k', 'M', 'B']);
        cell.ends_with('B') && number.parse::<f64>().is_ok()
    };
    let cell = |cell: &str| match cell {
        size if is_size(size) => "SIZE".to_owned(),
        digest if digest.starts_with("sha256:") => "DIGEST".to_owned(),
        other => other.to_owned(),
    };
    let line = |line: &str| {
        let cells: Vec<String> = line.split("   ").map(str::trim).filter(|c| !c.is_empty()).map(cell).collect();
        if cells.len() > 1 { cells.join("|") } else { line.to_owned() }
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// (what is typed, standard output, standard error, exit code)
type Row = (&'static [&'static str], &'static str, &'static str, i32);

const ROWS: &[Row] = &[
    (
        &["images"],
        "IMAGE|TAG|IMAGE ID|ON DISK\n\
         docker.io/library/app|1|ID0|SIZE\n\
         docker.io/library/app|2|ID1|SIZE\n\
         docker.io/library/old|1|ID4|SIZE\n\
         docker.io/library/old|<none>|ID3|SIZE\n\
         quay.io/team/tool|v1|ID2|SIZE\n",
        "",
        0,
    ),
    (
        &["images", "app", "-o", "wide"],
        "IMAGE|TAG|IMAGE ID|ON DISK|DIGEST|USER|CREATED|PINNED\n\
         docker.io/library/app|1|ID0|SIZE|DIGEST|-|2025-01-01T00:00:00Z|false\n\
         docker.io/library/app|2|ID1|SIZE|DIGEST|-|2026-01-01T00:00:00Z|false\n",
        "",
        0,
    ),
    (
        &["images", "app:1", "--digests"],
        "IMAGE|TAG|DIGEST|IMAGE ID|ON DISK\ndocker.io/library/app|1|DIGEST|ID0|SIZE\n",
        "",
        0,
    ),
    (&["images", "-q", "--sort", "created"], "ID1\nID0\nID2\nID4\nID3\n", "", 0),
    (&["images", "-q", "--sort", "size"], "ID4\nID3\nID1\nID2\nID0\n", "", 0),
    (
        &["images", "--sort", "tag", "-f", "dangling=false", "-o", "name"],
        "docker.io/library/app:1\ndocker.io/library/old:1\ndocker.io/library/app:2\nquay.io/team/tool:v1\n",
        "",
        0,
    ),
    (&["images", "-q", "-f", "dangling=true"], "ID3\n", "", 0),
    (&["images", "-q", "-f", "reference=app"], "ID0\nID1\n", "", 0),
    (&["images", "-q", "-f", "reference=*:1"], "ID0\nID4\n", "", 0),
    (&["images", "-q", "-f", "reference=app:1", "-f", "reference=team/*"], "ID0\nID2\n", "", 0),
    (&["images", "-q", "-f", "label=tier"], "ID0\nID1\n", "", 0),
    (&["images", "-q", "-f", "label=tier=web", "-f", "label=team=a"], "ID0\n", "", 0),
    (&["images", "-q", "-f", "before=app:1"], "ID4\nID3\nID2\n", "", 0),
    (&["images", "-q", "-f", "since=tool:v1"], "", "error: no such image: tool:v1\n", 1),
    (&["images", "-q", "-f", "since=quay.io/team/tool:v1", "-f", "before=app:2"], "ID0\n", "", 0),
    (&["images", "-q", "-f", "until=2024-01-01"], "ID4\nID3\n", "", 0),
    (&["images", "-q", "-f", "pinned=true"], "", "", 0),
    (
        &["images", "-f", "name=x"],
        "",
        "error: --filter \"name=x\": there is no such key, but reference, label, dangling, pinned, before, since and \
         until\n",
        2,
    ),
    (&["images", "-f", "reference=app", "-o", "jsonpath={.items[*].repoTags[0]}"], APPS, "", 0),
    (&["images", "-f", "reference=app", "-o", "jsonpath={.images[*].repoTags[0]}"], APPS, "", 0),
    (
        &["images", "-f", "reference=app", "-o", "jsonpath={range .items[*]}{.id} {.pinned}{\"\\n\"}{end}"],
        "ID0 false\nID1 false\n",
        "",
        0,
    ),
    (&["images", "-o", "jsonpath={.items[?(@.repoTags[0]==\"quay.io/team/tool:v1\")].id}"], "ID2\n", "", 0),
    (
        &["images", "app", "-o", "custom-columns=ID:.id,NAME:.repoTags[0],UID:.uid"],
        "ID|NAME|UID\nID0|docker.io/library/app:1|<none>\nID1|docker.io/library/app:2|<none>\n",
        "",
        0,
    ),
    (&["inspect", "app:1", "app:2", "-o", "jsonpath={.items[*].config.config.Labels.tier}"], "web db\n", "", 0),
    (&["inspect", "app:1", "-o", "jsonpath={[0].config.config.Cmd[0]}"], "/bin/sh\n", "", 0),
    (&["ls", "app:1", "/", "-o", "jsonpath={.items[*].path}"], "/file\n", "", 0),
    (&["version", "-o", "jsonpath={.runtimeApiVersion}"], "v1\n", "", 0),
    (&["config", "-o", "jsonpath={.logging.format}"], "text\n", "", 0),
    (
        &["images", "-o", "go-template={{range .items}}{{.id}}{{end}}"],
        "",
        "error: -o: Go templates are not supported: use jsonpath='{range .items[*]}{.id}{\"\\n\"}{end}' or \
         custom-columns=ID:.id\n",
        2,
    ),
    (
        &["images", "-o", "xml"],
        "",
        "error: invalid value 'xml' for '--output <FORMAT>'\n  [possible values: table, wide, json, yaml, name, \
         jsonpath=TEMPLATE, custom-columns=NAME:PATH,...]\n\nFor more information, try '--help'.\n",
        2,
    ),
    (&["rmi", "absent:1"], "", "error: no such image: absent:1\n", 1),
    (
        &["rm", "x"],
        "",
        "error: unrecognized subcommand 'rm'\n\n  tip: `imagelet rmi IMAGE` removes an image; a pod ends when its \
         manifest is removed\n\nUsage: imagelet [OPTIONS] <COMMAND>\n\nFor more information, try '--help'.\n",
        2,
    ),
    (
        &["images", "--filtre", "x"],
        "",
        "error: unexpected argument '--filtre' found\n\n  tip: a similar flag exists: --filter\n\nUsage: imagelet images [OPTIONS] \
         [IMAGE]...\n\nFor more information, try '--help'.\n",
        2,
    ),
    (
        &["images", "--frobnicate"],
        "",
        "error: unexpected argument '--frobnicate' found\n\nUsage: imagelet images [OPTIONS] [IMAGE]...\n\nFor more \
         information, try '--help'.\n",
        2,
    ),
];

const APPS: &str = "docker.io/library/app:1 docker.io/library/app:2\n";

fn rows_hold(imagelet: &Imagelet) {
    let layouts = tempfile::tempdir().expect("a directory");
    fs::set_permissions(layouts.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let ids = import(imagelet, layouts.path());
    let mut wrong = String::new();
    for (words, stdout, stderr, code) in ROWS {
        let done = imagelet.run(words);
        let got = (frozen(&done.stdout, &ids), done.stderr.clone(), done.code);
        let want = ((*stdout).to_owned(), (*stderr).to_owned(), Some(*code));
        if got != want {
            wrong.push_str(&format!("{words:?}\n  got {got:?}\n want {want:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    // Nothing is added behind a template, as in kubectl.
    assert!(!imagelet.ok(&["version", "-o", "jsonpath={.version}"]).contains('\n'));
}

#[test]
fn lists_as_they_are_typed() {
    let root = tempfile::tempdir().expect("a directory");
    rows_hold(&Imagelet::on(&root.path().join("store")));
}

#[test]
#[ignore = "needs root, to be somebody else: scripts/test.sh"]
fn lists_as_an_ordinary_user_types_them() {
    rows_hold(&Home::new().imagelet());
}

/// crictl asks by a filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_is_a_repository_means_its_tags() {
    let root = tempfile::tempdir().expect("a directory");
    let imagelet = Imagelet::on(&root.path().join("store"));
    import(&imagelet, root.path());
    let socket = root.path().join("cri.sock");
    let _agent = imagelet.serve(&socket);
    let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
    let service = connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect");
    let cases = [
        ("app", 2),
        ("docker.io/library/app", 2),
        ("app:1", 1),
        ("quay.io/team/tool", 1),
        ("quay.io/team", 0),
        ("", 5),
    ];
    for (name, want) in cases {
        let filter = ImageFilter { image: Some(ImageSpec::new(name)) };
        let listed = service.list_images(Some(&filter)).await.expect(name);
        assert_eq!(listed.len(), want, "{name:?}: {listed:?}");
    }
    // While an agent runs, names still mean one image each.
    let error = imagelet.fails(1, &["rmi", "app"]);
    assert!(error.starts_with("error: remove app: name one of docker.io/library/app:1, docker.io/"), "{error}");
    imagelet.ok(&["rmi", "app:1"]);
    assert_eq!(imagelet.images().len(), 4);
    // The only tag that is left is meant.
    let removed = imagelet.ok(&["rmi", "app"]);
    assert!(removed.starts_with("untagged: docker.io/library/app:"), "{removed}");
    assert_eq!(imagelet.images().len(), 3);
}

/// containerd passes the filter of ListImages by, and lists everything.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_absent_image_of_containerd_is_absent() {
    let s = Scene::new();
    let (name, image) = s.push_file("lists/one:1", "a", "one");
    let containerd = Containerd::start(s.registry.host());
    let imagelet = Imagelet::remote(&containerd.endpoint());
    imagelet.ok(&["pull", &name]);
    for absent in ["absent:1", "absent", "0123456789ab", &s.registry.name("lists/one:2")] {
        let want = format!("error: no such image: {absent}");
        assert_eq!(imagelet.fails(1, &["rmi", absent]), want);
        assert_eq!(imagelet.fails(1, &["inspect", absent]), want);
    }
    assert_eq!(imagelet.ids(), [image.id.as_str()], "it is there still");
    imagelet.ok(&["rmi", &image.id["sha256:".len()..][..12]]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
}

#[test]
fn completion_knows_what_is_there() {
    let root = tempfile::tempdir().expect("a directory");
    let imagelet = Imagelet::on(&root.path().join("store"));
    let ids = import(&imagelet, root.path());
    let shell = Imagelet::bare().env("_IMAGELET_COMPLETE", "fish");
    let root = root.path().join("store").display().to_string();
    let offered = |words: &[&str]| -> Vec<String> {
        let line = [&["--", "imagelet", "--root", &root], words].concat();
        let text = shell.ok(&line);
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(offered(&["rmi", "app"]), ["app:1", "app:2"]);
    assert_eq!(offered(&["inspect", "quay"]), ["quay.io/team/tool:v1"]);
    let hex = ids[2].trim_start_matches("sha256:");
    assert_eq!(offered(&["inspect", &hex[..8]]), [hex]);
    assert_eq!(offered(&["images", "--filt"]), ["--filter"]);
    assert_eq!(offered(&["rmi", "nothing-like-it"]), Vec::<String>::new());
    // Bash cuts the words at colons, and takes what is behind the last one.
    let script = imagelet.ok(&["completion", "bash"]);
    let bin = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(PROGRAM, bin.path().join("imagelet")).expect("link");
    let typed = |words: &str, at: usize, current: &str| {
        let typing = format!(
            "{script}\nCOMP_WORDS=(imagelet --root {root} {words}); COMP_CWORD={at}; COMP_TYPE=9\n\
             _imagelet imagelet '{current}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        run(tool("bash").env("PATH", bin.path()).args(["--norc", "-c", &typing]))
    };
    assert_eq!(typed("rmi app", 4, "app"), "app:1\napp:2\n");
    assert_eq!(typed("rmi app : ''", 6, ""), "1\n2\n");
    assert_eq!(typed("rmi app :", 5, ""), "1\n2\n");
    assert_eq!(typed("rmi quay.io/team/tool : v", 6, "v"), "v1\n");
    assert_eq!(typed("images --filt", 4, "--filt"), "--filter\n");
    // If nothing exists, nothing is created and completion prints no error.
    let typo = format!("{root}/typo");
    let done = shell.run(&["--", "imagelet", "--root", &typo, "rmi", "a"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert!(!Path::new(&typo).exists());
    for name in ["bash", "zsh", "fish"] {
        let script = Imagelet::bare().ok(&["completion", name]);
        assert!(script.contains("_IMAGELET_COMPLETE") && script.len() < 20_000, "{name}: {} bytes", script.len());
    }
}

#[test]
fn help_and_manual_pages_are_readable() {
    let imagelet = Imagelet::bare();
    let help = imagelet.ok(&["help", "images"]);
    assert!(help.lines().count() < 100, "{} lines:\n{help}", help.lines().count());
    assert!(help.contains("imagelet images -f label=tier=web"), "{help}");
    let settings = imagelet.ok(&["help", "settings"]);
    assert!(settings.contains("--max-parallel-image-pulls") && settings.contains("IMAGELET_ROOT"), "{settings}");
    assert_eq!(imagelet.ok(&["settings"]), settings);

    let pages = tempfile::tempdir().expect("a directory");
    let written = imagelet.ok(&["man", &pages.path().display().to_string()]);
    for name in ["imagelet", "imagelet-images", "imagelet-gc-explain", "imagelet-settings"] {
        let path = pages.path().join("man1").join(format!("{name}.1"));
        assert!(written.contains(&path.display().to_string()), "{written}");
        let page = fs::read_to_string(&path).expect(name);
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
    }
    let page = fs::read_to_string(pages.path().join("man1/imagelet-images.1")).expect("a page");
    assert!(page.contains("Examples:") && page.contains("\\-\\-digests"), "{page}");
    for global in ["max\\-parallel", "\\-\\-root", "\\-\\-config", "\\-\\-progress", "\\-\\-no\\-trunc"] {
        assert!(!page.contains(global), "{global}:\n{page}");
    }
    let page = fs::read_to_string(pages.path().join("man5/imagelet-config.yaml.5")).expect("a page");
    for text in [".TH imagelet-config.yaml 5", "\\fBmaxParallelImagePulls\\fR \\fIN\\fR", "kind: ImageletConfiguration"]
    {
        assert!(page.contains(text), "{text}:\n{page}");
    }
}

#[test]
fn packages_get_pages_and_scripts() {
    let to = tempfile::tempdir().expect("a directory");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/share.sh");
    run(tool("sh").arg(script).arg(PROGRAM).arg(to.path()));
    let share = to.path().join("usr/share");
    let files = [
        "man/man1/imagelet.1.gz",
        "man/man1/imagelet-images.1.gz",
        "man/man1/imagelet-settings.1.gz",
        "man/man5/imagelet-config.yaml.5.gz",
        "bash-completion/completions/imagelet",
        "zsh/vendor-completions/_imagelet",
        "fish/vendor_completions.d/imagelet.fish",
    ];
    for file in files {
        assert!(fs::metadata(share.join(file)).expect(file).len() > 100, "{file}");
    }
}
