//! Gets a certificate from the cluster: creates a CertificateSigningRequest and waits until it is approved or denied.
//! Called by [`super::join`] and [`super::rotation`].

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

use super::request::ClientKey;
use crate::client::{ClusterClient, Failure, failure, text, within};
use crate::retry::{Backoff, Random};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const ORGANIZATION: &str = "system:nodes";
/// Old approvers know these three together only.
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
/// Longest wait for the approval of the request.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Reason for which there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error("the API server does not know these credentials: they are wrong, or have expired: {0}")]
    Unauthorized(String),
    #[error("these credentials may not ask for a certificate: {0}")]
    Forbidden(String),
    #[error("the API server refuses the request: {0}")]
    Refused(String),
    #[error("the request {name} was denied: {why}")]
    Denied { name: String, why: String },
    #[error("the request {name} could not be signed: {why}")]
    Failed { name: String, why: String },
    #[error("the request {name} was not approved within {} minutes", PATIENCE.as_secs() / 60)]
    Late { name: String },
    #[error("the key: {0}")]
    Key(String),
}

/// Asks for a certificate of this node for this key and waits for it. Asks again while the server is away.
pub(super) async fn certificate(
    client: &ClusterClient,
    node: &str,
    key: &ClientKey,
    random: &Random,
) -> Result<String, SigningError> {
    let request = key.request(ORGANIZATION, &format!("system:node:{node}"));
    let request = request.map_err(|error| SigningError::Key(error.to_string()))?;
    // The same key makes the same name: a restart meanwhile finds its request.
    let name = format!("node-csr-{}", &key.fingerprint()[..40]);
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(USAGES.map(str::to_owned).into()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
    let until = Instant::now() + PATIENCE;
    let mut is_logged = false;
    while Instant::now() < until {
        match ask(client, &object).await {
            Ok(there) => {
                if let Some(ended) = outcome(&name, &there) {
                    return ended;
                }
                if !is_logged {
                    tracing::info!(request = name, "waiting until the request for a certificate is approved");
                    is_logged = true;
                }
            }
            Err(error) => match failure(&error) {
                Failure::Unauthorized => return Err(SigningError::Unauthorized(text(&error))),
                Failure::Forbidden => return Err(SigningError::Forbidden(text(&error))),
                Failure::Invalid | Failure::NotFound => return Err(SigningError::Refused(text(&error))),
                _ => tracing::warn!(error = text(&error), "no certificate yet"),
            },
        }
        tokio::time::sleep(backoff.next(random)).await;
    }
    Err(SigningError::Late { name })
}

/// Returns the request on the server, and creates it if there is none.
async fn ask(
    client: &ClusterClient,
    object: &CertificateSigningRequest,
) -> Result<CertificateSigningRequest, kube::Error> {
    let api: Api<CertificateSigningRequest> = Api::all(client.current());
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if let Some(there) = within(api.get_opt(name)).await? {
        return Ok(there);
    }
    match within(api.create(&PostParams::default(), object)).await {
        Err(error) if failure(&error) == Failure::AlreadyExists => within(api.get(name)).await,
        made => made,
    }
}

/// Returns the certificate, or why there will be none; `None` while the request is undecided.
fn outcome(name: &str, request: &CertificateSigningRequest) -> Option<Result<String, SigningError>> {
    let status = request.status.as_ref()?;
    for condition in status.conditions.iter().flatten() {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let why = [text(&condition.reason), text(&condition.message)].join(" ").trim().to_owned();
        let name = name.to_owned();
        match condition.type_.as_str() {
            "Denied" => return Some(Err(SigningError::Denied { name, why })),
            "Failed" => return Some(Err(SigningError::Failed { name, why })),
            _ => {}
        }
    }
    let ByteString(certificate) = status.certificate.as_ref()?;
    let text = String::from_utf8(certificate.clone());
    let why = || "the certificate is no PEM".to_owned();
    Some(text.map_err(|_| SigningError::Failed { name: name.to_owned(), why: why() }))
}
