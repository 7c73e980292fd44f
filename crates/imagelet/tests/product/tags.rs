//! Tags of repositories in their registries, listed and pulled; images that are present or absent; and names as users of other programs
//! type them.

use serde_json::{Value, json};

use crate::support::scene::Scene;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn tags_are_listed_and_pulled() {
    let s = Scene::new();
    let names: Vec<String> =
        ["2", "1.0", "latest"].map(|tag| s.push_file(&format!("team/app:{tag}"), "a", tag).0).into();
    let repository = s.registry.name("team/app");
    assert_eq!(s.imagelet.ok(&["tags", &repository]), "1.0\n2\nlatest\n");
    assert_eq!(s.imagelet.ok(&["list-tags", &names[0]]), "1.0\n2\nlatest\n", "a tag is ignored");
    let listed: Value = serde_json::from_str(&s.imagelet.ok(&["tags", &repository, "-o", "json"])).expect("JSON");
    assert_eq!(listed, json!({"repositories": [{"repository": repository, "tags": ["1.0", "2", "latest"]}]}));
    let table = s.imagelet.ok(&["tags", &repository, "-o", "table"]);
    assert!(table.starts_with("REPOSITORY ") && table.lines().count() == 4, "{table}");

    let both = s.imagelet.run(&["tags", &s.registry.name("team/none"), &repository]);
    assert_eq!(both.code, Some(1), "{}", both.stderr);
    assert_eq!(both.stdout, format!("{repository}:1.0\n{repository}:2\n{repository}:latest\n"));
    assert!(both.stderr.contains("team/none"), "{}", both.stderr);
    assert_eq!(s.imagelet.ids(), Vec::<String>::new(), "nothing is pulled");

    assert_eq!(s.imagelet.ok(&["pull", "--all-tags", &repository]).lines().count(), 3);
    assert_eq!(s.imagelet.ids().len(), 3);
    let line = s.imagelet.fails(2, &["pull", "--all-tags", &names[0]]);
    assert!(line.contains("a repository is named without tag and digest"), "{line}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_exit_code_tells_whether_an_image_is_present() {
    let s = Scene::new();
    let (name, image) = s.push_file("team/app:1", "a", "one");
    let absent = s.imagelet.run(&["exists", &name]);
    // Without a store, standard error says so.
    assert_eq!((absent.code, &*absent.stdout), (Some(1), ""), "{}", absent.stderr);
    s.imagelet.ok(&["pull", &name]);
    for present in [&*name, &*image.id, &image.id["sha256:".len()..][..12]] {
        assert_eq!(s.imagelet.ok(&["exists", present]), "", "{present}");
    }
    assert_eq!(s.imagelet.run(&["exists", &name, "absent:1"]).code, Some(1));
    assert_eq!(s.imagelet.run(&["exists", "Not A Name"]).code, Some(2));
}

#[test]
fn names_with_a_transport_get_a_tip() {
    let imagelet = crate::support::Imagelet::bare();
    for command in ["pull", "inspect", "rmi", "tags", "exists", "explain", "history"] {
        let said = imagelet.run(&[command, "docker://docker.io/library/busybox:1"]);
        assert_eq!(said.code, Some(2), "{command}: {}", said.stderr);
        let tip = "write the name without docker://, as docker.io/library/busybox:1";
        assert!(said.stderr.contains(tip), "{command}: {}", said.stderr);
    }
}
