//! Users that are found in podman's own store, and lower directories of mounts.

use super::*;

fn known(names: &[&str]) -> KnownLayers {
    KnownLayers { links: links(names), stacks: BTreeMap::new() }
}

fn links(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn layers_of_podman_name_what_lies_below_them() {
    let root = tempfile::tempdir().unwrap();
    let overlay = root.path().join("overlay");
    for (layer, lower) in
        [("a", Some("l/ONE:l/TWO")), ("b", Some("l/THREE")), ("c", None), ("d", Some("l/TWO\n")), ("l", None)]
    {
        std::fs::create_dir_all(overlay.join(layer)).unwrap();
        if let Some(lower) = lower {
            std::fs::write(overlay.join(layer).join("lower"), lower).unwrap();
        }
    }
    std::fs::write(overlay.join(".has-mount-program"), "false").unwrap();
    let mut users = find(&known(&["TWO"]), &|_| PathBuf::from("/nowhere"), &[root.path().to_owned()]).unwrap();
    users.sort_by(|a, b| a.place.cmp(&b.place));
    let user = |layer: &str| LinkUser { place: overlay.join(layer), links: links(&["TWO"]) };
    assert_eq!(users, [user("a"), user("d")]);
    let nobody = find(&known(&["TWO"]), &|_| PathBuf::from("/nowhere"), &[root.path().join("none")]).unwrap();
    assert_eq!(nobody, []);
}

#[test]
fn lower_directories_of_mounts_are_recognised_by_name_and_by_what_they_are() {
    let root = tempfile::tempdir().unwrap();
    let tree = |name: &str| root.path().join(name).join("fs");
    for name in ["ONE", "TWO"] {
        std::fs::create_dir_all(tree(name)).unwrap();
    }
    let view = root.path().join("podman/overlay/l");
    std::fs::create_dir_all(&view).unwrap();
    std::os::unix::fs::symlink(tree("ONE"), view.join("ONE")).unwrap();
    let known = links(&["ONE", "TWO"]);
    let used = |path: &Path| used_link(path, &known, &|link| tree(link));
    assert_eq!(used(&view.join("ONE")).as_deref(), Some("ONE"));
    // Another root's layer of this name.
    assert_eq!(used(&tree("x/TWO").with_file_name("TWO")).as_deref(), Some("TWO"), "cannot be seen");
    std::fs::create_dir_all(root.path().join("other/l/TWO")).unwrap();
    assert_eq!(used(&root.path().join("other/l/TWO")), None);
    assert_eq!(used(&tree("TWO")).as_deref(), Some("TWO"));
    assert_eq!(used(&root.path().join("other/l")), None);
}

#[test]
fn images_of_podman_that_have_our_layers_use_them() {
    let root = tempfile::tempdir().unwrap();
    let images = root.path().join("overlay-images");
    std::fs::create_dir_all(&images).unwrap();
    let stacks = [("aa".to_owned(), links(&["ONE", "TWO"])), ("bb".to_owned(), links(&["ONE"]))];
    let known = KnownLayers { links: links(&["ONE", "TWO"]), stacks: stacks.into() };
    let found = || find(&known, &|_| PathBuf::from("/nowhere"), &[root.path().to_owned()]);
    for (rows, want) in [
        ("", Some(vec![])),
        ("[]", Some(vec![])),
        (
            r#"[{"id":"i","layer":"aa","names":["x"]},{"id":"j","layer":"cc"},{"id":"k"}]"#,
            Some(vec![("i", vec!["ONE", "TWO"])]),
        ),
        (r#"[{"id":"i","layer":"bb"}]"#, Some(vec![("i", vec!["ONE"])])),
        // The layers that the image uses are unknown.
        ("{", None),
    ] {
        std::fs::write(images.join("images.json"), rows).unwrap();
        let user = |(id, names): (&str, Vec<&str>)| LinkUser { place: images.join(id), links: links(&names) };
        let want: Option<Vec<LinkUser>> = want.map(|want| want.into_iter().map(user).collect());
        assert_eq!(found().ok(), want, "{rows}");
    }
}
