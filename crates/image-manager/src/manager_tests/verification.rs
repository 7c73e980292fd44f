//! Access to images on the node: upstream's cases with an image pull manager, and that presence does not leak.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use credentials::exec::{ExecOptions, Providers, TokenError, TokenSource};
use credentials::{
    Candidate, Origin, PathMatch, Requester, SecretCoordinates, ServiceAccount, ServiceAccountCoordinates, Source,
    credential_hash,
};
use oci::{RegistryAuth, Secret};

use super::*;

const LOOK: &[CallKind] = &[CallKind::ImageStatus];
const LOOK_AND_PULL: &[CallKind] = &[CallKind::ImageStatus, CallKind::PullImage, CallKind::ImageStatus];

/// With what an image was pulled.
fn by_secret(name: &str, user: &str) -> Candidate {
    let auth = RegistryAuth::basic(user, format!("{user}-password"));
    let secret = SecretCoordinates {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-of-{name}"),
        origin: Origin::ApiServer,
    };
    Candidate { hash: credential_hash(&auth), auth, source: Source::Secret(secret) }
}

fn by_account(name: &str) -> Candidate {
    let auth = RegistryAuth::basic("token", "exec-password");
    let account = ServiceAccountCoordinates {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-of-account-{name}"),
    };
    let source = Source::ServiceAccount { provider: "provider".into(), account };
    Candidate { hash: credential_hash(&auth), auth, source }
}

fn account(name: &str) -> ServiceAccount {
    ServiceAccount {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-of-account-{name}"),
        ..ServiceAccount::default()
    }
}

struct Tokens;

impl TokenSource for Tokens {
    fn account<'a>(
        &'a self,
        account: &'a ServiceAccount,
    ) -> futures::future::BoxFuture<'a, Result<ServiceAccount, TokenError>> {
        Box::pin(std::future::ready(Ok(account.clone())))
    }

    fn token<'a>(
        &'a self,
        account: &'a ServiceAccount,
        _: &'a str,
        _: &'a Requester,
    ) -> futures::future::BoxFuture<'a, Result<Secret, TokenError>> {
        Box::pin(std::future::ready(Ok(Secret::new(format!("token of {}", account.name)))))
    }
}

/// A credential provider: a script that answers for every image of Docker Hub. Each run leaves a line in `runs`.
fn provider(directory: &Path, with_account: bool) -> Providers {
    let script = r#"#!/bin/sh
cat > /dev/null
echo run >> "$(dirname "$0")/runs"
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"docker.io":{"username":"token","password":"exec-password"}}}'
"#;
    let program = directory.join("provider");
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let mut provider = serde_json::json!({
        "name": "provider", "matchImages": ["docker.io"], "defaultCacheDuration": "0s",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
    });
    if with_account {
        let attributes = serde_json::json!({
            "serviceAccountTokenAudience": "registry", "cacheType": "ServiceAccount", "requireServiceAccount": true,
        });
        provider["tokenAttributes"] = attributes;
    }
    let config = serde_json::json!({
        "kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1", "providers": [provider],
    });
    let file = directory.join("config.json");
    std::fs::write(&file, config.to_string()).expect("written");
    let options = ExecOptions {
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        clock: Arc::new(tokio::time::Instant::now),
        yaml: Arc::new(|text| serde_json::from_str(text).map_err(|error| error.to_string())),
        tokens: Some(Arc::new(Tokens)),
        service_account_tokens: true,
        path_match: PathMatch::default(),
        timeout: Duration::from_secs(60),
    };
    Providers::load(&file, directory, options).expect("a good configuration")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plugin {
    None,
    Node,
    Account,
}

struct Case {
    name: &'static str,
    policy: PullPolicy,
    /// The record: under which name, and with which credential.
    recorded: Vec<(&'static str, Option<Candidate>)>,
    secrets: Vec<PullSecret>,
    account: Option<ServiceAccount>,
    plugin: Plugin,
    calls: &'static [CallKind],
    reason: Option<&'static str>,
    events: &'static [&'static str],
    counted: (&'static str, &'static str),
}

impl Case {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            policy: PullPolicy::IfNotPresent,
            recorded: Vec::new(),
            secrets: Vec::new(),
            account: None,
            plugin: Plugin::None,
            calls: LOOK,
            reason: None,
            events: &["Pulled"],
            counted: ("true", "false"),
        }
    }

    fn pulls(self) -> Self {
        Self { calls: LOOK_AND_PULL, events: &["Pulling", "Pulled"], counted: ("true", "true"), ..self }
    }

    fn refused(self) -> Self {
        Self {
            policy: PullPolicy::Never,
            reason: Some("ErrImageNeverPull"),
            events: &["ErrImageNeverPull"],
            counted: ("true", "true"),
            ..self
        }
    }
}

fn cases() -> Vec<Case> {
    let other_uid = PullSecret { uid: "another".into(), ..secret("a", "rex") };
    let one = || vec![("present_image", Some(by_secret("a", "ada")))];
    let by_the_account = || vec![("present_image", Some(by_account("builder")))];
    vec![
        Case {
            recorded: vec![("other_image", Some(by_secret("a", "ada")))],
            secrets: vec![secret("a", "ada")],
            ..Case::new("upstream: images/TestImagePullPrecheck/image present, unknown to image pull manager, pull").pulls()
        },
        Case {
            recorded: one(),
            secrets: vec![other_uid.clone()],
            ..Case::new(
                "upstream: images/TestImagePullPrecheck/image present, unknown secret to image pull manager, pull",
            )
            .pulls()
        },
        Case {
            recorded: one(),
            secrets: vec![other_uid],
            ..Case::new("upstream: images/TestImagePullPrecheck/image present, unknown secret to image pull manager, never pull policy -> fail")
                .refused()
        },
        Case {
            recorded: one(),
            secrets: vec![secret("x", "rex"), secret("a", "ada")],
            ..Case::new("upstream: images/TestImagePullPrecheck/image present, a secret matches one of known to the image pull manager, don't pull")
        },
        Case {
            recorded: by_the_account(),
            account: Some(account("builder")),
            plugin: Plugin::Account,
            ..Case::new("upstream: images/TestImagePullPrecheck/image present, service account credentials available, don't pull")
        },
        Case {
            recorded: vec![
                ("present_image", Some(by_account("builder"))),
                ("present_image", Some(by_account("deployer"))),
            ],
            account: Some(account("deployer")),
            plugin: Plugin::Account,
            ..Case::new("upstream: images/TestImagePullPrecheck/image present, service account allowed by pull manager, don't pull")
        },
        Case {
            recorded: one(),
            secrets: vec![secret("x", "rex")],
            account: Some(account("builder")),
            plugin: Plugin::Account,
            ..Case::new("upstream: images/TestImagePullPrecheck/image present, mixed credentials (secrets + service accounts), pull required")
                .pulls()
        },
        Case {
            recorded: vec![("present_image", None)],
            plugin: Plugin::Node,
            ..Case::new("upstream: images/TestImagePullPrecheck/image present, only node credentials (no source), proceed without tracking")
        },
        Case {
            recorded: by_the_account(),
            account: Some(account("builder")),
            plugin: Plugin::Account,
            ..Case::new("upstream: images/TestEnsureImageExistsWithServiceAccountCoordinates/credentials passed")
        },
        Case {
            recorded: by_the_account(),
            account: Some(ServiceAccount { uid: "another".into(), ..account("builder") }),
            plugin: Plugin::Account,
            ..Case::new("upstream: images/TestEnsureImageExistsWithServiceAccountCoordinates/credentials require a pull")
                .pulls()
        },
        Case {
            recorded: vec![("present_image", None)],
            ..Case::new("recorded without a credential, and the pod has none (not upstream)")
        },
    ]
}

async fn rig(case: &Case, directory: &Path) -> Rig {
    let providers = match case.plugin {
        Plugin::None => None,
        plugin => Some(provider(directory, plugin == Plugin::Account)),
    };
    let keyring = Some(Arc::new(Keyring::new(KeyringOptions { providers, ..KeyringOptions::default() })));
    let options = Options { puller: SERIAL, backoff: UPSTREAM, keyring, ..Options::default() };
    let rig = Rig::with_records(options, VerificationPolicy::AlwaysVerify).await;
    let records = rig.manager.records.clone().expect("they are kept");
    for (image, used) in &case.recorded {
        records.add(image, &rig.present_id, used.as_ref()).await.expect("recorded");
    }
    rig
}

#[tokio::test]
async fn upstream_cases_with_records() {
    for case in cases() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Upstream's manager does not record a pull; ours does, so each round starts with a new one.
        for round in 0..3 {
            let what = format!("{} round {round}", case.name);
            let rig = rig(&case, directory.path()).await;
            let mut asked = request("present_image", case.policy);
            asked.secrets.clone_from(&case.secrets);
            asked.service_account.clone_from(&case.account);
            let result = rig.ensure(asked.clone()).await;
            assert_eq!(rig.fake.call_kinds(), case.calls, "{what}");
            assert_eq!(result.as_ref().err().map(EnsureImageError::reason), case.reason, "{what}");
            assert_eq!(rig.reasons(), case.events, "{what}");
            let policy = case.policy.as_str().to_lowercase();
            assert_eq!(rig.samples(), [(policy, case.counted.0.into(), case.counted.1.into(), 1)], "{what}");
            if case.calls == LOOK && result.is_ok() {
                let want =
                    "Container image \"present_image\" already present on machine and can be accessed by the pod";
                assert_eq!(rig.messages(), [want], "{what}");
            }
            if case.calls == LOOK_AND_PULL {
                let again = rig.ensure(asked).await.expect("it was let in");
                assert!(!again.pulled, "what the registry allowed is remembered: {what}");
            }
        }
    }
}

// upstream: images/TestEnsureImageExistsWithNodeCredentialsOnly
#[tokio::test]
async fn a_credential_of_the_node_is_nobodys_own() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rig = rig(&Case { plugin: Plugin::Node, ..Case::new("node") }, directory.path()).await;
    rig.fake.require_auth("missing_image", RegistryAuth::basic("token", "exec-password"));
    let image = rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect("the node may");
    assert_eq!(image.credential.map(|source| source.to_string()).as_deref(), Some("credential provider provider"));
    let mut other = request("missing_image", PullPolicy::Never);
    other.pod.uid = "uid-2".into();
    assert!(!rig.ensure(other).await.expect("and so may every pod").pulled);
}

// upstream: images/TestEnsureImageExistsWithServiceAccountCoordinates/gate disabled, manager not called
#[tokio::test]
async fn without_records_no_provider_runs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let providers = Some(provider(directory.path(), true));
    let keyring = Some(Arc::new(Keyring::new(KeyringOptions { providers, ..KeyringOptions::default() })));
    let rig = Rig::with(Options { keyring, ..Options::default() });
    let mut asked = request("present_image", PullPolicy::IfNotPresent);
    asked.service_account = Some(account("builder"));
    let image = rig.ensure(asked).await.expect("present");
    assert_eq!(image.message, "Container image \"present_image\" already present on machine");
    assert!(!directory.path().join("runs").exists(), "no provider ran");
}

#[tokio::test]
async fn presence_does_not_leak_with_never() {
    // Present but not for this pod, and absent: the same error, the same events, and the provider is asked as often.
    let mut seen = Vec::new();
    for image in ["present_image", "missing_image"] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let recorded = vec![("present_image", Some(by_secret("a", "ada")))];
        let case = Case { recorded, plugin: Plugin::Node, ..Case::new(image) };
        let rig = rig(&case, directory.path()).await;
        let mut answers = Vec::new();
        let broken = [(".dockerconfigjson".to_owned(), Secret::new("{"))].into();
        for secrets in [vec![], vec![secret("x", "rex")], vec![PullSecret { data: broken, ..secret("x", "rex") }]] {
            let mut asked = request(image, PullPolicy::Never);
            asked.secrets = secrets;
            let error = rig.ensure(asked).await.expect_err("not for this pod");
            answers.push((error.reason(), error.message().replace(image, "IMAGE")));
        }
        let events: Vec<(String, String)> = rig
            .ring
            .events()
            .into_iter()
            .map(|e| (e.event.reason.into(), e.event.message.replace(image, "IMAGE")))
            .collect();
        let runs = std::fs::read_to_string(directory.path().join("runs")).map_or(0, |text| text.lines().count());
        seen.push((answers, events, runs));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].2, 2, "a broken secret is found before the provider is asked");
    assert!(seen[0].0.iter().all(|(reason, _)| *reason == "ErrImageNeverPull"));
}

#[tokio::test]
async fn a_tenant_without_the_secret_is_sent_to_the_registry() {
    let keyring = Some(Arc::new(Keyring::new(KeyringOptions::default())));
    let options = Options { puller: SERIAL, keyring, ..Options::default() };
    let rig = Rig::with_records(options, VerificationPolicy::default()).await;
    rig.fake.require_auth("missing_image", RegistryAuth::basic("ada", "ada-password"));
    let mut owner = request("missing_image", PullPolicy::IfNotPresent);
    owner.secrets = vec![secret("a", "ada")];
    assert!(rig.ensure(owner.clone()).await.expect("the owner may").pulled);
    assert!(!rig.ensure(owner).await.expect("present").pulled);
    let mut stranger = request("missing_image", PullPolicy::IfNotPresent);
    stranger.pod.uid = "uid-2".into();
    stranger.secrets = vec![secret("x", "rex")];
    let error = rig.ensure(stranger.clone()).await.expect_err("the registry says no");
    assert_eq!((error.reason(), error.cause()), ("ErrImagePull", Some(crate::Cause::Unauthenticated)));
    assert_eq!(rig.ensure(stranger.clone()).await.expect_err("too early").reason(), "ImagePullBackOff");
    stranger.policy = PullPolicy::Never;
    assert_eq!(rig.ensure(stranger).await.expect_err("as if absent").reason(), "ErrImageNeverPull");
    // By the default policy every pod may use a preloaded image.
    rig.ensure(request("present_image", PullPolicy::Never)).await.expect("preloaded");
}

/// A pod whose pull secret is from a manifest, with the namespace, name and uid of the secret that pulled the image.
fn by_manifest(image: &str, user: &str) -> EnsureImageRequest {
    let mut asked = request(image, PullPolicy::IfNotPresent);
    asked.pod.uid = format!("uid-of-{user}");
    asked.secrets = vec![PullSecret { origin: Origin::Manifest, ..secret("a", user) }];
    asked
}

#[tokio::test]
async fn the_coordinates_of_a_manifest_do_not_stand_for_their_content() {
    let keyring = Some(Arc::new(Keyring::new(KeyringOptions::default())));
    let options = Options { puller: SERIAL, keyring, ..Options::default() };
    let rig = Rig::with_records(options, VerificationPolicy::default()).await;
    rig.fake.require_auth("missing_image", RegistryAuth::basic("ada", "ada-password"));
    let owner = by_manifest("missing_image", "ada");
    assert!(rig.ensure(owner.clone()).await.expect("the owner may").pulled);
    let mut guess = by_manifest("missing_image", "rex");
    guess.policy = PullPolicy::Never;
    assert_eq!(rig.ensure(guess.clone()).await.expect_err("as if absent").reason(), "ErrImageNeverPull");
    guess.policy = PullPolicy::IfNotPresent;
    let error = rig.ensure(guess).await.expect_err("the registry says no");
    assert_eq!((error.reason(), error.cause()), ("ErrImagePull", Some(crate::Cause::Unauthenticated)));
    assert!(!rig.ensure(owner.clone()).await.expect("the guess took nothing away").pulled);

    // Another password, which the registry takes: it is asked once, and the record has the new content from then on.
    rig.fake.require_auth("missing_image", RegistryAuth::basic("eve", "eve-password"));
    let rotated = by_manifest("missing_image", "eve");
    assert!(rig.ensure(rotated.clone()).await.expect("the registry says yes").pulled);
    assert!(!rig.ensure(rotated).await.expect("it is recorded").pulled);
    rig.ensure(owner).await.expect_err("the old content is worth nothing");
}

#[tokio::test]
async fn a_pull_of_one_that_waited_is_not_for_the_others() {
    // Two pods want the same image with different secrets: the second waits for its turn, finds the image of the first,
    // and has to ask the registry all the same.
    let keyring = Some(Arc::new(Keyring::new(KeyringOptions::default())));
    let options = Options { puller: SERIAL, keyring, ..Options::default() };
    let rig = Rig::with_records(options, VerificationPolicy::AlwaysVerify).await;
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    let mut tasks = JoinSet::new();
    for (uid, user) in [("uid-1", "ada"), ("uid-2", "rex"), ("uid-3", "ada")] {
        let mut asked = request("missing_image", PullPolicy::IfNotPresent);
        asked.pod.uid = uid.into();
        asked.secrets = vec![secret(user, user)];
        rig.start(&mut tasks, asked).await;
    }
    gate.open();
    let pulled = tasks.join_all().await.into_iter().filter(|result| result.as_ref().is_ok_and(|image| image.pulled));
    assert_eq!(pulled.count(), 2, "ada's second pod has what ada's first pod proved");
}

#[tokio::test]
async fn records_that_cannot_be_written_stop_the_pull() {
    let rig = Rig::with_records(Options { puller: SERIAL, ..Options::default() }, VerificationPolicy::default()).await;
    let directory = rig.directory.as_ref().expect("there are records").path().join("image_manager/pulling");
    std::fs::remove_dir_all(&directory).expect("removed");
    std::fs::write(&directory, "in the way").expect("written");
    let error = rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect_err("no intent, no pull");
    let want = "Failed to record image pull intent for container image \"missing_image\": ";
    assert!(error.message().starts_with(want), "{}", error.message());
    assert_eq!(error.reason(), "ErrImagePull");
    assert!(rig.pulled_names().is_empty());
    assert_eq!(rig.manager.backoff(), [], "the registry was not asked");
    assert_eq!(rig.reasons(), ["Pulling", "Failed"]);
}
