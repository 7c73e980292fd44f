//! Pulls and removals of images that share layers, from many threads at once.

use std::sync::Barrier;

use imagelet_store::{CommitError, ImageCommit};

use super::support::{Image, Tar, check_accounts, open, plain_layer};

#[test]
fn pulls_and_removals_at_once_leave_true_accounts() {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    let base = |mode| Tar::default().directory("./", 0o755).directory("d/", mode).file("d/base", b"base");
    let dependent = Tar::default().directory("./", 0o755).file("d/upper", b"upper");
    let images: Vec<Image> = (0..6_u8)
        .map(|n| {
            let mode = if n % 2 == 0 { 0o1777 } else { 0o700 };
            let own = plain_layer("own", &vec![n; 2000 * usize::from(n)]);
            Image::new(&format!("image {n}"), &[base(mode), dependent.clone(), own])
        })
        .collect();
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, images, start) = (&store, &images, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..12 {
                    let image = &images[(thread * 5 + round * 7) % images.len()];
                    if (thread + round) % 3 == 0 {
                        store.remove_image(&image.id()).expect("removes");
                        continue;
                    }
                    let tag = format!("docker.io/library/image:{}", (thread + round) % 4);
                    // As the image service does: what was taken meanwhile is unpacked again.
                    for attempt in 0.. {
                        match image.try_pull(store, Some(&tag)) {
                            Ok(record) => {
                                assert_eq!(record.layers.len(), 3);
                                break;
                            }
                            Err(CommitError::LayerTaken { .. }) if attempt < 20 => {}
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                }
            });
        }
    });
    check_accounts(&store);
    for image in store.images().expect("readable") {
        for tag in &image.tags {
            assert_eq!(
                store.resolve(&tag.as_str().into()).expect("resolves").map(|found| found.id).as_ref(),
                Some(&image.id),
                "{tag}"
            );
        }
        store.remove_image(&image.id).expect("removes");
    }
    check_accounts(&store);
    assert_eq!(store.totals().expect("readable"), imagelet_store::Totals::default());
}

#[test]
fn many_commits_of_one_image_at_once_are_one_image() {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    let image = Image::new("one", &[plain_layer("a", b"aaa"), plain_layer("b", b"bbb")]);
    let start = Barrier::new(6);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (store, image, start) = (&store, &image, &start);
            scope.spawn(move || {
                let lease = store.lease();
                let layers = image.sources(store, &lease);
                start.wait();
                let tag = format!("docker.io/library/image:{thread}");
                store.commit_image(&lease, ImageCommit { layers, ..image.commit(Some(&tag)) }).expect("commits");
            });
        }
    });
    let images = store.images().expect("readable");
    assert_eq!((images.len(), images[0].tags.len()), (1, 6));
    check_accounts(&store);
}

#[test]
fn removing_one_image_many_times_at_once_frees_it_once() {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    let image = Image::new("one", &[plain_layer("a", &[1; 10_000])]);
    let record = image.pull(&store, "docker.io/library/a:1");
    let start = Barrier::new(5);
    let freed: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let freed = store.remove_image(&record.id).expect("removes").freed_bytes;
                    assert!(store.image(&record.id).expect("readable").is_none(), "gone as soon as any returns");
                    freed
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let documents = (image.config.len() + image.manifest.len()) as u64;
    assert_eq!(freed, record.size - documents);
    check_accounts(&store);
}
