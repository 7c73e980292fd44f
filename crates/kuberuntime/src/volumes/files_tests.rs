//! Files that change all at once, and what stands in their way.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use super::*;
use crate::documents::DocumentContent;
use crate::volume_files::VolumeFile;

struct VolumeBench {
    top: tempfile::TempDir,
    volume: OpenDirectory,
}

fn volume() -> VolumeBench {
    let top = tempfile::tempdir().unwrap();
    let volume = OpenDirectory::open(top.path()).unwrap().made("v", 0o755).unwrap();
    VolumeBench { top, volume }
}

fn files(list: &[(&str, &str)]) -> VolumeFiles {
    let file = |text: &str| VolumeFile { mode: 0o640, content: DocumentContent::new(text) };
    list.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
}

impl VolumeBench {
    fn path(&self, path: &str) -> PathBuf {
        self.top.path().join("v").join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| format!("{:?}", error.kind()))
    }

    /// Names in the volume itself; all that hold a time as one.
    fn names(&self) -> Vec<String> {
        let short = |name: String| if name.starts_with("..20") { "..TIME".to_owned() } else { name };
        self.volume.names().unwrap().into_iter().map(short).collect()
    }

    fn data(&self) -> PathBuf {
        fs::read_link(self.path(DATA)).unwrap()
    }
}

#[test]
fn files_stand_as_the_kubelet_has_them() {
    let place = volume();
    let wanted = files(&[("a", "1"), ("d/e/f", "2"), ("d/g", "3")]);
    assert_eq!(write(&place.volume, &wanted, None), Ok(true));
    assert_eq!(place.names(), ["..TIME", "..data", "a", "d"].map(String::from));
    assert_eq!(fs::read_link(place.path("d")).unwrap(), PathBuf::from("..data/d"));
    assert_eq!(["a", "d/e/f", "d/g"].map(|path| place.read(path)), ["1", "2", "3"]);
    assert_eq!(fs::metadata(place.path("d/g")).unwrap().mode() & 0o7777, 0o640);
    let name = place.data().into_os_string().into_string().unwrap();
    assert_eq!((name.len(), &name[..4], &name[6..7]), ("..2026_11_21_18_55_37.123456789".len(), "..20", "_"));
    // Nothing is done again.
    assert_eq!(write(&place.volume, &wanted, None), Ok(false));
    assert_eq!(place.data(), PathBuf::from(name));
}

#[test]
fn a_change_shows_everywhere_at_once_and_takes_the_old_away() {
    let place = volume();
    write(&place.volume, &files(&[("a", "1"), ("b", "1"), ("old/x", "1")]), None).unwrap();
    let (before, open) = (place.data(), fs::File::open(place.path("a")).unwrap());
    assert_eq!(write(&place.volume, &files(&[("a", "2"), ("b", "1"), ("new", "2")]), None), Ok(true));
    assert_ne!(place.data(), before);
    assert_eq!(place.names(), ["..TIME", "..data", "a", "b", "new"].map(String::from));
    assert_eq!(["a", "b", "new", "old/x"].map(|path| place.read(path)), ["2", "1", "2", "NotFound"]);
    // Who has the old file open reads the old file.
    assert_eq!(std::io::read_to_string(open).unwrap(), "1");
    // A mode counts as a change, a file more or fewer as well.
    let mut wanted = files(&[("a", "2"), ("b", "1"), ("new", "2")]);
    wanted.get_mut("a").unwrap().mode = 0o600;
    assert_eq!(write(&place.volume, &wanted, None), Ok(true));
    wanted.remove("b");
    assert_eq!(write(&place.volume, &wanted, None), Ok(true));
    assert_eq!(place.names(), ["..TIME", "..data", "a", "new"].map(String::from));
    assert_eq!(write(&place.volume, &VolumeFiles::new(), None), Ok(true));
    assert_eq!(place.names(), ["..TIME", "..data"].map(String::from));
}

#[test]
fn whatever_a_kill_leaves_is_mended() {
    let wanted = files(&[("a", "1"), ("d/b", "2")]);
    type Harm = fn(&VolumeBench);
    let harms: [(&str, Harm); 7] = [
        ("nothing is in force", |place| fs::remove_file(place.path(DATA)).unwrap()),
        ("a link is missing", |place| fs::remove_file(place.path("a")).unwrap()),
        ("a file is cut off", |place| fs::write(place.path("a"), "").unwrap()),
        ("a file is too many", |place| fs::write(place.path("d/more"), "x").unwrap()),
        ("unfinished files", |place| {
            fs::create_dir_all(place.path("..unfinished/x")).unwrap();
            fs::create_dir_all(place.path("..2020_01_01_00_00_00.000000001/x")).unwrap();
            symlink("nowhere", place.path(DATA_NEW)).unwrap();
        }),
        ("the files are gone", |place| fs::remove_dir_all(place.path("..data/d")).unwrap()),
        ("an empty directory in the way", |place| {
            fs::remove_file(place.path("d")).unwrap();
            fs::create_dir_all(place.path("d/b/c")).unwrap();
        }),
    ];
    for (what, harm) in harms {
        let place = volume();
        write(&place.volume, &wanted, None).unwrap();
        harm(&place);
        assert_eq!(write(&place.volume, &wanted, None).map(drop), Ok(()), "{what}");
        assert_eq!(["a", "d/b", "d/more"].map(|path| place.read(path)), ["1", "2", "NotFound"], "{what}");
        assert_eq!(place.names(), ["..TIME", "..data", "a", "d"].map(String::from), "{what}");
        assert_eq!(write(&place.volume, &wanted, None), Ok(false), "{what}");
    }
}

#[test]
fn links_that_a_container_left_lead_nowhere() {
    let place = volume();
    let outside = place.top.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "theirs").unwrap();
    symlink(&outside, place.path(UNFINISHED)).unwrap();
    symlink(&outside, place.path("..2020")).unwrap();
    symlink(&outside, place.path(DATA)).unwrap();
    write(&place.volume, &files(&[("a", "ours")]), None).unwrap();
    assert_eq!(place.read("a"), "ours");
    assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn files_that_cannot_exist_are_reported() {
    let place = volume();
    let told = |list: &[(&str, &str)]| write(&place.volume, &files(list), None).unwrap_err();
    assert_eq!(told(&[("..x", "1")]), "\"..x\": names of files must not start with \"..\"");
    assert_eq!(told(&[("a", "1"), ("a/b", "1")]), "write \"a/b\": Not a directory (os error 20)");
    let long = "n".repeat(300);
    assert_eq!(told(&[(&long, "1")]), format!("write {long:?}: {long:?} is not a name in a directory"));
    // A directory that is not empty is not ours to remove.
    fs::create_dir_all(place.path("b/theirs")).unwrap();
    fs::write(place.path("b/theirs/x"), "x").unwrap();
    assert_eq!(told(&[("b", "1")]), "show \"b\": Is a directory (os error 21)");
    assert_eq!(place.read("b/theirs/x"), "x");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_group_can_read_everything() {
    assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
    let place = volume();
    let group = Some(Gid::from_raw(4711));
    let mut wanted = files(&[("d/a", "1")]);
    wanted.get_mut("d/a").unwrap().mode = 0o400;
    write(&place.volume, &wanted, group).unwrap();
    let owner = |path: &str| {
        let found = fs::metadata(place.path(path)).unwrap();
        (found.gid(), found.mode() & 0o7777)
    };
    assert_eq!((owner("d/a"), owner("d"), owner("..data")), ((4711, 0o440), (4711, 0o2755), (4711, 0o2755)));
    assert_eq!(write(&place.volume, &wanted, group), Ok(false));
    // Without the group they are others.
    assert_eq!(write(&place.volume, &wanted, None), Ok(true));
    assert_eq!(fs::metadata(place.path("d/a")).unwrap().mode() & 0o7777, 0o400);
}
