//! Credentials of a request, and those in a file of docker.

use base64::Engine as _;
use imagelet_engine::{Credential, DockerConfig, ErrorKind, PullRequest};
use registry::testing::{Auth, Options, TokenAuth};

use crate::support::{Node, app};

async fn private(auth: Auth) -> Node {
    Node::with(Options { auth: Some(auth), ..Options::default() }).await
}

fn basic() -> Auth {
    Auth::Basic { user: "ada".to_owned(), password: "swordfish".to_owned() }
}

#[tokio::test]
async fn a_private_image_needs_the_right_credential() {
    for auth in [basic(), Auth::Token(TokenAuth::user("ada", "swordfish"))] {
        let node = private(auth).await;
        let image = node.push("app:v1", &app());
        for wrong in [Credential::default(), Credential::basic("ada", "marlin")] {
            let error = node.engine.pull(PullRequest::new(image.clone()).with_credential(wrong)).await;
            let error = error.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
            assert!(!error.to_string().contains("marlin"), "{error}");
        }
        let request = PullRequest::new(image).with_credential(Credential::basic("ada", "swordfish"));
        node.engine.pull(request).await.expect("pulls");
    }
}

#[tokio::test]
async fn tokens_are_credentials() {
    let mut tokens = TokenAuth::user("ada", "swordfish");
    tokens.identity_token = Some("refresh".to_owned());
    tokens.registry_token = Some("bearer".to_owned());
    let node = private(Auth::Token(tokens)).await;
    let image = node.push("app:v1", &app());
    for credential in [Credential::identity_token("refresh"), Credential::bearer("bearer")] {
        node.engine.pull(PullRequest::new(image.clone()).with_credential(credential)).await.expect("pulls");
    }
    let wrong = PullRequest::new(image).with_credential(Credential::bearer("other"));
    assert_eq!(node.engine.pull(wrong).await.expect_err("refused").kind(), ErrorKind::Unauthorized);
}

#[tokio::test]
async fn a_file_of_docker_has_the_credential_of_a_registry() {
    let node = private(basic()).await;
    let image = node.push("app:v1", &app());
    let path = node.directory.path().join("config.json");
    let config = DockerConfig::new(&path);
    assert_eq!(config.credential(&image).await, Ok(Credential::default()), "there is no file");

    let auth = base64::engine::general_purpose::STANDARD.encode("ada:swordfish");
    let text = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, node.registry.host());
    std::fs::write(&path, text).expect("writes");
    let credential = DockerConfig::new(&path).credential(&image).await.expect("reads");
    node.engine.pull(PullRequest::new(image).with_credential(credential)).await.expect("pulls");
    let other = "other.example/app:1".parse().expect("a reference");
    let config = DockerConfig::new(node.directory.path());
    assert_eq!(config.credential(&other).await, Ok(Credential::default()), "of another registry");
}

#[tokio::test]
async fn a_broken_file_and_a_missing_helper_are_errors() {
    let node = Node::start().await;
    let image = node.reference("app:v1");
    let path = node.directory.path().join("config.json");
    std::fs::write(&path, "{").expect("writes");
    let error = DockerConfig::new(&path).credential(&image).await.expect_err("broken");
    assert!(error.to_string().contains("config.json"), "{error}");

    std::fs::write(&path, r#"{"credsStore":"vault"}"#).expect("writes");
    let helpers = DockerConfig::new(&path).with_helpers(node.directory.path(), []);
    let error = helpers.credential(&image).await.expect_err("no such program");
    assert!(error.to_string().contains("vault"), "{error}");
}

#[test]
fn debug_output_contains_no_secret() {
    let request = PullRequest::new("app:1".parse().expect("a reference"));
    let request = request.with_credential(Credential::basic("ada", "swordfish"));
    let shown = format!("{request:?} {:?} {:?}", Credential::bearer("tuna"), Credential::identity_token("cod"));
    for secret in ["ada", "swordfish", "tuna", "cod"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
