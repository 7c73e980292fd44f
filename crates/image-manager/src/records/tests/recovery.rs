//! Files of killed processes: the kubelet's cases of `initialize` and of opening old files, and every point at which
//! a process may be killed.

use cri_api::Image;

use super::*;

fn image(id: &str, tags: &[&str], digests: &[&str]) -> Image {
    Image {
        id: id.to_owned(),
        repo_tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        repo_digests: digests.iter().map(|&digest| digest.to_owned()).collect(),
        ..Image::default()
    }
}

/// The images of the runtime in the kubelet's cases.
fn runtime() -> Vec<Image> {
    vec![
        image("testimageref1", &["repo.repo/test/test:docker", "docker.io/testing/test:something"], &[]),
        image(
            "testimageref2",
            &["repo.repo/test/test:v2", "repo.repo/test/test:test2"],
            &["repo.repo/test/test@dgst2"],
        ),
        image("testimageref", &["repo.repo/test/test:v1", "repo.repo/test/test:test1"], &["repo.repo/test/test@dgst1"]),
        image("testimageref3", &["repo.repo/test/test:v3", "repo.repo/test/test:test3"], &[]),
        image("testimageref4", &[], &["repo.repo/test/test@dgst4", "repo.repo/test/notatest@dgst44"]),
    ]
}

#[tokio::test]
async fn initialize() {
    let something = "docker.io/testing/test:something";
    let v1 = "repo.repo/test/test:v1";
    let rows: [(&str, &[&str], bool, &[&str]); 5] = [
        ("upstream: pullmanager/TestFileBasedImagePullManager_initialize/no pulling/pulled records", &[], false, &[]),
        ("upstream: pullmanager/TestFileBasedImagePullManager_initialize/only pulled records", &[], true, &[]),
        (
            "upstream: pullmanager/TestFileBasedImagePullManager_initialize/pulling intent that matches an existing image - no matching pulled record",
            &[something],
            true,
            &["testimageref1"],
        ),
        (
            "upstream: pullmanager/TestFileBasedImagePullManager_initialize/pulling intent that matches an existing image - a pull record matches",
            &[v1],
            true,
            &[],
        ),
        (
            "upstream: pullmanager/TestFileBasedImagePullManager_initialize/multiple pulling intents that match existing images",
            &[v1, something],
            true,
            &["testimageref1"],
        ),
    ];
    for (name, intents, with_records, made) in rows {
        let node = Node::new();
        let there = [anonpull(), testimageref(), emptycredmapping()];
        let there = if with_records { &there[..] } else { &[] };
        there.iter().for_each(|record| node.old_record(record));
        intents.iter().for_each(|image| node.left_intent(image));
        let records = node.open().await;
        assert_eq!(records.recover(&runtime()).await.unwrap(), intents.len(), "{name}");

        assert_eq!(node.files("pulling"), BTreeSet::new(), "{name}");
        let refs: Vec<&str> =
            there.iter().map(|record| record.image_ref.as_str()).chain(made.iter().copied()).collect();
        assert_eq!(node.files("pulled"), names(&refs), "{name}");
        for record in there {
            assert_eq!(&node.record(&record.image_ref), record, "{name}: what is recorded stays");
        }
        for image_ref in made {
            let record = node.record(image_ref);
            assert_eq!(record.mapping, std::collections::BTreeMap::new(), "{name}: nobody knows with what");
            assert_eq!(records.may(something, image_ref, &[]).await, NO_RECORD, "{name}: so it is verified");
        }
    }
}

#[tokio::test]
async fn intents_are_found_in_every_spelling() {
    let digest = "sha256:f24acc752be18b93b0504c86312bbaf482c9efb0c45e925bbccb0a591cebd7af";
    let in_full = format!("docker.io/library/nginx@{digest}");
    let rows = [
        ("nginx", image("id", &["docker.io/library/nginx:latest"], &[]), true),
        ("library/nginx:latest", image("id", &["docker.io/library/nginx:latest"], &[]), true),
        ("docker.io/library/nginx", image("id", &["nginx:latest"], &[]), true),
        (&format!("nginx:1@{digest}"), image("id", &[], &[&in_full]), true),
        ("nginx:1", image("id", &["docker.io/library/nginx:latest"], &[&in_full]), false),
        ("NGINX", image("id", &["docker.io/library/nginx:latest"], &[]), false),
    ];
    for (intent, image, found) in rows {
        let node = Node::new();
        node.left_intent(intent);
        let records = node.open().await;
        assert_eq!(records.recover(&[image]).await.unwrap(), usize::from(found), "{intent}");
        assert_eq!(node.intent_path(intent).exists(), !found, "{intent}");
        assert_eq!(node.record_path("id").exists(), found, "{intent}");
    }
}

#[tokio::test]
async fn killed_while_the_intent_was_written() {
    let node = Node::new();
    let path = node.intent_path(LATEST);
    let draft = path.with_file_name(format!("{}.4711-0.tmp", file_name(LATEST)));
    fs::write(&draft, "{\"kind\":").unwrap();
    // The kubelet's own.
    fs::write(path.with_file_name(format!("{}.tmp", file_name(LATEST))), "").unwrap();
    // Files of other programs.
    fs::write(path.with_file_name("notes.tmp"), "").unwrap();
    fs::write(path.with_file_name("notes"), "").unwrap();
    fs::create_dir(path.with_file_name("sha256-directory")).unwrap();
    let records = node.open().await;
    let left: BTreeSet<String> = ["notes.tmp", "notes", "sha256-directory"].map(str::to_owned).into();
    assert_eq!(node.files("pulling"), left);
    assert_eq!(records.may(LATEST, "id", &[]).await, PRELOADED, "nothing was pulled");
}

#[tokio::test]
async fn killed_during_the_pull() {
    let node = Node::new();
    node.left_intent(LATEST);
    let records = node.open().await;
    assert_eq!(records.recover(&runtime()).await.unwrap(), 0);
    assert_eq!(node.files("pulling"), names(&[LATEST]), "a runtime may still be at it");
    assert_eq!(records.may(LATEST, "id", &[]).await, NO_RECORD, "should the image appear, it is no preloaded one");
    records.intend(LATEST).await.unwrap().failed().await;
    assert_eq!(node.files("pulling"), BTreeSet::new(), "the next pull of it ends the matter");
}

#[tokio::test]
async fn killed_between_pull_and_record() {
    let node = Node::new();
    node.left_intent(LATEST);
    let records = node.open().await;
    assert_eq!(records.recover(&[image("id", &[LATEST], &[])]).await.unwrap(), 1);
    let pod = [secret("uid", "ns", "name", "hash")];
    assert_eq!(records.may(LATEST, "id", &pod).await, NO_RECORD);
    assert_eq!(records.may("docker.io/testing/other", "id", &pod).await, NO_RECORD, "not under another name either");
    // The registry says that this pod may have it.
    records.intend(LATEST).await.unwrap().pulled("id", Some(&pod[0])).await.unwrap();
    assert_eq!(records.may(LATEST, "id", &pod).await, GRANTED);
}

#[tokio::test]
async fn killed_between_record_and_end() {
    let node = Node::new();
    node.left_intent(LATEST);
    node.old_record(&testimageref());
    let records = node.open().await;
    assert_eq!(records.recover(&[image("testimageref", &[LATEST], &[])]).await.unwrap(), 1);
    assert_eq!(node.files("pulling"), BTreeSet::new());
    assert_eq!(node.record("testimageref"), testimageref());
}

#[tokio::test]
async fn a_running_pull_is_not_recovered() {
    let node = Node::new();
    let other = node.open().await;
    let intent = other.intend(LATEST).await.unwrap();
    let records = node.open().await;
    assert_eq!(records.recover(&[image("id", &[LATEST], &[])]).await.unwrap(), 0);
    assert_eq!(node.files("pulling"), names(&[LATEST]));
    assert_eq!(node.files("pulled"), BTreeSet::new());
    intent.pulled("id", None).await.unwrap();
    assert_eq!(records.may(LATEST, "id", &[]).await, FOR_ALL);
}

#[tokio::test]
async fn one_that_cannot_be_read_does_not_stop_the_others() {
    let node = Node::new();
    fs::write(node.intent_path("broken"), "{").unwrap();
    node.left_intent("docker.io/testing/blocked:1");
    node.left_intent(LATEST);
    fs::create_dir(node.record_path("blocked")).unwrap();
    let records = node.open().await;
    let images = [image("id", &[LATEST], &[]), image("blocked", &["docker.io/testing/blocked:1"], &[])];
    let error = records.recover(&images).await.unwrap_err();
    assert!(error.to_string().contains("it is no regular file"), "{error}");
    assert_eq!(node.files("pulling"), names(&["broken", "docker.io/testing/blocked:1"]));
    assert_eq!(records.may(LATEST, "id", &[]).await, NO_RECORD);
}

/// The kubelet's files of `v1alpha1` become files of `v1beta1` in place.
#[tokio::test]
async fn old_files() {
    let intents = |versions: &[&str]| -> Vec<(String, String)> {
        versions.iter().enumerate().map(|(i, version)| {
            let image = format!("repo.repo/test/test:v{i}");
            let text = format!("{{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"kubelet.config.k8s.io/{version}\",\"image\":\"{image}\"}}\n");
            (file_name(&image), text)
        }).collect()
    };
    let pulled = |versions: &[&str]| -> Vec<(String, String)> {
        versions.iter().enumerate().map(|(i, version)| {
            let text = format!("{{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/{version}\",\"lastUpdatedTime\":\"{RECORDED}\",\"imageRef\":\"ref{i}\",\"credentialMapping\":{{\"docker.io/testing/a\":{{\"kubernetesSecrets\":[{{\"uid\":\"u\",\"namespace\":\"n\",\"name\":\"m\",\"credentialHash\":\"h\"}}]}},\"docker.io/testing/b\":{{\"kubernetesServiceAccounts\":[{{\"uid\":\"u\",\"namespace\":\"n\",\"name\":\"m\"}}]}},\"docker.io/testing/c\":{{\"nodePodsAccessible\":true}}}}}}\n");
            (file_name(&format!("ref{i}")), text)
        }).collect()
    };
    let (alpha, beta, mixed) =
        (["v1alpha1", "v1alpha1"], ["v1beta1"; 3], ["v1beta1", "v1alpha1", "v1beta1", "v1alpha1"]);
    let rows: [(&str, bool, &[&str], &[&str]); 9] = [
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/kubelet root dir does not exist", false, &[], &[]),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/kubelet root dir exists", true, &[], &[]),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/only alpha intents", true, &alpha, &[]),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/alpha and beta intents mixed", true, &mixed, &[]),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/only beta intents", true, &beta, &[]),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/only alpha pulled records", true, &[], &alpha),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/alpha and beta pulled records mixed", true, &[], &mixed),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/only beta pulled records", true, &[], &beta),
        ("upstream: pullmanager/TestNewFSPullRecordsAccessor/everything altogether", true, &mixed, &mixed),
    ];
    for (name, root, intent_versions, record_versions) in rows {
        let mut node = Node::new();
        if !root {
            fs::remove_dir_all(node.directory()).unwrap();
            node.root = tempfile::tempdir().unwrap();
        }
        let written = [("pulling", intents(intent_versions)), ("pulled", pulled(record_versions))];
        let mut untouched = Vec::new();
        for (directory, files) in &written {
            for (file, text) in files {
                let path = node.directory().join(directory).join(file);
                fs::write(&path, text).unwrap();
                if text.contains("v1beta1") {
                    untouched.push((path.clone(), fs::metadata(&path).unwrap().modified().unwrap()));
                }
            }
        }
        if root {
            fs::write(node.directory().join("pulled").join(file_name("broken")), "{").unwrap();
        }
        drop(node.open().await);
        for (directory, files) in &written {
            assert!(node.directory().join(directory).is_dir(), "{name}");
            for (file, text) in files {
                let now = fs::read_to_string(node.directory().join(directory).join(file)).unwrap();
                assert_eq!(now, text.replace("v1alpha1", "v1beta1"), "{name}");
            }
        }
        for (path, modified) in untouched {
            assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified, "{name}: {}", path.display());
        }
        if root {
            assert_eq!(fs::read(node.record_path("broken")).unwrap(), b"{", "{name}: what cannot be read stays");
        }
    }
}
