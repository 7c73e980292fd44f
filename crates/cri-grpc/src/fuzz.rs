//! Invariants of this crate's parsers for any input: run by libFuzzer (`fuzz/` at the top of the repository), and over the
//! committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use cri_api as api;
use oci::RegistryAuth;
use prost::Message;

use crate::pb;

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a conversion does not keep what it has to.
pub const HARNESSES: &[Harness] = &[("cri", cri), ("authority", crate::server::fuzz_authority)];

/// Messages, and the plain types that they become. The first byte chooses.
const MESSAGES: &[fn(&[u8])] = &[
    same::<pb::ImageSpec, api::ImageSpec>,
    same::<pb::Image, api::Image>,
    same::<pb::ImageFilter, api::ImageFilter>,
    same::<pb::ImageStatusResponse, api::ImageStatus>,
    same::<pb::ImageFsInfoResponse, api::FsInfo>,
    same::<pb::StatusResponse, api::RuntimeStatus>,
    same::<pb::PodSandboxConfig, api::PodSandboxConfig>,
    same::<pb::PodSandboxFilter, api::PodSandboxFilter>,
    same::<pb::PodSandboxStatusResponse, api::PodSandboxStatus>,
    same::<pb::PodSandbox, api::PodSandbox>,
    same::<pb::ContainerConfig, api::ContainerConfig>,
    same::<pb::ContainerFilter, api::ContainerFilter>,
    same::<pb::ContainerStatusResponse, api::ContainerStatus>,
    same::<pb::Container, api::Container>,
    same::<pb::ContainerStatsFilter, api::ContainerStatsFilter>,
    same::<pb::PodSandboxStats, api::PodSandboxStats>,
    pull,
    taken::<pb::ExecSyncResponse, api::ExecSyncOutput>,
    taken::<pb::RuntimeConfigResponse, api::RuntimeConfig>,
    taken::<pb::ContainerEventResponse, api::ContainerEvent>,
];

fn cri(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    MESSAGES[usize::from(*first) % MESSAGES.len()](rest);
}

/// Checks that a plain value survives the way out and back.
fn same<P, A>(bytes: &[u8])
where
    P: Message + Default + From<A>,
    A: From<P> + Clone + PartialEq,
{
    let Ok(message) = P::decode(bytes) else { return };
    let value = A::from(message);
    let back = P::decode(P::from(value.clone()).encode_to_vec().as_slice()).expect("what is written can be read");
    assert!(A::from(back) == value, "it comes back as something else");
}

fn taken<P: Message + Default, A: From<P>>(bytes: &[u8]) {
    if let Ok(message) = P::decode(bytes) {
        drop(A::from(message));
    }
}

/// A pull with a credential, which is never shown.
fn pull(bytes: &[u8]) {
    let Ok(message) = pb::PullImageRequest::decode(bytes) else { return };
    let shown = format!("{message:?}");
    assert!(shown.contains("AuthConfig(…)") || message.auth.is_none());
    let request = api::PullImageRequest::from(message);
    let auth: Option<RegistryAuth> = request.auth.clone();
    let back = pb::PullImageRequest::from(request);
    let again = api::PullImageRequest::from(back);
    assert!(again.auth == auth, "the credential comes back as another one");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
