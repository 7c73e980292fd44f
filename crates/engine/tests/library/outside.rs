//! The program in `examples/pull-and-read`, built outside of the workspace from the packages that `cargo publish` would upload, and run
//! against a registry on loopback.
#![expect(clippy::disallowed_methods, reason = "the test runs cargo and the program")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Node, app};

/// Members of the workspace that are not published.
const UNPUBLISHED: [&str; 4] = ["imagelet-bench", "imagelet-testdisk", "imagelet-testfault", "xtask"];

fn succeed(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::inherit()).output().expect("starts");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    output.stdout
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Packages the workspace, and unpacks the packages below `directory`. Returns their directories.
fn packages(workspace: &Path, target: &Path, directory: &Path) -> Vec<PathBuf> {
    let mut package = Command::new(env!("CARGO"));
    package.current_dir(workspace).env("CARGO_TARGET_DIR", target);
    package.args(["package", "--quiet", "--locked", "--offline", "--no-verify", "--allow-dirty", "--workspace"]);
    succeed(package.args(UNPUBLISHED.iter().flat_map(|name| ["--exclude", name])));
    let version = env!("CARGO_PKG_VERSION");
    let files =
        std::fs::read_dir(target.join("package")).expect("packages").map(|entry| entry.expect("an entry").path());
    let current = files.filter(|file| file.to_string_lossy().ends_with(&format!("-{version}.crate")));
    current
        .map(|file| {
            succeed(Command::new("tar").args(["-xzf"]).arg(&file).arg("-C").arg(directory));
            directory.join(file.file_stem().expect("a name"))
        })
        .collect()
}

#[tokio::test]
#[ignore = "builds all dependencies for several minutes: scripts/test-long.sh"]
async fn a_program_outside_of_the_workspace_builds_from_packages() {
    let node = Node::start().await;
    let image = node.push("app:v1", &app()).to_string();
    let (workspace, outside) = (workspace(), node.directory.path().join("outside"));
    let (target, program) = (workspace.join("target/outside"), outside.join("program"));
    std::fs::create_dir_all(program.join("src")).expect("creates");
    let packages = packages(&workspace, &target, &outside);
    assert!(packages.iter().any(|package| package.join("README.md").is_file()), "{packages:?}");

    // The packages stand in for crates.io, where none of them is published yet.
    let example = workspace.join("examples/pull-and-read");
    let mut manifest = std::fs::read_to_string(example.join("Cargo.toml")).expect("a manifest");
    manifest.push_str("\n[patch.crates-io]\n");
    let suffix = format!("-{}", env!("CARGO_PKG_VERSION"));
    for package in &packages {
        let name = package.file_name().expect("a name").to_string_lossy();
        let name = name.strip_suffix(&suffix).expect("a version");
        manifest.push_str(&format!("{name} = {{ path = {package:?} }}\n"));
    }
    std::fs::write(program.join("Cargo.toml"), manifest).expect("writes");
    std::fs::copy(example.join("src/main.rs"), program.join("src/main.rs")).expect("copies");
    // The tested versions of all dependencies, which need no network.
    std::fs::copy(workspace.join("Cargo.lock"), program.join("Cargo.lock")).expect("copies");
    let mut build = Command::new(env!("CARGO"));
    succeed(build.args(["build", "--quiet", "--offline"]).current_dir(&program).env("CARGO_TARGET_DIR", &target));

    let root = outside.join("store");
    let run = move || {
        let mut run = Command::new(target.join("debug/pull-and-read"));
        succeed(run.arg(root).args([&image, "etc/os-release"]).env("HOME", &outside).env_remove("HTTP_PROXY"))
    };
    let output = tokio::task::spawn_blocking(run).await.expect("no panic");
    assert_eq!(String::from_utf8_lossy(&output), "ID=app\n");
}
