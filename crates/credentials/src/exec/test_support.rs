//! Shared by the tests of credential providers: a directory with scripts as providers, a configuration for them, a
//! clock that does not advance by itself, and tokens. Not part of the product.

use base::lock::Mutex;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use oci::Secret;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ExecOptions, ParseYaml, ProviderConfigError, Providers, TokenError, TokenSource};
use crate::pattern::PathMatch;
use crate::test_support::script;
use crate::{Origin, Requester, ServiceAccount};

pub(super) const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

/// Reads YAML as the program does.
pub(super) fn yaml() -> ParseYaml {
    Arc::new(|text| serde_saphyr::from_str(text).map_err(|error| error.to_string()))
}

/// Makes tokens: the next of a list, or an error once it is used up.
#[derive(Default)]
pub(super) struct Tokens {
    left: Mutex<Vec<Result<String, String>>>,
    asked: Mutex<Vec<String>>,
    /// The account as an API server has it.
    pub(super) account: Mutex<Option<ServiceAccount>>,
}

impl Tokens {
    pub(super) fn of(tokens: &[Result<&str, &str>]) -> Arc<Self> {
        let mut left: Vec<_> = tokens.iter().map(|t| t.map(str::to_owned).map_err(|error| error.to_owned())).collect();
        left.reverse();
        Arc::new(Self { left: Mutex::new(left), ..Self::default() })
    }

    /// The requests, in order.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl TokenSource for Tokens {
    fn account<'a>(&'a self, account: &'a ServiceAccount) -> BoxFuture<'a, Result<ServiceAccount, TokenError>> {
        let absent = || TokenError(format!("serviceaccounts {:?} not found", account.name));
        std::future::ready(self.account.lock().clone().ok_or_else(absent)).boxed()
    }

    fn token<'a>(
        &'a self,
        account: &'a ServiceAccount,
        audience: &'a str,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Secret, TokenError>> {
        let asked =
            format!("{}/{} {} for {audience} and pod {}", account.namespace, account.name, account.uid, requester.uid);
        self.asked.lock().push(asked);
        let token = self.left.lock().pop();
        let token = token.unwrap_or_else(|| Err("used up".to_owned()));
        std::future::ready(token.map(Secret::new).map_err(TokenError)).boxed()
    }
}

/// A directory with providers.
pub(super) struct ProviderFixture {
    pub(super) directory: tempfile::TempDir,
    providers: Vec<Value>,
    now: Arc<Mutex<Instant>>,
    pub(super) options: ExecOptions,
}

impl ProviderFixture {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = Arc::clone(&now);
        let options = ExecOptions {
            environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("DIR".into(), directory.path().into())],
            clock: Arc::new(move || *clock.lock()),
            yaml: yaml(),
            tokens: None,
            service_account_tokens: true,
            path_match: PathMatch::Segments,
            timeout: Duration::from_secs(60),
        };
        Self { directory, providers: Vec::new(), now, options }
    }

    /// A provider that is a shell script. It finds the directory in `$DIR`; its runs are counted in `NAME.runs`, its
    /// last request is in `NAME.request`.
    pub(super) fn add(&mut self, name: &str, images: &[&str], body: &str) -> &mut Value {
        let body = format!("echo $$ >>\"$DIR/{name}.runs\"\ncat >\"$DIR/{name}.request\"\n{body}");
        script(self.directory.path(), name, &body);
        self.providers.push(json!({
            "name": name,
            "matchImages": images,
            "defaultCacheDuration": "10m",
            "apiVersion": V1,
        }));
        self.providers.last_mut().expect("just added")
    }

    /// A provider that prints an answer.
    pub(super) fn answering(&mut self, name: &str, images: &[&str], answer: &Value) -> &mut Value {
        self.add(name, images, &format!("cat <<'END'\n{answer}\nEND"))
    }

    /// Replaces a provider's script without a word about how it is counted.
    pub(super) fn replace(&self, name: &str, body: &str) {
        script(self.directory.path(), name, &format!("echo $$ >>\"$DIR/{name}.runs\"\n{body}"));
    }

    pub(super) fn load(&self) -> Providers {
        self.try_load().expect("loads")
    }

    pub(super) fn try_load(&self) -> Result<Providers, ProviderConfigError> {
        let config = json!({
            "kind": "CredentialProviderConfig",
            "apiVersion": "kubelet.config.k8s.io/v1",
            "providers": self.providers,
        });
        let path = self.directory.path().join("config");
        fs::write(&path, config.to_string()).expect("written");
        Providers::load(&path, self.directory.path(), self.options.clone())
    }

    pub(super) fn later(&self, by: Duration) {
        *self.now.lock() += by;
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The process numbers of a provider's runs.
    pub(super) fn runs(&self, name: &str) -> Vec<i32> {
        let text = fs::read_to_string(self.path().join(format!("{name}.runs"))).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    pub(super) fn request(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.path().join(format!("{name}.request"))).expect("asked");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Lets a script go on that waits with [`WAIT`].
    pub(super) fn go(&self) {
        fs::write(self.path().join("go"), "").expect("written");
    }
}

/// Shell: wait until the test says go.
pub(super) const WAIT: &str = "while [ ! -e \"$DIR/go\" ]; do sleep 0.01; done";

/// An answer with one credential.
pub(super) fn answer(kind: &str, duration: Option<&str>, pattern: &str) -> Value {
    let mut answer = json!({
        "kind": "CredentialProviderResponse",
        "apiVersion": V1,
        "cacheKeyType": kind,
        "auth": {pattern: {"username": "user", "password": "password"}},
    });
    if let Some(duration) = duration {
        answer["cacheDuration"] = json!(duration);
    }
    answer
}

/// A pod with a service account.
pub(super) fn pod(annotations: &[(&str, &str)]) -> Requester {
    Requester {
        namespace: "ns".into(),
        name: "pod-name".into(),
        uid: "pod-uid".into(),
        secrets: Vec::new(),
        service_account: Some(ServiceAccount {
            namespace: "ns".into(),
            name: "sa-name".into(),
            uid: "sa-uid".into(),
            origin: Origin::Manifest,
            annotations: annotations.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        }),
    }
}
