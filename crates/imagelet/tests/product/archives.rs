//! Images in and out of files, as a person types it: what is written to standard output and standard error, and the exit code.
//! Archives are made by tar, skopeo and the compressors of the machine; skopeo judges what is written.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::images::{self, Image, Layer};
use crate::support::process::{need_root, run, tool};
use crate::support::scene::Scene;
use crate::support::{Imagelet, Layout, Packing, Scratch};

/// Typed line, standard output, standard error, exit code.
type Row<'a> = (&'a str, &'a str, &'a str, i32);

/// A scratch with layouts in it.
struct Fixture {
    scratch: Scratch,
}

impl Fixture {
    fn new() -> Self {
        need_root();
        Self { scratch: Scratch::new() }
    }

    fn path(&self) -> &Path {
        self.scratch.path()
    }

    fn imagelet(&self, store: &str) -> Imagelet {
        Imagelet::on(&self.scratch.join(store)).global("--progress", "none")
    }

    fn layout(&self, name: &str) -> Layout {
        Layout::at(&self.scratch.join(name))
    }

    fn layer(&self, layout: &Layout, content: &str) -> Layer {
        let tree = tempfile::tempdir_in(self.path()).expect("a directory");
        images::write(&tree.path().join("file"), content);
        images::settle(tree.path());
        layout.layer(tree.path(), Packing::Gzip)
    }

    fn image(&self, layout: &Layout, content: &str) -> Image {
        layout.image(&[self.layer(layout, content)])
    }

    /// A line in the shell; it must end well.
    #[track_caller]
    fn sh(&self, line: &str) -> String {
        run(tool("sh").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(["-ec", line]).current_dir(self.path()))
    }

    /// Types every row, in a store that is empty at its begin, and holds the outcome against the row. `{…}` in a row stands for a value.
    #[track_caller]
    fn types(&self, imagelet: &Imagelet, rows: &[Row<'_>], values: &[(&str, &str)]) {
        let filled = |text: &str| values.iter().fold(text.to_owned(), |text, (key, value)| text.replace(key, value));
        for (line, stdout, stderr, code) in rows {
            let done = imagelet.typed(self.path(), &filled(line));
            let got = (done.stdout.as_str(), done.stderr.as_str(), done.code);
            assert_eq!(got, (filled(stdout).as_str(), filled(stderr).as_str(), Some(*code)), "{line}");
            imagelet.run(&["rmi", "--all"]);
        }
    }
}

/// An id as tables show it.
fn short(image: &Image) -> String {
    image.id.trim_start_matches("sha256:")[..12].to_owned()
}

const NAME: &str = "registry.example/site/app:1";
const IMPORTED: &str = "IMPORTED                      IMAGE ID\nregistry.example/site/app:1   {id}\n";

/// A layout with one image, the same as a tar file, and that compressed.
fn one_image(g: &Fixture) -> Image {
    let layout = g.layout("layout");
    let image = g.image(&layout, "one\n");
    layout.name(&image, NAME);
    g.sh(
        "tar -C layout -cf a.tar . && gzip -k a.tar && zstd -q a.tar && xz -k a.tar && cat a.tar.xz a.tar.xz > two.xz",
    );
    image
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn archives_come_compressed_and_from_standard_input() {
    let g = Fixture::new();
    let image = one_image(&g);
    g.sh("printf 'BZh91AY&SY000000' > a.bz2 && head -c 300 a.tar.xz > cut.xz && head -c 2000 /dev/zero > zeros && mkfifo pipe");
    let rows: &[Row<'_>] = &[
        ("imagelet import layout", IMPORTED, "", 0),
        ("imagelet import a.tar", IMPORTED, "", 0),
        ("imagelet import a.tar.gz", IMPORTED, "", 0),
        ("imagelet import a.tar.zst", IMPORTED, "", 0),
        ("imagelet import a.tar.xz", IMPORTED, "", 0),
        ("imagelet import - < a.tar", IMPORTED, "", 0),
        ("imagelet import - < a.tar.xz", IMPORTED, "", 0),
        ("cat a.tar.zst | imagelet import -", IMPORTED, "", 0),
        ("cat a.tar > pipe & imagelet import pipe", IMPORTED, "", 0),
        ("imagelet import -o wide -q - < a.tar.gz", "{whole}\n", "", 0),
        (
            "imagelet import a.bz2",
            "",
            "error: import a.bz2: it is compressed with bzip2: archives may be with gzip, zstd or xz; decompress it first\n",
            1,
        ),
        ("imagelet import cut.xz", "", "error: import cut.xz: inflate the xz stream: {eof}\n", 1),
        (
            "imagelet import zeros",
            "",
            "error: import zeros: it is neither an OCI layout (oci-layout, index.json) nor a docker archive (manifest.json) \
             nor a directory of skopeo's (version, manifest.json)\n",
            1,
        ),
        (
            "imagelet import none.tar",
            "",
            "error: import none.tar: read none.tar: No such file or directory (os error 2)\n",
            1,
        ),
    ];
    let id = short(&image);
    g.types(
        &g.imagelet("store"),
        rows,
        &[("{id}", &id), ("{whole}", &image.id), ("{eof}", "failed to fill whole buffer")],
    );
    // Nothing of a copy is left.
    g.imagelet("store").ok(&["check"]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_ordinary_user_imports_what_the_shell_opened() {
    let g = Fixture::new();
    let image = one_image(&g);
    g.sh("chmod 600 a.tar a.tar.xz");
    let home = Home::new();
    let imagelet = home.imagelet().global("--progress", "none");
    for line in ["imagelet import - < a.tar", "imagelet import - < a.tar.xz", "cat a.tar | imagelet load"] {
        let done = imagelet.typed(g.path(), line);
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
        assert_eq!(imagelet.ids(), [image.id.as_str()], "{line}");
        imagelet.ok(&["rmi", "--all"]);
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_destination_says_what_it_gets() {
    let g = Fixture::new();
    let image = one_image(&g);
    let imagelet = g.imagelet("store");
    imagelet.ok(&["import", &g.scratch.join("layout").display().to_string()]);
    let written = |to: &str| format!(" INFO written path={to}\n");
    let listed = "blobs\nindex.json\noci-layout\n";
    let rows: &[(&str, &str, String, i32)] = &[
        ("imagelet export {n} -o b.tar && tar -tf b.tar | grep -v blobs", "oci-layout\nindex.json\n", written("b.tar"), 0),
        ("imagelet export {n} -o b.tar && file_type b.tar", "file\n", written("b.tar"), 0),
        ("imagelet export {n} -o new && ls new", listed, written("new"), 0),
        ("imagelet export {n} -o slash.tar/ && ls slash.tar", listed, written("slash.tar/"), 0),
        ("mkdir there.tar && imagelet export {n} -o there.tar && ls there.tar", listed, written("there.tar"), 0),
        ("imagelet export {n} -o - | tar -t | grep -v blobs", "oci-layout\nindex.json\n", String::new(), 0),
        ("imagelet export {n} -o - > c.tar && cmp b.tar c.tar; test -e ./-", "", String::new(), 1),
        ("imagelet cp {n}:/file - | tar -xO", "one\n", " INFO copied path=standard output files=1 bytes=4\n".to_owned(), 0),
        (
            "imagelet export {n} -o - --format oci",
            "",
            "error: export: this format is a directory, and cannot go to standard output: -o DIR\n".to_owned(),
            2,
        ),
        (
            "imagelet export {n} -o d.tar.gz",
            "",
            "error: d.tar.gz: an archive is not compressed as a whole, as .tar.gz says: compress its layers (--compress gzip, -o \
             FILE.tar), or send it through a program (-o - | …)\n"
                .to_owned(),
            2,
        ),
    ];
    for (line, stdout, stderr, code) in rows {
        let line = format!("file_type() {{ test -f \"$1\" && echo file; }}; {}", line.replace("{n}", NAME));
        let done = imagelet.typed(g.path(), &line);
        let got = (done.stdout.as_str(), done.stderr.as_str(), done.code);
        assert_eq!(got, (*stdout, stderr.as_str(), Some(*code)), "{line}");
    }
    for (output, hint) in [("json", "./json is a file"), ("docker-archive", "--format docker-archive")] {
        let done = imagelet.run(&["export", NAME, "-o", output]);
        assert_eq!(done.code, Some(2), "{}", done.stderr);
        assert!(done.stderr.contains(hint), "{}", done.stderr);
        assert!(!Path::new(output).exists());
    }
    // On a terminal, as `script` gives one, no archive is written; nor is one read.
    for command in [format!("export {NAME} -o -"), format!("save {NAME}"), "import -".to_owned(), "load".to_owned()] {
        let store = g.scratch.join("store").display().to_string();
        let program = format!("{} --root {store} {command}; echo code $?", crate::support::cli::PROGRAM);
        let said = run(tool("script").args(["-qec", &program, "/dev/null"]));
        assert!(said.contains("terminal") && said.contains("code 2"), "{command}: {said}");
        assert!(!said.contains('\0'), "{command}");
    }
    assert_eq!(imagelet.ids(), [image.id.as_str()]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn saved_is_loaded_as_by_podman_and_docker() {
    let g = Fixture::new();
    let layout = g.layout("layout");
    let (one, two) = (g.image(&layout, "one\n"), g.image(&layout, "two\n"));
    layout.name(&one, NAME);
    layout.name(&two, "registry.example/site/web:2");
    let from = g.imagelet("from");
    from.ok(&["import", &layout.path().display().to_string()]);
    let both = "Loaded image: registry.example/site/app:1\nLoaded image: registry.example/site/web:2\n";
    let sorted = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n") + "\n"
    };
    for (number, save) in [
        "save -o all.tar {n}",
        "save --output all.tar {n}",
        "save {n} > all.tar",
        "save -m --format docker-archive {n} | cat > all.tar",
        "save --format oci-archive -o all.tar {n}",
        "save --format oci-dir -o all {n} && tar -C all -cf all.tar .",
    ]
    .iter()
    .enumerate()
    {
        let line =
            format!("imagelet {}", save.replace("{n}", "registry.example/site/app:1 registry.example/site/web:2"));
        let done = from.typed(g.path(), &line);
        assert_eq!((done.stdout.as_str(), done.code), ("", Some(0)), "{line}: {}", done.stderr);
        for load in ["load -i all.tar", "load --input all.tar", "load < all.tar", "load -q -i all.tar"] {
            let to = g.imagelet(&format!("to-{number}"));
            let done = to.typed(g.path(), &format!("imagelet {load}"));
            assert_eq!((sorted(&done.stdout).as_str(), done.code), (both, Some(0)), "{line}, {load}: {}", done.stderr);
            let mut ids = [one.id.clone(), two.id.clone()];
            ids.sort();
            assert_eq!(to.ids(), ids, "{line}: image ids do not change");
        }
    }
    // One image in the form of skopeo's `dir:`, there and back.
    from.ok(&["save", "--format", "docker-dir", "-o", &g.scratch.join("dir").display().to_string(), NAME]);
    let config = g.sh("skopeo inspect --config --raw dir:dir");
    assert_eq!(oci::Digest::sha256(config.as_bytes()).to_string(), one.id);
    g.sh(
        "skopeo copy -q dir:dir oci:again:x && skopeo copy -q --all oci:layout:registry.example/site/app:1 dir:copied",
    );
    for directory in ["dir", "copied"] {
        let to = g.imagelet(&format!("of-{directory}"));
        let done = to.typed(g.path(), &format!("imagelet load -i {directory}"));
        let want = format!("Loaded image: {}\n", one.id);
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str(), done.code),
            (want.as_str(), "", Some(0)),
            "{directory}"
        );
        to.ok(&["import", "--name", NAME, &g.scratch.join(directory).display().to_string()]);
        assert_eq!(to.ok(&["ls", NAME]), "file\n", "{directory}");
    }
    let said = from.fails(1, &["save", "--format", "docker-dir", "-o", "x", NAME, "registry.example/site/web:2"]);
    assert!(said.ends_with("a docker directory holds one image, and these are 2"), "{said}");
    let said = from.fails(2, &["save", "--format", "docker-dir", NAME]);
    assert!(said.contains("-o DIR"), "{said}");
}

/// umoci 0.4 leaves out what pads the last file of a layer; containerd reads it, and so does a pull here.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layer_without_its_last_padding_is_imported_and_exported() {
    let g = Fixture::new();
    g.sh("umoci init --layout u && umoci new --image u:x && mkdir t && echo one > t/file && umoci insert --image u:x t /data");
    for format in ["dir", "erofs"] {
        let imagelet = g.imagelet(format).global("--layer-format", format);
        let layout = g.scratch.join("u").display().to_string();
        imagelet.ok(&["import", &layout, "--platform", "all", "--name", NAME]);
        assert_eq!(imagelet.ok(&["cat", NAME, "/data/file"]), "one\n", "{format}");
        imagelet.ok(&["check"]);
        let out = g.scratch.join(&format!("{format}.tar")).display().to_string();
        imagelet.ok(&["export", NAME, "-o", &out]);
        let back = g.imagelet(&format!("back-{format}"));
        back.ok(&["import", &out, "--platform", "all"]);
        assert_eq!(back.ids(), imagelet.ids(), "{format}: bit for bit");
    }
}

/// A layout with two images, a chart and a blob.
fn mixed(g: &Fixture) -> (Image, Image) {
    let layout = g.layout("mixed");
    let (one, two) = (g.image(&layout, "one\n"), g.image(&layout, "two\n"));
    layout.name(&one, NAME);
    layout.name(&two, "v2");
    let config = layout.add(b"{}", "application/vnd.cncf.helm.config.v1+json");
    let content = layout.add(b"chart", "application/vnd.cncf.helm.chart.content.v1.tar+gzip");
    let descriptor = |blob: &images::Blob| json!({"mediaType": blob.media_type, "digest": blob.digest.to_string(), "size": blob.size});
    let chart = json!({"schemaVersion": 2, "mediaType": oci::media_type::OCI_MANIFEST, "config": descriptor(&config), "layers": [descriptor(&content)]});
    let chart = layout.add(chart.to_string().as_bytes(), oci::media_type::OCI_MANIFEST);
    let chart = Image { manifest: chart, id: String::new(), blobs: Vec::new() };
    layout.name(&chart, "registry.example/site/chart:3");
    let note = layout.add(b"note", "text/plain");
    layout.name(&Image { manifest: note, id: String::new(), blobs: Vec::new() }, "note");
    (one, two)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_is_no_image_is_passed_by_and_one_of_several_is_chosen() {
    let g = Fixture::new();
    let (one, two) = mixed(&g);
    let passed_by = " WARN mixed: note is no container image and was passed by: of media type \"text/plain\"\n\
         \u{20}WARN mixed: registry.example/site/chart:3 is no container image and was passed by: its config has media type \
         \"application/vnd.cncf.helm.config.v1+json\"\n";
    let rows: &[Row<'_>] = &[
        (
            "imagelet import mixed",
            "IMPORTED                      IMAGE ID\n<none>                        {two}\nregistry.example/site/app:1   {one}\n",
            passed_by,
            0,
        ),
        ("imagelet import mixed --image {n}", "IMPORTED                      IMAGE ID\n{n}   {one}\n", "", 0),
        ("imagelet import mixed --image v2 --name {n}", "IMPORTED                      IMAGE ID\n{n}   {two}\n", "", 0),
        ("imagelet import mixed --image {digest}", "IMPORTED   IMAGE ID\n<none>     {two}\n", "", 0),
        (
            "imagelet import mixed --image other",
            "",
            "error: import mixed: it has no image \"other\", but note, registry.example/site/app:1, \
             registry.example/site/chart:3, v2\n",
            1,
        ),
        (
            "imagelet import mixed --image registry.example/site/chart:3",
            "",
            "error: import mixed: registry.example/site/chart:3 is not a container image: its config has media type \
             \"application/vnd.cncf.helm.config.v1+json\"\n",
            1,
        ),
        (
            "imagelet import mixed --name {n}",
            "",
            "error: import mixed: it has 2 images, and one name was given: {digest}, {n} (--image chooses one)\n",
            1,
        ),
    ];
    let digest = two.manifest.digest.to_string();
    g.types(
        &g.imagelet("store"),
        rows,
        &[("{n}", NAME), ("{one}", &short(&one)), ("{two}", &short(&two)), ("{digest}", &digest)],
    );
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn other_platforms_come_and_go() {
    let g = Fixture::new();
    let layout = g.layout("many");
    let arm = json!({"architecture": "arm64", "os": "linux"});
    let own = images::platform();
    let [here, other] =
        [&own, &arm].map(|platform| layout.image_for(&[g.layer(&layout, &platform.to_string())], &json!({}), platform));
    let index = layout.index(&[(&other, arm), (&here, own)]);
    layout.name(&index, NAME);
    let only = g.layout("only");
    let risc = json!({"architecture": "riscv64", "os": "linux"});
    let alone = only.image_for(&[g.layer(&only, "risc")], &json!({}), &risc);
    only.name(&alone, NAME);
    let own = oci::Platform::host().normalized().to_string();
    let (repository, digest) = ("registry.example/site/app", other.manifest.digest.to_string());
    let values = [
        ("{here}", short(&here)),
        ("{other}", short(&other)),
        ("{alone}", short(&alone)),
        ("{own}", own),
        ("{at}", format!("{repository}@{digest}")),
        ("{n}", NAME.to_owned()),
    ];
    let values: Vec<(&str, &str)> = values.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let title = "IMPORTED                      IMAGE ID\n";
    let both = "IMPORTED   IMAGE ID   PLATFORM\n{at}   {other}   linux/arm64\n{n}   {here}   {own}\n".to_owned();
    let squeezed = "| sed 's/   */   /g'";
    let (first, arm) = (format!("{title}{{n}}   {{here}}\n"), format!("{title}{{n}}   {{other}}\n"));
    let line = |what: &str| format!("imagelet import many {what} -o wide {squeezed}");
    let (all, twice) = (line("--platform all"), line("--platform linux/arm64 --platform {own}"));
    let rows: &[Row<'_>] = &[
        ("imagelet import many", &first, "", 0),
        ("imagelet import many --platform linux/arm64", &arm, "", 0),
        ("imagelet --platform linux/arm64 import many", &arm, "", 0),
        (&all, &both, "", 0),
        (&twice, &both, "", 0),
        (
            "imagelet import many --platform linux/s390x",
            "",
            "error: import many: no matching platform: {n} has nothing for linux/s390x; it is for {platforms} (--platform names \
             another one, --platform all takes every one)\n",
            1,
        ),
        (
            "imagelet import only",
            "",
            "error: import only: no matching platform: {n} has nothing for {own}; it is for linux/riscv64 (--platform names \
             another one, --platform all takes every one)\n",
            1,
        ),
        (
            "imagelet import only --platform linux/riscv64",
            "IMPORTED                      IMAGE ID\n{n}   {alone}\n",
            "",
            0,
        ),
        ("imagelet import only --platform all", "IMPORTED                      IMAGE ID\n{n}   {alone}\n", "", 0),
    ];
    let platforms =
        if oci::Platform::host().architecture == "arm64" { "linux/arm64" } else { "linux/amd64, linux/arm64" };
    let values: Vec<(&str, &str)> = values.into_iter().chain([("{platforms}", platforms)]).collect();
    g.types(&g.imagelet("store"), rows, &values);

    // Exporting all of them again yields the index that was imported.
    let imagelet = g.imagelet("store");
    let many = layout.path().display().to_string();
    imagelet.ok(&["--keep-blobs", "import", "--platform", "all", &many]);
    imagelet.ok(&["export", NAME, "--platform", "all", "-o", &g.scratch.join("out").display().to_string()]);
    let written: Value =
        serde_json::from_slice(&fs::read(g.scratch.join("out/index.json")).expect("an index")).expect("JSON");
    assert_eq!(written["manifests"][0]["digest"], index.manifest.digest.to_string(), "{written}");
    g.sh("skopeo copy -q --all --preserve-digests oci:out:1 dir:everything");
    for (platform, image) in [("linux/arm64", &other), ("{own}", &here)] {
        let platform = platform.replace("{own}", &oci::Platform::host().normalized().to_string());
        imagelet.ok(&["export", NAME, "--platform", &platform, "-o", &g.scratch.join("one.tar").display().to_string()]);
        let config = g.sh("skopeo inspect --config --raw oci-archive:one.tar:1");
        assert_eq!(oci::Digest::sha256(config.as_bytes()).to_string(), image.id, "{platform}");
    }
    let said = imagelet.fails(1, &["export", NAME, "--platform", "linux/s390x", "-o", "x.tar"]);
    assert!(said.contains("nothing for linux/s390x; it is for linux/amd64, linux/arm64 (--platform"), "{said}");
    // The directory of skopeo's with an index, on a new node.
    let to = g.imagelet("to");
    to.ok(&["import", "--platform", "all", "--name", NAME, &g.scratch.join("everything").display().to_string()]);
    let mut ids = [here.id.clone(), other.id.clone()];
    ids.sort();
    assert_eq!(to.ids(), ids);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn archives_use_the_commands_own_standard_streams_while_an_agent_runs() {
    let g = Fixture::new();
    let image = one_image(&g);
    let imagelet = g.imagelet("store").global("--log-level", "warn");
    let _agent = imagelet.serve(&g.scratch.join("serve.sock"));
    let rows: &[Row<'_>] = &[
        (
            "imagelet import - < a.tar.xz && imagelet export {n} -o - | tar -t | grep -v blobs",
            "{imported}oci-layout\nindex.json\n",
            "",
            0,
        ),
        (
            "cat a.tar.zst | imagelet load && imagelet save {n} | tar -xO manifest.json | grep -c {n}",
            "Loaded image: {n}\n1\n",
            "",
            0,
        ),
    ];
    let imported = IMPORTED.replace("{id}", &short(&image));
    g.types(&imagelet, rows, &[("{n}", NAME), ("{imported}", &imported)]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_without_an_image_for_this_machine_names_the_flag() {
    let s = Scene::new();
    let risc = json!({"architecture": "riscv64", "os": "linux"});
    let image = s.layout.image_for(&[s.file_layer("file", "risc", Packing::Gzip)], &json!({}), &risc);
    let name = s.registry.push(&s.layout, &s.layout.index(&[(&image, risc)]), "site/app:1");
    for credentials in [&[][..], &["--creds", "user:any"]] {
        let said = s.imagelet.fails(1, &[&["pull", &name], credentials].concat());
        assert!(said.ends_with("it is for linux/riscv64 (--platform names another one)"), "{said}");
    }
    for platform in [["--platform", "linux/riscv64"], ["--arch", "riscv64"]] {
        s.imagelet.ok(&[&["pull"], &platform[..], &[&name]].concat());
        assert_eq!(s.imagelet.ids(), [image.id.as_str()]);
        s.imagelet.ok(&["rmi", "--all"]);
    }
    let said = s.imagelet.run(&["pull", "--arch", "arm64", "--platform", "linux/arm64", &name]);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
}
