//! Checks of the kernel: EROFS layers, which are tried as the store tries them; overlayfs; user namespaces; cgroups.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use super::finding::{Finding, blocking};
use crate::app::App;

const EROFS: &str = "erofs";
const OVERLAY: &str = "overlayfs";
const USER_NAMESPACES: &str = "user-namespaces";
const CGROUPS: &str = "cgroups";

/// Runs the checks of the kernel.
pub(super) async fn checks(app: &App) -> Vec<Finding> {
    let (temporary, privileged) = (app.environment.temporary.clone(), app.environment.privileged);
    let erofs = blocking(EROFS, move || erofs(&temporary, privileged)).await;
    // The trial has loaded the modules.
    let overlay = blocking(OVERLAY, move || overlay(Path::new("/proc/filesystems"), privileged));
    let users = blocking(USER_NAMESPACES, || user_namespaces(Path::new("/proc")));
    let cgroups = blocking(CGROUPS, || cgroups(Path::new("/sys/fs/cgroup")));
    let (overlay, users, cgroups) = tokio::join!(overlay, users, cgroups);
    vec![erofs, overlay, users, cgroups]
}

/// Mounts two small EROFS files below a directory, as layers under an overlay.
fn erofs(temporary: &Path, privileged: bool) -> Finding {
    if !privileged {
        return Finding::skipped(EROFS, "mounts need root: run this command as root");
    }
    // An existing directory is that of another user.
    let directory = temporary.join(format!("imagelet-doctor-{}", std::process::id()));
    if let Err(error) = std::fs::DirBuilder::new().mode(0o700).create(&directory) {
        return Finding::skipped(EROFS, format!("create {}: {error}", directory.display()));
    }
    let against = store::mount::why_no_lasting_mounts(&directory);
    if let Err(error) = std::fs::remove_dir_all(&directory) {
        tracing::warn!(%error, directory = %directory.display(), "cannot remove the directory of a trial");
    }
    match against {
        None => Finding::ok(EROFS, "layers that are EROFS files can be mounted"),
        Some(why) => {
            let remedy =
                "layers are directories without it, and pulls take longer; `modprobe erofs loop`, Linux 5.19 or later";
            Finding::warning(EROFS, format!("layers cannot be EROFS files: {why}"), remedy)
        }
    }
}

fn overlay(filesystems: &Path, privileged: bool) -> Finding {
    match std::fs::read_to_string(filesystems) {
        Ok(text) if text.lines().any(|line| line.split_whitespace().last() == Some("overlay")) => {
            Finding::ok(OVERLAY, "the kernel has overlayfs")
        }
        // The module is loaded by the first mount.
        Ok(_) if !privileged => Finding::skipped(OVERLAY, "its module is not loaded, and only root can load it"),
        Ok(_) => Finding::error(
            OVERLAY,
            "the kernel does not list overlayfs",
            "modprobe overlay, or a kernel with CONFIG_OVERLAY_FS",
        ),
        Err(error) => Finding::skipped(OVERLAY, format!("read {}: {error}", filesystems.display())),
    }
}

fn user_namespaces(proc: &Path) -> Finding {
    let remedy = "pods with hostUsers: false cannot run; set the sysctl user.max_user_namespaces, or use a kernel with CONFIG_USER_NS";
    if !proc.join("self/ns/user").exists() {
        return Finding::warning(USER_NAMESPACES, "the kernel has no user namespaces", remedy);
    }
    match std::fs::read_to_string(proc.join("sys/user/max_user_namespaces")) {
        Ok(text) if text.trim() == "0" => {
            Finding::warning(USER_NAMESPACES, "the sysctl user.max_user_namespaces is 0", remedy)
        }
        Ok(text) => Finding::ok(USER_NAMESPACES, format!("up to {}", text.trim())),
        Err(error) => Finding::skipped(USER_NAMESPACES, format!("read user.max_user_namespaces: {error}")),
    }
}

/// Controllers that limits of pods need.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

fn cgroups(root: &Path) -> Finding {
    // The file is that of the unified hierarchy. In the older one, each controller has a directory.
    let unified = std::fs::read_to_string(root.join("cgroup.controllers")).ok();
    let version = if unified.is_some() { "v2" } else { "v1" };
    let has = |name: &str| match &unified {
        Some(text) => text.split_whitespace().any(|controller| controller == name),
        None => root.join(name).is_dir(),
    };
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        let message = match missing.len() {
            3 => format!("no cgroups are mounted on {}", root.display()),
            _ => format!("cgroup {version} without {}", missing.join(", ")),
        };
        let remedy = "pods cannot run without them; enable them on the kernel's command line, for example \
                      cgroup_enable=memory cgroup_memory=1, and reboot";
        return Finding::error(CGROUPS, message, remedy);
    }
    let message = format!("cgroup {version} with {}", CONTROLLERS.join(", "));
    match unified {
        Some(_) => Finding::ok(CGROUPS, message),
        None => Finding::warning(
            CGROUPS,
            message,
            "systemd.unified_cgroup_hierarchy=1 on the kernel's command line selects v2",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn kernel_is_judged_by_its_files() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("create");
            std::fs::write(&path, text).expect("write");
            path
        };
        let is = |finding: &Finding, result: Verdict, words: &str| {
            assert!(finding.result == result && finding.details().contains(words), "{finding:?}");
        };
        let with = write("with", "nodev\tsysfs\nnodev\toverlay\n");
        let without = write("without", "nodev\toverlayish\n\text4\n");
        is(&overlay(&with, false), Verdict::Ok, "has overlayfs");
        is(&overlay(&without, true), Verdict::Error, "modprobe overlay");
        is(&overlay(&without, false), Verdict::Skipped, "only root");
        is(&overlay(&root.path().join("missing"), true), Verdict::Skipped, "missing");

        let proc = root.path().join("proc");
        is(&user_namespaces(&proc), Verdict::Warning, "no user namespaces");
        write("proc/self/ns/user", "");
        is(&user_namespaces(&proc), Verdict::Skipped, "max_user_namespaces");
        write("proc/sys/user/max_user_namespaces", "0\n");
        is(&user_namespaces(&proc), Verdict::Warning, "hostUsers");
        write("proc/sys/user/max_user_namespaces", "31000\n");
        is(&user_namespaces(&proc), Verdict::Ok, "31000");

        let two = root.path().join("two");
        is(&cgroups(&two), Verdict::Error, "no cgroups are mounted");
        write("two/cgroup.controllers", "cpuset cpu io pids\n");
        is(&cgroups(&two), Verdict::Error, "cgroup v2 without memory; pods cannot run without them; enable them");
        write("two/cgroup.controllers", "cpuset cpu io memory pids\n");
        is(&cgroups(&two), Verdict::Ok, "cgroup v2 with cpu, memory, pids");
        for controller in CONTROLLERS {
            write(&format!("one/{controller}/tasks"), "");
        }
        is(&cgroups(&root.path().join("one")), Verdict::Warning, "cgroup v1 with");
    }
}
