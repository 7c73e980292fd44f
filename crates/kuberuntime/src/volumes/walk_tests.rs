//! Paths that try to get away.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;

struct Tree {
    top: tempfile::TempDir,
    root: fs::File,
}

fn tree() -> Tree {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir_all(top.path().join("root/a/b")).unwrap();
    fs::create_dir_all(top.path().join("outside")).unwrap();
    fs::write(top.path().join("root/a/b/file"), "inside").unwrap();
    fs::write(top.path().join("outside/file"), "outside").unwrap();
    let root = fs::File::open(top.path().join("root")).unwrap();
    Tree { top, root }
}

impl Tree {
    /// The number of what is found.
    fn find(&self, path: &str, links: SymlinkPolicy) -> Result<u64, String> {
        let found = find(self.root.as_fd(), Path::new(path), links, None).map_err(|error| error.to_string())?;
        Ok(rustix::fs::fstat(&found).unwrap().st_ino)
    }

    fn inode(&self, path: &str) -> u64 {
        fs::metadata(self.top.path().join(path)).unwrap().ino()
    }

    fn link(&self, to: &str, at: &str) {
        symlink(to, self.top.path().join("root").join(at)).unwrap();
    }
}

#[test]
fn links_are_followed_below_and_nowhere_else() {
    let tree = tree();
    tree.link("b", "a/in");
    tree.link("../a/in/../b/file", "a/round");
    tree.link("../..", "a/out");
    tree.link("/etc", "a/away");
    tree.link("loop", "loop");
    tree.link("missing", "dangling");
    let file = tree.inode("root/a/b/file");
    for path in ["a/b/file", "./a//b/./file", "a/in/file", "a/round"] {
        assert_eq!(tree.find(path, SymlinkPolicy::Within), Ok(file), "{path}");
    }
    assert_eq!(tree.find("", SymlinkPolicy::Within), Ok(tree.inode("root")));
    assert_eq!(tree.find("a/b", SymlinkPolicy::Refuse), Ok(tree.inode("root/a/b")));
    let out = "it leads out of the volume";
    for (path, why) in [
        ("a/out/outside/file", out),
        ("a/away/passwd", out),
        ("../outside", out),
        ("a/../../outside", out),
        ("/a", out),
        ("loop", "it goes over too many symbolic links or directories"),
        ("dangling", "No such file or directory (os error 2)"),
        ("a/b/file/x", "Not a directory (os error 20)"),
    ] {
        assert_eq!(tree.find(path, SymlinkPolicy::Within), Err(why.to_owned()), "{path}");
    }
    assert_eq!(tree.find("a/in/file", SymlinkPolicy::Refuse), Err("it leads over a symbolic link".to_owned()));
}

#[test]
fn a_directory_that_is_moved_away_while_one_is_in_it_leads_nowhere_else() {
    let tree = tree();
    let root = tree.top.path().join("root");
    // `..` after a step down means where that step began, not what is above the directory by now.
    tree.link("b/../b/file", "a/up");
    fs::rename(root.join("a/b"), tree.top.path().join("outside/b")).unwrap();
    symlink("../../outside/b", root.join("a/b")).unwrap();
    assert_eq!(tree.find("a/up", SymlinkPolicy::Within), Err("it leads out of the volume".to_owned()));
}

#[test]
fn what_is_missing_is_made_below() {
    let tree = tree();
    tree.link("new/er", "a/later");
    tree.link("../../outside/made", "a/out");
    let make =
        |path: &str| find(tree.root.as_fd(), Path::new(path), SymlinkPolicy::Within, Some(Mode::from_raw_mode(0o2775)));
    let made = make("x/y").unwrap();
    let stat = rustix::fs::fstat(&made).unwrap();
    assert_eq!((stat.st_ino, stat.st_mode & 0o7777), (tree.inode("root/x/y"), 0o2775));
    make("a/later/z").unwrap();
    assert!(tree.top.path().join("root/a/new/er/z").is_dir());
    assert!(matches!(make("a/out"), Err(WalkError::LeadsOut)));
    assert!(!tree.top.path().join("outside/made").exists());
    // What is there stays as it is.
    fs::set_permissions(tree.top.path().join("root/a"), fs::Permissions::from_mode(0o700)).unwrap();
    make("a/c").unwrap();
    assert_eq!(fs::metadata(tree.top.path().join("root/a")).unwrap().mode() & 0o7777, 0o700);
}
