//! Tests of [`super::get`], with real helpers: scripts on a search path.

use super::*;
use crate::test_support::{alive, script, until, watchdog};

struct Helpers {
    directory: tempfile::TempDir,
    options: HelperOptions,
}

impl Helpers {
    fn with(name: &str, body: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        script(directory.path(), name, body);
        let options = HelperOptions {
            path: Some(directory.path().into()),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("DIR".into(), directory.path().into())],
            timeout: Duration::from_secs(60),
        };
        Self { directory, options }
    }

    async fn get(&self) -> Result<Option<RegistryAuth>, HelperError> {
        get("test", "https://r.example/v1/", &self.options).await
    }
}

const NAME: &str = "docker-credential-test";

#[tokio::test]
async fn answers() {
    let identity = RegistryAuth { identity_token: Secret::new("tok"), ..RegistryAuth::default() };
    let cases = [
        (
            "a password",
            r#"{"ServerURL":"x","Username":"ada","Secret":"swordfish"}"#,
            Some(RegistryAuth::basic("ada", "swordfish")),
        ),
        ("small letters", r#"{"username":"ada","secret":"swordfish"}"#, Some(RegistryAuth::basic("ada", "swordfish"))),
        ("an identity token", r#"{"Username":"<token>","Secret":"tok"}"#, Some(identity)),
        ("more fields", r#"{"Username":"a","Secret":"b","Expires":1}"#, Some(RegistryAuth::basic("a", "b"))),
        ("nothing in it", r#"{"ServerURL":"","Username":"","Secret":""}"#, None),
    ];
    for (name, answer, want) in cases {
        let got = Helpers::with(NAME, &format!("cat <<'END'\n{answer}\nEND")).get().await;
        assert_eq!(got.expect(name), want, "{name}");
    }
}

#[tokio::test]
async fn helper_is_called_as_docker_does() {
    let helpers = Helpers::with(NAME, "echo \"$*\" >$DIR/arguments; cat >$DIR/input; echo '{}'");
    assert_eq!(helpers.get().await.expect("answers"), None);
    let read = |name| std::fs::read_to_string(helpers.directory.path().join(name)).expect("written");
    assert_eq!(read("arguments"), "get\n");
    assert_eq!(read("input"), "https://r.example/v1/");
}

#[tokio::test]
async fn nothing_found_is_no_error() {
    let got = Helpers::with(NAME, "echo 'credentials not found in native keychain'; exit 1").get().await;
    assert_eq!(got.expect("no error"), None);
}

#[tokio::test]
async fn failures_quote_no_answer() {
    let answer = r#"{"Username":"ada","Secret":"swordfish"}"#;
    let cases = [
        ("garbage", "echo swordfish".to_owned(), "its answer is not the JSON that helpers print"),
        ("nothing", "".to_owned(), "its answer is not the JSON that helpers print"),
        ("a list", "echo '[\"swordfish\"]'".to_owned(), "its answer is not the JSON that helpers print"),
        ("a wrong type", "echo '{\"Secret\": 5}'".to_owned(), "its answer is not the JSON that helpers print"),
        ("an exit code", "exit 7".to_owned(), "exit status 7"),
        ("a saying", "echo no credentials username; exit 1".to_owned(), "exit status 1: no credentials username"),
        ("unknown words", "echo swordfish; echo locked >&2; exit 1".to_owned(), "exit status 1: locked"),
        ("both", format!("echo '{answer}'; echo 'swordfish refused' >&2; exit 2"), "exit status 2: <hidden> refused"),
        ("a signal", "kill -TERM $$".to_owned(), "signal 15"),
        (
            "endless output",
            "while :; do echo swordfishswordfishswordfishswordfish; done".to_owned(),
            "printed more than 1048576 bytes and was killed",
        ),
    ];
    for (name, body, want) in cases {
        let error = Helpers::with(NAME, &body).get().await.expect_err(name).to_string();
        assert_eq!(error, want, "{name}");
    }
}

#[tokio::test]
async fn hanging_program_is_killed_with_its_children() {
    let mut helpers = Helpers::with(NAME, "sleep 1000 & echo $! >$DIR/child; wait");
    helpers.options.timeout = Duration::from_secs(2);
    let error = watchdog(helpers.get()).await.expect_err("hangs");
    assert_eq!(error.to_string(), "timed out after 2s and was killed");
    let child = std::fs::read_to_string(helpers.directory.path().join("child")).expect("written");
    let child = child.trim().parse().expect("a number");
    until(|| !alive(child)).await;
}

#[tokio::test]
async fn helper_programs_are_found_on_the_path() {
    let helpers = Helpers::with(NAME, "echo '{}'");
    for name in ["", "a/b", "../test", "a\0b"] {
        let error = get(name, "s", &helpers.options).await.expect_err(name);
        assert!(error.to_string().ends_with("this is not the name of a helper"), "{error}");
    }
    let missing = "it is not in any directory of PATH, or may not be executed";
    let error = get("other", "s", &helpers.options).await.expect_err("missing");
    assert_eq!(error.to_string(), missing);

    let mut options = helpers.options.clone();
    options.path = None;
    let error = get("test", "s", &options).await.expect_err("no PATH");
    assert!(error.to_string().ends_with("there is no PATH to search it in"), "{error}");

    // The first that may be executed; nothing relative.
    let empty = tempfile::tempdir().expect("a directory");
    std::fs::write(empty.path().join(NAME), "").expect("written");
    let path = format!(".::{}:{}", empty.path().display(), helpers.directory.path().display());
    options.path = Some(path.into());
    assert_eq!(get("test", "s", &options).await.expect("found"), None);
}

#[test]
fn options_show_no_environment() {
    let options = HelperOptions { environment: vec![("A".into(), "swordfish".into())], ..HelperOptions::default() };
    assert!(!format!("{options:?}").contains("swordfish"));
    assert_eq!(options.timeout, Duration::from_secs(30));
}
