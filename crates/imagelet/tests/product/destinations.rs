//! Where `export` and `cp` write to, as a person names it at a shell: what is no regular file is written to and stays, a symbolic
//! link is followed, a directory takes a copy and no archive. The shell has a `/dev` of its own.

use std::fs;

use crate::support::cli::PROGRAM;
use crate::support::images;
use crate::support::process::{run, tool};
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

/// Every line ends well, or the test does not.
const SHELL: &str = r#"
set -eo pipefail
mount -t tmpfs tmpfs /dev
ln -s /proc/self/fd /dev/fd
ln -s fd/1 /dev/stdout
mknod -m 666 /dev/null c 1 3
cd "$1"; image=$2; shift 2
refused() { if "$@" 2> said; then echo "not refused: $*"; exit 1; fi; }

"$@" export --format oci-archive -o whole.tar "$image"
for path in /dev/stdout /dev/fd/1 /proc/self/fd/1; do
    "$@" export --format oci-archive -o $path "$image" | cmp - whole.tar
    "$@" cp "$image:/etc/one" $path | cmp - one
done
"$@" export --format oci-archive -o /dev/null "$image"
"$@" cp "$image:/etc/one" /dev/null
"$@" cp "$image:/etc/one" /dev/fd/3 3> three
cmp three one
{ echo before; "$@" cp "$image:/etc/one" /dev/stdout; echo after; } > joined
[ "$(cat joined)" = "$(printf 'before\none\nafter')" ]

mkfifo pipe
for command in export cp; do
    cat pipe > read & reader=$!
    case $command in
        export) "$@" export --format docker-archive -o pipe "$image"; wait $reader; tar -t < read | grep -q manifest.json ;;
        cp) "$@" cp "$image:/etc/one" pipe; wait $reader; cmp read one ;;
    esac
done
[ -p pipe ]

mkdir dir
ln -s dir/old link; echo old > dir/old
ln -s dir/new dangling
for name in link:old dangling:new; do
    "$@" cp "$image:/etc/one" ${name%:*}; [ -L ${name%:*} ]; cmp dir/${name#*:} one
    "$@" export --format oci-archive -o ${name%:*} "$image"; [ -L ${name%:*} ]; cmp dir/${name#*:} whole.tar
done
"$@" cp "$image:/etc/one" dir; cmp dir/one one
ln -sf ../beyond dir/one; "$@" cp "$image:/etc/one" dir; [ -L dir/one ]; cmp beyond one
refused "$@" export --format oci-archive -o dir "$image"; grep -q 'dir is a directory' said
ln -s loop loop
refused "$@" export --format oci-archive -o loop "$image"; grep -q 'loop' said
refused "$@" cp "$image:/etc/one" loop; grep -q 'loop' said
refused "$@" cp "$image:/etc" /dev/null; grep -q 'it is no directory' said
refused "$@" cp "$image:/link" /dev/null; grep -q 'a symbolic link cannot be' said
refused "$@" cp "$image:/etc/one" /dev/full/one
"$@" cp "$image:/link" copied; [ -L copied ]

mknod full c 1 7
refused "$@" export --format oci-archive -o full "$image"; grep -q 'No space left' said
refused "$@" cp "$image:/etc/one" full; grep -q 'No space left' said
[ -c full ]; [ -c /dev/null ]; [ -L /dev/stdout ]; [ -L /dev/fd ]
[ -z "$(ls -A | grep '^\.')" ]; [ -z "$(ls -A dir | grep '^\.')" ]
echo all of it
"#;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_is_no_regular_file_is_written_to_and_stays() {
    let s = Scene::new();
    let tree = s.scratch.directory("tree");
    images::write(&tree.join("etc/one"), "one\n");
    images::write(&tree.join("etc/large"), vec![7; 300_000]);
    std::os::unix::fs::symlink("/etc/one", tree.join("link")).expect("symlink");
    images::settle(&tree);
    let image = s.layout.image(&[s.layout.layer(&tree, Packing::Gzip)]);
    let name = s.registry.push(&s.layout, &image, "destinations/small:1");
    for shape in ["dir", "erofs"] {
        let store = s.scratch.join(shape);
        Imagelet::on(&store).global("--layer-format", shape).ok(&["pull", &name]);
        let out = s.scratch.directory(&format!("out-of-{shape}"));
        fs::write(out.join("one"), "one\n").expect("written");
        let (out, store) = (out.display().to_string(), store.display().to_string());
        let shell = ["--mount", "bash", "-c", SHELL, "bash", &out, &name, PROGRAM, "--root", &store];
        let said = run(tool("unshare").args(shell));
        assert!(said.ends_with("all of it\n"), "{shape}: {said}");
    }
}
