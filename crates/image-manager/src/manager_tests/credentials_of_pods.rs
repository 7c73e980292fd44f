//! Tests of the credentials that are tried, of the notes about the others, and that no output holds a secret.

use cri_api::{Error, Kind, Reason};
use oci::RegistryAuth;

use super::*;

fn auth(user: &str) -> RegistryAuth {
    RegistryAuth::basic(user, format!("{user}-password"))
}

fn users(rig: &Rig) -> Vec<Option<String>> {
    let user = |call| match call {
        Call::PullImage(_, user) => Some(user),
        _ => None,
    };
    rig.fake.calls().into_iter().filter_map(user).collect()
}

#[tokio::test]
async fn credentials_are_tried_in_order_until_one_works() {
    let rig = Rig::with_keyring(SERIAL);
    rig.fake.require_auth("missing_image", auth("grace"));
    let mut asked = request("missing_image", PullPolicy::IfNotPresent);
    asked.secrets = vec![secret("a", "ada"), secret("b", "grace"), secret("c", "rex")];
    let image = rig.ensure(asked).await.expect("the second one may");
    assert_eq!(image.credential.map(|source| source.to_string()).as_deref(), Some("secret default/b"));
    assert_eq!(users(&rig), [Some("ada".to_owned()), Some("grace".to_owned())]);
}

// upstream: kuberuntime/TestPullImageWithError
// upstream: kuberuntime/TestPullWithSecretsWithError/secret provided, pull failed
#[tokio::test]
async fn every_cause_is_reported_with_its_source_and_no_secret() {
    let rig = Rig::with_keyring(SERIAL);
    rig.fake.require_auth("missing_image", RegistryAuth::basic("owner", "s3cret"));
    let mut asked = request("missing_image", PullPolicy::Always);
    asked.secrets = vec![secret("a", "ada"), secret("b", "grace")];
    let shown = format!("{asked:?}");
    let error = rig.ensure(asked).await.expect_err("no credential is accepted");
    assert_eq!(error.reason(), "ErrImagePull");
    assert_eq!(
        error.message(),
        "[secret default/a: pull docker.io/library/missing_image:latest: access denied, \
         secret default/b: pull docker.io/library/missing_image:latest: access denied]"
    );
    assert_eq!(rig.messages()[1], format!("Failed to pull image \"missing_image\": {}", error.message()));
    assert_eq!((error.kind(), error.cause()), (Some(Kind::PermissionDenied), Some(crate::Cause::Unauthenticated)));
    for text in
        [shown, format!("{error:?}"), format!("{:?}", rig.ring.events()), format!("{:?}", rig.manager.backoff())]
    {
        assert!(!text.contains("-password") && !text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn one_of_several_causes_keeps_its_name() {
    let rig = Rig::with_keyring(SERIAL);
    rig.fake.require_auth("missing_image", auth("owner"));
    let down = Error::new(Kind::Unavailable, "down").with_reason(Reason::RegistryUnavailable);
    rig.fake.faults().fail_times(CallKind::PullImage, 1, down);
    let mut asked = request("missing_image", PullPolicy::Always);
    asked.secrets = vec![secret("a", "ada"), secret("b", "grace")];
    let error = rig.ensure(asked).await.expect_err("no credential is accepted");
    assert_eq!(error.reason(), "RegistryUnavailable");
    assert_eq!(
        error.message(),
        "image pull failed for missing_image because the registry is unavailable: [secret default/a: \
         RegistryUnavailable: down, secret default/b: pull docker.io/library/missing_image:latest: access denied]"
    );
    assert_eq!(error.cause(), Some(crate::Cause::Unavailable));
}

#[tokio::test]
async fn missing_secrets_are_reported_for_the_pod_before_the_pull() {
    let rig = Rig::with_keyring(SERIAL);
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Never] {
        let mut asked = request("present_image", policy);
        asked.missing_secrets = vec!["a".into(), "b".into()];
        rig.ensure(asked).await.expect("present");
    }
    assert_eq!(rig.reasons(), ["Pulled", "Pulled"], "the secrets are not needed");
    let mut asked = request("present_image", PullPolicy::Always);
    asked.missing_secrets = vec!["a".into(), "b".into()];
    rig.ensure(asked).await.expect("public");
    let told = &rig.ring.events()[2].event;
    assert_eq!((told.reason, told.kind), ("FailedToRetrieveImagePullSecret", EventType::Warning));
    assert_eq!(told.object.field_path, "", "about the pod");
    assert_eq!(
        told.message,
        "Unable to retrieve some image pull secrets (a, b); attempting to pull the image may not succeed."
    );
    assert_eq!(rig.reasons()[3..], ["Pulling", "Pulled"]);
}

#[tokio::test]
async fn a_secret_of_a_wrong_type_is_named_where_a_pull_fails() {
    let rig = Rig::with_keyring(SERIAL);
    rig.fake.require_auth("missing_image", auth("owner"));
    let mut asked = request("missing_image", PullPolicy::IfNotPresent);
    asked.secrets = vec![PullSecret { kind: "Opaque".into(), ..secret("a", "owner") }];
    let error = rig.ensure(asked).await.expect_err("the credential is not used");
    let want = "pull docker.io/library/missing_image:latest: authentication required (secret default/a is of type \
                Opaque and cannot be a pull secret";
    assert!(error.message().starts_with(want), "{}", error.message());
    assert_eq!(users(&rig), [None]);
}

// upstream: kuberuntime/TestPullWithSecretsWithError/invalid docker secret
#[tokio::test]
async fn a_secret_that_cannot_be_read_fails_the_request_before_the_pull() {
    let rig = Rig::with_keyring(SERIAL);
    let broken = [(".dockerconfigjson".to_owned(), oci::Secret::new("{\"auths\": pa55"))].into();
    let mut asked = request("missing_image", PullPolicy::IfNotPresent);
    asked.secrets = vec![PullSecret { data: broken, ..secret("a", "ada") }];
    for _ in 0..3 {
        let error = rig.ensure(asked.clone()).await.expect_err("broken");
        assert_eq!(error.reason(), "ErrImagePull");
        assert!(error.message().starts_with("cannot read pull secret default/a: "), "{}", error.message());
        assert!(!error.message().contains("pa55"), "{}", error.message());
    }
    assert_eq!(rig.fake.call_kinds(), [CallKind::ImageStatus; 3], "no pull, and so no back-off");
    assert_eq!(rig.reasons(), Vec::<&str>::new(), "as in the kubelet, the caller records the event");
    // A request that needs no credential succeeds.
    asked.image = "present_image".into();
    rig.ensure(asked).await.expect("present");
}

/// The node's docker configuration has this credential, the pod that one; which does the runtime get?
#[tokio::test]
async fn pull_with_secrets() {
    let index = "index.docker.io/v1/";
    let default = Some((index, "built-in"));
    let passed = |kind: &str, key: &str, content: &str| PullSecret {
        kind: kind.into(),
        data: [(key.to_owned(), oci::Secret::new(content))].into(),
        ..secret("passed", "unknown")
    };
    let entry = r#"{"index.docker.io/v1/":{"email":"e","auth":"cGFzc2VkLXVzZXI6cGFzc2VkLXBhc3N3b3Jk"}}"#;
    let old = passed("kubernetes.io/dockercfg", ".dockercfg", entry);
    let new = passed("kubernetes.io/dockerconfigjson", ".dockerconfigjson", &format!(r#"{{"auths":{entry}}}"#));
    let cases = [
        ("upstream: kuberuntime/TestPullWithSecrets/no matching secrets", None, vec![], None),
        ("upstream: kuberuntime/TestPullWithSecrets/default keyring secrets", default, vec![], Some("built-in")),
        (
            "upstream: kuberuntime/TestPullWithSecrets/default keyring secrets unused",
            Some(("extraneous", "built-in")),
            vec![],
            None,
        ),
        (
            "upstream: kuberuntime/TestPullWithSecrets/builtin keyring secrets, but use passed",
            default,
            vec![old],
            Some("passed-user"),
        ),
        (
            "upstream: kuberuntime/TestPullWithSecrets/builtin keyring secrets, but use passed with new docker config",
            default,
            vec![new],
            Some("passed-user"),
        ),
    ];
    for (case, node, secrets, want) in cases {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut options = KeyringOptions::default();
        if let Some((location, user)) = node {
            let text = format!(r#"{{"auths":{{"{location}":{{"username":"{user}","password":"p"}}}}}}"#);
            std::fs::write(directory.path().join("config.json"), text).expect("written");
            options.node_files.search.push(directory.path().to_owned());
        }
        let keyring = Some(Arc::new(Keyring::new(options)));
        let rig = Rig::with(Options { puller: SERIAL, keyring, ..Options::default() });
        let mut asked = request("present_image", PullPolicy::Always);
        asked.secrets = secrets;
        rig.ensure(asked).await.expect("public");
        assert_eq!(users(&rig), [want.map(str::to_owned)], "{case}");
    }
}
