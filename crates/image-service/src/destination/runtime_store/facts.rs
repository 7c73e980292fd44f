//! Facts about images that a container runtime reports: their layers and media types, and the platforms that it can choose.

use cri_api::engine::runtime_store::RuntimeStore;
use cri_api::{Error, ImageStatus, Kind, Result};
use oci::Platform;

/// Refuses a platform that the runtime does not choose: from an index it takes the manifest for its own machine.
pub(crate) fn check_runtime_platform(wanted: &Platform) -> Result<()> {
    let own = Platform::host();
    if own.runnable().iter().any(|own| own.os == wanted.os && own.architecture == wanted.architecture) {
        return Ok(());
    }
    let message =
        format!("not for {wanted}: a container runtime takes from an index what is for its own machine, {own}");
    Err(Error::new(Kind::FailedPrecondition, message))
}

/// Returns true if the layers of an image are missing from the store, so that it has to be pulled again. `status` is verbose.
pub(crate) async fn lacks_layers(store: &dyn RuntimeStore, status: &ImageStatus) -> Result<bool> {
    let Some(chain_id) = chain_id(status) else { return Ok(false) };
    Ok(!store.has_layers(&chain_id).await?)
}

/// Returns the chain ID of the top layer, as the runtime reports it. Images without layers have none.
pub(crate) fn chain_id(status: &ImageStatus) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(status.info.get("info")?).ok()?;
    let chain_id = info.get("chainID")?.as_str().filter(|id| !id.is_empty())?;
    Some(chain_id.to_owned())
}

/// Returns the media type of an index, as its own text states it.
pub(super) fn index_type(bytes: &[u8]) -> &'static str {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        media_type: Option<String>,
    }
    let typed: Option<Typed> = oci::json::from_slice(bytes).ok();
    match typed.and_then(|typed| typed.media_type) {
        Some(named) if named == oci::media_type::DOCKER_INDEX => oci::media_type::DOCKER_INDEX,
        _ => oci::media_type::OCI_INDEX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_id_is_read_from_the_verbose_status() {
        let status = |info: &str| ImageStatus {
            info: std::collections::BTreeMap::from([("info".to_owned(), info.to_owned())]),
            ..ImageStatus::default()
        };
        assert_eq!(chain_id(&status(r#"{"chainID": "sha256:ab", "imageSpec": {}}"#)).as_deref(), Some("sha256:ab"));
        for none in [r#"{"chainID": ""}"#, "{}", "no JSON"] {
            assert_eq!(chain_id(&status(none)), None, "{none}");
        }
        assert_eq!(chain_id(&ImageStatus::default()), None);
    }

    #[test]
    fn media_type_of_an_index_is_read_from_its_text() {
        let docker = "application/vnd.docker.distribution.manifest.list.v2+json";
        assert_eq!(index_type(format!(r#"{{"mediaType": "{docker}", "manifests": []}}"#).as_bytes()), docker);
        assert_eq!(index_type(br#"{"manifests": []}"#), "application/vnd.oci.image.index.v1+json");
    }
}
