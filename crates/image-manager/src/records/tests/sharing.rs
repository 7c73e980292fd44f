//! Several processes on one directory. Two openings of it are as good as two processes: they share nothing in memory,
//! and their locks shut each other out.

use super::*;

#[tokio::test]
async fn what_one_writes_the_other_sees_at_once() {
    let node = Node::new();
    // Two processes, of which only one syncs to disk.
    let unsynced = RecordsOptions { durable: false, ..node.options() };
    let (agent, command) = (node.open().await, PullRecords::open(unsynced).await.unwrap());
    let pod = [secret("uid", "ns", "name", "hash")];
    for i in 0..40 {
        let image_ref = format!("id{i}");
        // Fills the agent's memory with the state before, also with what is not there.
        assert_eq!(agent.may(LATEST, &image_ref, &[]).await, PRELOADED, "{i}");
        let intent = command.intend(LATEST).await.unwrap();
        assert_eq!(agent.may(LATEST, &image_ref, &[]).await, NO_RECORD, "{i}: it may just have appeared");
        intent.pulled(&image_ref, Some(&pod[0])).await.unwrap();
        assert_eq!(agent.may(LATEST, &image_ref, &[]).await, OTHERS_ONLY, "{i}");
        assert_eq!(agent.may(LATEST, &image_ref, &pod).await, GRANTED, "{i}");
        command.add(LATEST, &image_ref, None).await.unwrap();
        assert_eq!(agent.may(LATEST, &image_ref, &[]).await, FOR_ALL, "{i}");
        command.prune(&BTreeSet::new(), Timestamp::from_second(NOW + 1).unwrap()).await.unwrap();
        assert_eq!(agent.may(LATEST, &image_ref, &[]).await, PRELOADED, "{i}: it is gone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_that_many_write_hold_everything() {
    let node = Node::new();
    let processes = [node.open().await, node.open().await, node.open().await];
    let tasks: Vec<_> = (0..60)
        .map(|i| {
            let records = processes[i % 3].clone();
            let used = secret(&format!("uid{i:02}"), "ns", &format!("name{i:02}"), &format!("hash{i}"));
            async move { records.add(LATEST, "id", Some(&used)).await }
        })
        .collect();
    let mut set = tokio::task::JoinSet::new();
    for task in tasks {
        set.spawn(task);
    }
    while let Some(result) = set.join_next().await {
        result.unwrap().unwrap();
    }
    let secrets = &node.record("id").mapping[TEST].secrets;
    let uids: Vec<String> = secrets.iter().map(|secret| secret.uid.clone()).collect();
    let want: Vec<String> = (0..60).map(|i| format!("uid{i:02}")).collect();
    assert_eq!(uids, want);
    assert_eq!(node.files("pulled").len(), 1, "no draft is left");
}

#[tokio::test]
async fn the_last_process_takes_the_intent_away() {
    let node = Node::new();
    let (agent, command) = (node.open().await, node.open().await);
    let first = agent.intend(LATEST).await.unwrap();
    let second = command.intend(LATEST).await.unwrap();
    first.failed().await;
    assert_eq!(node.files("pulling"), names(&[LATEST]), "the other one is at it");
    second.failed().await;
    assert_eq!(node.files("pulling"), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_image_that_is_pulled_is_never_free() {
    let node = Node::new();
    let (agent, command) = (node.open().await, node.open().await);
    let pod = secret("uid", "ns", "name", "hash");
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // The agent checks all the time while the command pulls image after image.
    let intent = command.intend("docker.io/testing/test:0").await.unwrap();
    let current = Arc::new(AtomicI64::new(0));
    let looking = {
        let (done, current) = (Arc::clone(&done), Arc::clone(&current));
        let task = async move {
            let mut looks = 0_u64;
            while !done.load(Ordering::Acquire) {
                let i = current.load(Ordering::Acquire);
                let answer = agent.may(&format!("docker.io/testing/test:{i}"), &format!("id{i}"), &[]).await;
                assert!(matches!(answer, Access::MustVerify(_)), "{i}: {answer:?}");
                looks += 1;
                tokio::task::yield_now().await;
            }
            looks
        };
        let mut set = tokio::task::JoinSet::new();
        set.spawn(task);
        set
    };
    let mut intent = intent;
    for i in 0..100 {
        let next = command.intend(&format!("docker.io/testing/test:{}", i + 1)).await.unwrap();
        intent.pulled(&format!("id{i}"), Some(&pod)).await.unwrap();
        current.store(i + 1, Ordering::Release);
        intent = next;
    }
    done.store(true, Ordering::Release);
    let looks = looking.join_all().await;
    assert!(looks[0] > 0);
    intent.failed().await;
}

#[tokio::test]
async fn a_draft_in_use_is_left_to_its_owner() {
    let node = Node::new();
    let directory = files::Directory::open(node.directory().join("pulled")).unwrap();
    let draft = directory.draft(&file_name("id"), &encode_record(&testimageref())).unwrap();
    drop(node.open().await);
    assert_eq!(node.files("pulled").len(), 1, "it is still there");
    let lock = directory.lock().unwrap();
    assert!(draft.place(&file_name("id")).unwrap().is_some());
    drop(lock);
    assert_eq!(node.files("pulled"), names(&["id"]));
}
