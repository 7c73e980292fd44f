//! Node files: the search, and that a change is seen at once. On a real directory.

use super::*;

struct Node {
    dir: tempfile::TempDir,
    now: Arc<Mutex<Instant>>,
}

const LIFETIME: Duration = Duration::from_secs(300);

impl Node {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory"), now: Arc::new(Mutex::new(Instant::now())) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().expect("has one")).expect("a directory");
        fs::write(self.path(name), text).expect("written");
    }

    fn json(&self, dir: &str, user: &str) {
        self.write(&format!("{dir}/config.json"), &format!(r#"{{"auths": {}}}"#, legacy(user)));
    }

    fn configs(&self) -> NodeConfigs {
        let files = NodeFiles {
            search: vec![self.path("preferred"), self.path("ada/.docker")],
            legacy: vec![self.path("preferred"), self.path("ada")],
            ..NodeFiles::default()
        };
        let now = self.now.clone();
        NodeConfigs::new(&files, PathMatch::Segments, LIFETIME, Arc::new(move || *now.lock()))
    }

    fn pass(&self, time: Duration) {
        *self.now.lock() += time;
    }
}

fn legacy(user: &str) -> String {
    format!(r#"{{"http://foo.example.com": {{"username": "{user}", "password": "swordfish"}}}}"#)
}

fn user(config: &NodeConfig) -> Option<&str> {
    config.files.first()?.index.lookup("foo.example.com/a").first().map(|entry| entry.auth.username.as_str())
}

// upstream: credentialprovider/TestReadDockerConfigFile
#[tokio::test]
async fn the_first_file_that_can_be_read_wins() {
    let node = Node::new();
    let configs = node.configs();
    assert_eq!(user(&*configs.get().await), None);
    let steps: [(&str, &str); 4] =
        [("ada/.dockercfg", "d"), ("preferred/.dockercfg", "c"), ("ada/.docker", "b"), ("preferred", "a")];
    for (place, name) in steps {
        match place.ends_with(".dockercfg") {
            true => node.write(place, &legacy(name)),
            false => node.json(place, name),
        }
        let config = configs.get().await;
        assert_eq!(user(&config), Some(name), "{place}");
        assert!(config.files[0].path.starts_with(node.path(place)), "{}", config.files[0].path.display());
        assert_eq!(config.notes, []);
    }
    fs::remove_file(node.path("preferred/config.json")).expect("there");
    assert_eq!(user(&*configs.get().await), Some("b"));
}

#[tokio::test]
async fn unreadable_files_are_skipped_with_a_note() {
    let node = Node::new();
    node.write("preferred/config.json", r#"{"auths": {"a": "swordfish"}}"#);
    fs::create_dir_all(node.path("ada/.docker/config.json")).expect("a directory");
    fs::File::create(node.path("preferred/.dockercfg")).and_then(|f| f.set_len(MAX_FILE + 1)).expect("a hole");
    node.write("ada/.dockercfg", &legacy("d"));
    let config = node.configs().get().await;
    assert_eq!(user(&config), Some("d"));
    let notes: Vec<String> =
        config.notes.iter().map(|note| note.text.replace(node.dir.path().to_str().expect("text"), "")).collect();
    assert_eq!(
        notes,
        [
            "file /preferred/config.json is skipped: error occurred while trying to unmarshal json: a value of the \
             wrong type in line 1, column 27",
            "file /ada/.docker/config.json is skipped: it is not a regular file",
            "file /preferred/.dockercfg is skipped: it is larger than 16777216 bytes",
        ]
    );
}

#[tokio::test]
async fn changes_within_one_clock_tick_are_detected() {
    let node = Node::new();
    let configs = node.configs();
    for round in 0..200 {
        // The same length, in the same file: only the content differs while the clock does not advance.
        let name = format!("u{:03}", round);
        node.json("preferred", &name);
        assert_eq!(user(&*configs.get().await), Some(name.as_str()));
    }
}

// upstream: credentialprovider/TestCachingProvider
#[tokio::test]
async fn unchanged_file_is_read_once() {
    let node = Node::new();
    node.json("preferred", "a");
    let configs = node.configs();
    let first = configs.get().await;
    node.pass(CLOCK_TICK);
    let settled = configs.get().await;
    assert!(!Arc::ptr_eq(&first, &settled), "read so soon after it was written, it is read once more");
    for _ in 0..5 {
        node.pass(LIFETIME / 6);
        assert!(Arc::ptr_eq(&settled, &configs.get().await));
    }
    node.pass(LIFETIME / 6);
    let again = configs.get().await;
    assert!(!Arc::ptr_eq(&settled, &again));
    assert!(Arc::ptr_eq(&again, &configs.get().await));
    assert_eq!(again.generation, first.generation, "nothing has changed");
    node.json("preferred", "ab");
    assert_eq!(configs.get().await.generation, first.generation + 1);
}

#[tokio::test]
async fn absence_of_files_is_cached() {
    let node = Node::new();
    let configs = node.configs();
    let none = configs.get().await;
    assert!(Arc::ptr_eq(&none, &configs.get().await));
    let nothing = NodeConfigs::new(&NodeFiles::default(), PathMatch::Segments, LIFETIME, Arc::new(Instant::now));
    let none = nothing.get().await;
    assert!(Arc::ptr_eq(&none, &nothing.get().await));
}

#[test]
fn the_kubelets_search_paths() {
    let files = NodeFiles::standard(Path::new("/var/lib/imagelet"), Path::new("/work"), Some(Path::new("/users/ada")));
    let paths = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
    assert_eq!(paths(&files.search), ["/var/lib/imagelet", "/work", "/users/ada/.docker", "/.docker"]);
    assert_eq!(paths(&files.legacy), ["/var/lib/imagelet", "/work", "/users/ada/", "/"]);
    assert_eq!(NodeFiles::standard(Path::new("/a"), Path::new("/b"), None).search.len(), 3);
}

#[tokio::test]
async fn search_path_may_be_a_file() {
    let node = Node::new();
    node.write("named.json", &format!(r#"{{"auths": {}}}"#, legacy("named")));
    node.json("directory", "within");
    node.write("old/.dockercfg", &legacy("old"));
    let users = async |paths: &[&str], every: bool| {
        let paths = paths.iter().map(|name| node.path(name)).collect();
        let files = NodeFiles { paths, every, ..NodeFiles::default() };
        let configs = NodeConfigs::new(&files, PathMatch::Segments, LIFETIME, Arc::new(Instant::now));
        let config = configs.get().await;
        assert_eq!(config.notes, []);
        let user = |file: &NodeFile| file.index.lookup("foo.example.com/a")[0].auth.username.clone();
        config.files.iter().map(user).collect::<Vec<_>>().join(" ")
    };
    let all = ["absent", "named.json", "directory", "old/.dockercfg", "named.json"];
    assert_eq!(users(&all[..1], true).await, "");
    assert_eq!(users(&all, false).await, "named");
    assert_eq!(users(&all[2..], false).await, "within");
    assert_eq!(users(&all, true).await, "named within old");
}
