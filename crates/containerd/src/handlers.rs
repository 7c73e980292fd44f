//! [`handler_store`]: which snapshotter a runtime handler uses, read from the configuration that the CRI plugin reports in its
//! verbose status. Pure; called by the store.

use std::collections::BTreeMap;

use cri_api::engine::runtime_store::HandlerStore;
use cri_api::{Error, Kind, Result};
use serde::Deserialize;

/// The CRI plugin's configuration, as far as it concerns handlers.
#[derive(Deserialize)]
struct Config {
    containerd: Containerd,
}

#[derive(Deserialize)]
struct Containerd {
    runtimes: BTreeMap<String, Runtime>,
}

#[derive(Deserialize)]
struct Runtime {
    /// Absent or empty: the default one. containerd before 1.7 knows no other.
    #[serde(default)]
    snapshotter: Option<String>,
}

/// Returns the store of a handler. `config` is JSON, and `default` the name of the default snapshotter.
///
/// # Errors
/// The configuration has no such handler, or is not in a form that is known.
pub(crate) fn handler_store(config: Option<&str>, handler: &str, default: &str) -> Result<HandlerStore> {
    let unknown = |why: &str| {
        let message = format!("find the snapshotter of the runtime handler {handler:?}: containerd's CRI status {why}");
        Error::new(Kind::Internal, message)
    };
    let config = config.ok_or_else(|| unknown("has no configuration"))?;
    let config: Config = serde_json::from_str(config).map_err(|error| unknown(&format!("cannot be read: {error}")))?;
    let Some(runtime) = config.containerd.runtimes.get(handler) else {
        return Err(Error::new(Kind::InvalidArgument, format!("unknown runtime handler {handler:?}")));
    };
    Ok(match runtime.snapshotter.as_deref() {
        None | Some("") => HandlerStore::Default,
        Some(name) if name == default => HandlerStore::Default,
        Some(name) => HandlerStore::Other(format!("containerd's snapshotter {name}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_uses_the_default_snapshotter_unless_configured() {
        let config = r#"{"sandboxImage": "x", "containerd": {"snapshotter": "overlayfs", "runtimes": {
            "runc": {"runtimeType": "io.containerd.runc.v2"}, "empty": {"snapshotter": ""}, "null": {"snapshotter": null},
            "same": {"snapshotter": "overlayfs"}, "kata": {"snapshotter": "devmapper"}}}}"#;
        for handler in ["runc", "empty", "null", "same"] {
            assert_eq!(handler_store(Some(config), handler, "overlayfs"), Ok(HandlerStore::Default), "{handler}");
        }
        let other = HandlerStore::Other("containerd's snapshotter devmapper".to_owned());
        assert_eq!(handler_store(Some(config), "kata", "overlayfs"), Ok(other));
        let error = handler_store(Some(config), "gvisor", "overlayfs").expect_err("there is none");
        assert_eq!((error.kind(), error.message()), (Kind::InvalidArgument, "unknown runtime handler \"gvisor\""));
        for strange in
            [None, Some(""), Some("{}"), Some(r#"{"containerd": {}}"#), Some(r#"{"containerd": {"runtimes": []}}"#)]
        {
            let error = handler_store(strange, "runc", "overlayfs").expect_err("nothing is guessed");
            assert_eq!(error.kind(), Kind::Internal, "{strange:?}: {error}");
        }
    }
}
