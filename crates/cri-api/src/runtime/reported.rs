//! Facts in the verbose status of a runtime, in the forms of containerd and CRI-O: the sandbox image and the CNI configuration. Pure.
//! Called by the code that ensures the sandbox image, by the sync of pods, and by `imagelet doctor`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::RuntimeStatus;

/// Directory of CNI configuration where the runtime reports none: the default of containerd and CRI-O.
pub const DEFAULT_CNI_DIRECTORY: &str = "/etc/cni/net.d";

/// The CNI configuration of a runtime, as its verbose status reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniReport {
    /// Directory that the runtime reads network configurations from.
    pub directory: Option<String>,
    /// Directories of the plugins.
    pub plugin_directories: Vec<String>,
    /// Result of the last attempt to load the configuration; `None` after a success, or if the runtime does not report it.
    pub load_error: Option<String>,
}

/// The entry `config` of the status. CRI-O reports only the sandbox image; containerd 2 reports everything else.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    #[serde(rename = "sandboxImage", alias = "sandbox_image")]
    sandbox_image: String,
    cni: ConfigCni,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigCni {
    bin_dir: String,
    bin_dirs: Vec<String>,
    conf_dir: String,
}

/// The entry `cniconfig` of containerd's status.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CniConfig {
    plugin_dirs: Option<Vec<String>>,
    plugin_conf_dir: String,
}

impl RuntimeStatus {
    /// Returns the image of pod sandboxes; `None` if the runtime does not report it, as containerd 2 does not.
    #[must_use]
    pub fn sandbox_image(&self) -> Option<String> {
        Some(self.entry::<Config>("config")?.sandbox_image).filter(|image| !image.is_empty())
    }

    /// Returns the CNI configuration that the runtime reports.
    #[must_use]
    pub fn cni(&self) -> CniReport {
        let known = self.entry::<CniConfig>("cniconfig").unwrap_or_default();
        let config = self.entry::<Config>("config").unwrap_or_default().cni;
        let directory = [known.plugin_conf_dir, config.conf_dir].into_iter().find(|text| !text.is_empty());
        let configured = config.bin_dirs.into_iter().chain([config.bin_dir]).filter(|text| !text.is_empty());
        let plugin_directories =
            known.plugin_dirs.filter(|all| !all.is_empty()).unwrap_or_else(|| configured.collect());
        let load_error = self.info.get("lastCNILoadStatus").filter(|status| *status != "OK").cloned();
        CniReport { directory, plugin_directories, load_error }
    }

    /// Reads an entry that is JSON; `None` if it is absent or has another form.
    fn entry<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.info.get(name)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(info: &[(&str, &str)]) -> RuntimeStatus {
        let info = info.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        RuntimeStatus { info, ..RuntimeStatus::default() }
    }

    /// The entries are those of containerd 1.6, 1.7 and 2.1 and of CRI-O, shortened.
    #[test]
    fn sandbox_image_and_cni_are_read_from_each_runtime() {
        let missing = "cni config load failed: no network config found in /etc/cni/net.d: cni plugin not initialized";
        let cniconfig = r#"{"PluginDirs":["/opt/cni/bin"],"PluginConfDir":"/etc/cni/net.d","PluginMaxConfNum":1,
            "Prefix":"eth","Networks":[]}"#;
        let one = r#"{"containerd":{"snapshotter":"overlayfs"},"sandboxImage":"registry.example/pause:3.6",
            "cni":{"binDir":"/usr/lib/cni","confDir":"/etc/cni/other","maxConfNum":1}}"#;
        let two = r#"{"containerd":{},"cni":{"binDir":"","binDirs":["/usr/lib/cni","/opt/cni/bin"],"confDir":"/c"}}"#;
        let report = |directory: &str, plugins: &[&str], load_error: Option<&str>| CniReport {
            directory: Some(directory.to_owned()),
            plugin_directories: plugins.iter().map(|text| (*text).to_owned()).collect(),
            load_error: load_error.map(str::to_owned),
        };
        let of_one = status(&[("config", one), ("cniconfig", cniconfig), ("lastCNILoadStatus", missing)]);
        assert_eq!(of_one.sandbox_image().as_deref(), Some("registry.example/pause:3.6"));
        assert_eq!(of_one.cni(), report("/etc/cni/net.d", &["/opt/cni/bin"], Some(missing)));
        let of_two = status(&[("config", two), ("lastCNILoadStatus", "OK")]);
        assert_eq!(of_two.sandbox_image(), None);
        assert_eq!(of_two.cni(), report("/c", &["/usr/lib/cni", "/opt/cni/bin"], None));
        let crio = status(&[("config", r#"{"sandboxImage":"registry.k8s.io/pause:3.9"}"#)]);
        assert_eq!(crio.sandbox_image().as_deref(), Some("registry.k8s.io/pause:3.9"));
        assert_eq!(crio.cni(), CniReport::default());
        for strange in
            [&[][..], &[("config", "not JSON")], &[("config", "[]")], &[("config", r#"{"sandboxImage": ""}"#)]]
        {
            assert_eq!((status(strange).sandbox_image(), status(strange).cni()), (None, CniReport::default()));
        }
    }
}
