//! Tests of the judge of commit messages: a table of messages, and real repositories with and without tags, history and git.

use std::fs;

use super::*;

#[test]
fn messages_are_judged_by_subject_and_body() {
    let long = format!("store: add {}", "x".repeat(LONGEST_SUBJECT - "store: add ".len()));
    let too_long = format!("{long}x");
    for (subject, faults) in [
        ("store: delete shared files and EROFS layers on several devices", 0),
        ("image-service, store: share work by digest", 0),
        ("product tests: wait for the event", 0),
        ("ARCHITECTURE: describe one pull", 0),
        ("Pass the documents of an image as bytes", 0),
        ("Revert \"store: delete shared files\"", 0),
        ("docs: explain the port: what is counted", 0),
        (&long, 0),
        (&too_long, 1),
        ("store: deletes shared files", 1),
        ("store: deleted shared files", 1),
        ("store: shared files", 1),
        ("docs: the index says what is true", 1),
        ("tests: a released fault cannot hang", 1),
        ("store: delete shared files.", 1),
        ("wip", 1),
        ("WIP: add a store", 1),
        ("fixup! store: delete shared files", 1),
        ("store: wip", 1),
        ("store:", 1),
        ("", 1),
    ] {
        let found = judge(&format!("{subject}\n\nThe reason.\n"));
        assert_eq!(found.len(), faults, "{subject:?}: {found:?}");
    }
    for (rest, fault) in [
        ("\n\nThe reason.\n", None),
        ("\n\nThe reason.\n\nSigned-off-by: A <a@b.example>\n", None),
        ("\n\nThe rule: nothing is lost.\n", None),
        ("", Some("the message has no body that gives the reason")),
        ("\n", Some("the message has no body that gives the reason")),
        ("\n\nSigned-off-by: A <a@b.example>\n", Some("the message has no body that gives the reason")),
        ("\nThe reason.\n\nMore.\n", Some("the second line is not blank")),
    ] {
        let found = judge(&format!("store: add a table{rest}"));
        assert_eq!(found, fault.into_iter().collect::<Vec<_>>(), "{rest:?}");
    }
}

#[test]
fn verbs_are_sorted_and_in_lower_case() {
    let verbs: Vec<&str> = VERBS.split(' ').collect();
    let mut sorted = verbs.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(verbs, sorted);
    assert!(verbs.iter().all(|verb| !verb.is_empty() && verb.chars().all(|c| c.is_ascii_lowercase())), "{verbs:?}");
}

#[test]
fn commits_since_the_base_or_the_last_tag_are_judged() {
    let repository = Repository::new();
    let old = repository.commit("old words\n");
    let base = repository.commit("more old words\n");
    repository.commit("store: add a table\n\nIt is needed.\n");
    assert_eq!(repository.judge(&base), Ok((0, format!("1 commits since {base}"))));

    let bad = repository.commit("a table\n");
    let found = judge_repository(repository.path(), &base).expect("a report");
    assert_eq!(found.failures.len(), 2, "subject and body: {found:?}");
    assert!(
        found.failures.iter().all(|failure| bad.starts_with(failure.split(' ').next().expect("an id"))),
        "{found:?}"
    );

    // A tag ends what is judged; one before the base, or one that is no version, does not begin it.
    repository.git(&["tag", "v0.0.1", &old]);
    repository.git(&["tag", "nightly"]);
    assert_eq!(repository.judge(&base), Ok((2, "2 commits since v0.0.1".to_owned())));
    repository.git(&["tag", "v0.1.0"]);
    assert_eq!(repository.judge(&base), Ok((0, "0 commits since v0.1.0".to_owned())));
    // With a tag, the base may be missing.
    assert_eq!(repository.judge(MISSING), Ok((0, "0 commits since v0.1.0".to_owned())));
    repository.commit("more\n\nA reason.\n");
    assert_eq!(repository.judge(&base), Ok((1, "1 commits since v0.1.0".to_owned())));
}

#[test]
fn merges_are_exempt_and_their_commits_are_judged() {
    let repository = Repository::new();
    let base = repository.commit("old words\n");
    repository.git(&["checkout", "-q", "-b", "topic"]);
    repository.commit("the topic\n\nA reason.\n");
    repository.git(&["checkout", "-q", "main"]);
    repository.git(&["merge", "-q", "--no-ff", "-m", "the merge of a topic", "topic"]);
    assert_eq!(repository.judge(&base), Ok((1, format!("1 commits since {base}"))));
}

#[test]
fn a_repository_without_its_history_is_named() {
    let repository = Repository::new();
    let base = repository.commit("old words\n");
    let report = judge_repository(repository.path(), MISSING).expect("a copy of a tree");
    assert!(report.failures.is_empty() && report.warnings[0].contains("one commit"), "{report:?}");

    repository.commit("new words\n");
    let error = repository.judge(MISSING).expect_err("no base and no tag");
    assert!(error.contains(MISSING) && error.contains("history"), "{error}");

    let clones = tempfile::tempdir().expect("a directory");
    let (full, shallow) = (clones.path().join("full"), clones.path().join("shallow"));
    let url = format!("file://{}", repository.path().display());
    repository.git(&["clone", "-q", &url, &full.display().to_string()]);
    repository.git(&["clone", "-q", "--depth", "1", &url, &shallow.display().to_string()]);
    let report = judge_repository(&full, &base).expect("a clone");
    assert_eq!((report.failures.len(), report.warnings.len()), (2, 0), "{report:?}");
    let report = judge_repository(&shallow, &base).expect("a shallow clone");
    assert!(report.failures.is_empty() && report.warnings[0].contains("git fetch --unshallow"), "{report:?}");

    let exported = tempfile::tempdir().expect("a directory");
    let report = judge_repository(exported.path(), &base).expect("a tree without git");
    assert!(report.failures.is_empty() && report.warnings[0].contains("not a git repository"), "{report:?}");
}

/// An id that no commit has.
const MISSING: &str = "1111111111111111111111111111111111111111";

/// A repository in a directory of its own.
struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().expect("a directory"));
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn git(&self, args: &[&str]) -> String {
        let git = Git { root: self.path() };
        let of_a_test = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgSign=false"];
        git.text(&[&of_a_test, args].concat()).expect("git")
    }

    /// Makes a commit with this message, word by word, and returns its id.
    fn commit(&self, message: &str) -> String {
        let file = self.path().join(".git/message");
        fs::write(&file, message).expect("a message");
        self.git(&["commit", "-q", "--allow-empty", "--cleanup=verbatim", "-F", &file.display().to_string()]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Returns the number of faults and the report's summary.
    fn judge(&self, base: &str) -> Result<(usize, String), String> {
        let report = judge_repository(self.path(), base).map_err(|e| format!("{e:#}"))?;
        assert!(report.warnings.is_empty(), "{report:?}");
        Ok((report.failures.len(), report.seen))
    }
}
