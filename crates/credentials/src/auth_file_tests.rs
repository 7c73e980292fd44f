//! Files of credentials, changed on a real disk.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn file(directory: &Path, kind: AuthFileKind) -> AuthFile {
    AuthFile { path: directory.join("sub/auth.json"), kind }
}

fn text(file: &AuthFile) -> Value {
    serde_json::from_slice(&fs::read(&file.path).expect("there")).expect("JSON")
}

#[test]
fn credential_is_added_and_removed_without_other_changes() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = file(directory.path(), AuthFileKind::Containers);
    assert_eq!(file.user("r.example").expect("reads"), None);
    assert!(!file.remove("r.example").expect("nothing to remove"));
    assert!(!file.path.exists());
    file.store("r.example:5000/team", "ada", &Secret::new("p:w")).expect("stored");
    let want = json!({"auths": {"r.example:5000/team": {"auth": STANDARD.encode("ada:p:w")}}});
    assert_eq!(text(&file), want);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&file.path), mode(&directory.path().join("sub"))), (0o600, 0o700));
    assert_eq!(file.user("r.example:5000/team").expect("reads").as_deref(), Some("ada"));
    assert_eq!(file.user("r.example:5000").expect("reads"), None, "a part is not the whole");

    let other = json!({
        "HttpHeaders": {"x": "y"},
        "auths": {"https://r.example/v1/": {"auth": "eDp5", "email": "e"}, "a.example": {"auth": "eDp5"}},
        "currentContext": "c",
    });
    fs::write(&file.path, other.to_string()).expect("written");
    file.store("r.example", "bob", &Secret::new("pw")).expect("stored");
    let want = json!({
        "HttpHeaders": {"x": "y"},
        "auths": {"a.example": {"auth": "eDp5"}, "r.example": {"auth": STANDARD.encode("bob:pw")}},
        "currentContext": "c",
    });
    assert_eq!(text(&file), want);
    assert!(file.remove("r.example").expect("removed"));
    assert_eq!(text(&file)["auths"], json!({"a.example": {"auth": "eDp5"}}));
    assert_eq!(file.remove_all().expect("removed"), ["a.example"]);
    assert_eq!(text(&file), json!({"HttpHeaders": {"x": "y"}, "auths": {}, "currentContext": "c"}));
    assert_eq!(fs::read_dir(directory.path().join("sub")).expect("a directory").count(), 1, "no draft is left");
}

#[test]
fn the_default_registry_has_two_names() {
    let directory = tempfile::tempdir().expect("a directory");
    for (kind, key) in [(AuthFileKind::Docker, DOCKER_SERVER), (AuthFileKind::Containers, "docker.io")] {
        let file = file(directory.path(), kind);
        file.store("docker.io", "ada", &Secret::new("pw")).expect("stored");
        let keys: Vec<String> = text(&file)["auths"].as_object().expect("an object").keys().cloned().collect();
        assert_eq!(keys, [key], "in place of the other spelling");
        assert_eq!(file.user("docker.io").expect("reads").as_deref(), Some("ada"));
    }
}

#[test]
fn helpers_of_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = file(directory.path(), AuthFileKind::Docker);
    fs::create_dir(directory.path().join("sub")).expect("made");
    let config = json!({"credHelpers": {"r.example": "own", "none.example": ""}, "credsStore": "all"});
    fs::write(&file.path, config.to_string()).expect("written");
    let helper = |location: &str| file.helper(location).expect("reads");
    assert_eq!(helper("r.example").as_deref(), Some("own"));
    assert_eq!(helper("r.example/team").as_deref(), Some("own"));
    assert_eq!(helper("docker.io").as_deref(), Some("all"));
    assert_eq!(helper("none.example"), None);
    file.note_helper("docker.io").expect("noted");
    assert_eq!(text(&file)["auths"], json!({DOCKER_SERVER: {}}));
    assert_eq!(file.user("docker.io").expect("reads"), None);
}

#[test]
fn foreign_files_are_not_overwritten_and_symlinks_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = file(directory.path(), AuthFileKind::Containers);
    fs::create_dir(directory.path().join("sub")).expect("made");
    for bad in ["{", "[]", "{\"auths\": []}", "{\"auths\": {\"x\": {\"auth\": \"!s3cret\"}}}"] {
        fs::write(&file.path, bad).expect("written");
        let error = file.store("r.example", "u", &Secret::new("p")).expect_err(bad).to_string();
        assert!(!error.contains("s3cret"), "{error}");
        assert_eq!(fs::read_to_string(&file.path).expect("there"), bad);
    }
    let target = directory.path().join("target.json");
    fs::write(&target, "").expect("written");
    fs::remove_file(&file.path).expect("removed");
    std::os::unix::fs::symlink(&target, &file.path).expect("linked");
    file.store("r.example", "u", &Secret::new("p")).expect("stored");
    assert!(file.path.is_symlink() && fs::read_to_string(&target).expect("there").contains("r.example"));
}
