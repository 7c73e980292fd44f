//! Check of the pod network: the condition of the runtime, its CNI configuration, and the plugins that the configuration names.

use std::path::{Path, PathBuf};

use cri_api::{DEFAULT_CNI_DIRECTORY, RuntimeStatus};
use kuberuntime::sync::network_remedy;
use serde_json::Value;

use super::finding::{Finding, blocking};

/// Directories of plugins where the runtime reports none: those of the plugins' own packages.
const PLUGIN_DIRECTORIES: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
/// Remedy for absent plugins.
const INSTALL: &str = "install the plugins (apt-get install containernetworking-plugins), or correct bin_dir in the runtime's configuration";

/// Checks the pod network of a runtime with this verbose status.
pub(super) async fn check(check: &'static str, status: RuntimeStatus) -> Finding {
    blocking(check, move || judge(check, &status)).await
}

fn judge(check: &'static str, status: &RuntimeStatus) -> Finding {
    let report = status.cni();
    let directory = PathBuf::from(report.directory.unwrap_or_else(|| DEFAULT_CNI_DIRECTORY.to_owned()));
    let is_ready = status.holds("NetworkReady");
    let file = match first_configuration(&directory) {
        Ok(Some(file)) => file,
        // A runtime without CNI, or in another mount namespace.
        Ok(None) | Err(_) if is_ready => return Finding::ok(check, "the runtime reports that its network is ready"),
        Ok(None) => {
            return Finding::error(
                check,
                format!("{} has no CNI configuration", directory.display()),
                network_remedy(status),
            );
        }
        Err(error) => {
            let message = format!("list {}: {error}", directory.display());
            return Finding::error(check, message, network_remedy(status));
        }
    };
    let shown = file.display();
    let network = match std::fs::read(&file).map_err(|error| error.to_string()).and_then(|bytes| Network::parse(&bytes))
    {
        Ok(network) => network,
        Err(error) => {
            let remedy =
                format!("correct the file, or remove it; the runtime reads the first file of {}", directory.display());
            return Finding::error(check, format!("{shown}: {error}"), remedy);
        }
    };
    let directories = match report.plugin_directories {
        reported if reported.is_empty() => PLUGIN_DIRECTORIES.map(str::to_owned).into(),
        reported => reported,
    };
    let is_installed =
        |plugin: &String| directories.iter().any(|directory| Path::new(directory).join(plugin).is_file());
    let missing: Vec<String> = network.plugins.into_iter().filter(|plugin| !is_installed(plugin)).collect();
    if !missing.is_empty() {
        let message =
            format!("{shown} names plugins that are not in {}: {}", directories.join(" or "), missing.join(", "));
        return Finding::error(check, message, INSTALL);
    }
    if !is_ready {
        let condition = status.conditions.iter().find(|condition| condition.kind == "NetworkReady");
        let why = condition.map(|condition| condition.message.clone()).unwrap_or_default();
        let remedy = "read the runtime's log, and restart the runtime";
        return Finding::error(
            check,
            format!("the runtime's network is not ready although {shown} is valid: {why}"),
            remedy,
        );
    }
    Finding::ok(check, format!("network {} of {shown}", network.name))
}

/// Returns the configuration that runtimes load: the first one by name.
fn first_configuration(directory: &Path) -> std::io::Result<Option<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("conf" | "conflist" | "json")) {
            files.push(path);
        }
    }
    Ok(files.into_iter().min())
}

/// A CNI network, as far as this check needs it.
#[derive(Debug, PartialEq, Eq)]
struct Network {
    name: String,
    plugins: Vec<String>,
}

impl Network {
    /// Reads a list of plugins, or a single plugin, with the plugins for addresses.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        let single = [value.clone()];
        let list = value.get("plugins").and_then(Value::as_array).map_or(&single[..], Vec::as_slice);
        let mut plugins = Vec::new();
        for plugin in list {
            plugins.push(text(plugin, "type").ok_or("a plugin has no type")?);
            plugins.extend(plugin.get("ipam").and_then(|ipam| text(ipam, "type")));
        }
        if plugins.is_empty() {
            return Err("the list of plugins is empty".to_owned());
        }
        Ok(Self { name: text(&value, "name").ok_or("the network has no name")?, plugins })
    }
}

#[cfg(test)]
mod tests {
    use cri_api::Condition;

    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn network_is_judged_by_files_plugins_and_the_condition() {
        let root = tempfile::tempdir().expect("a directory");
        let (configurations, plugins) = (root.path().join("net.d"), root.path().join("bin"));
        let judged = |ready: bool| {
            let cni = serde_json::json!({"PluginConfDir": configurations, "PluginDirs": [&plugins]}).to_string();
            let condition = Condition { kind: "NetworkReady".into(), status: ready, ..Condition::default() };
            let info = [("cniconfig".to_owned(), cni)].into();
            judge("cni", &RuntimeStatus { conditions: vec![condition], info, ..RuntimeStatus::default() })
        };
        let is = |finding: &Finding, result: Verdict, words: &[&str]| {
            let text = finding.details();
            assert!(finding.result == result && words.iter().all(|word| text.contains(word)), "{finding:?}");
        };
        is(&judged(true), Verdict::Ok, &["ready"]);
        is(&judged(false), Verdict::Error, &["net.d has no CNI configuration", "10-pods.conflist", "hostNetwork"]);
        std::fs::create_dir(&configurations).expect("create");
        std::fs::create_dir(&plugins).expect("create");
        std::fs::write(configurations.join("readme.txt"), "no configuration").expect("write");
        is(&judged(false), Verdict::Error, &["has no CNI configuration"]);
        let list =
            r#"{"name": "pods", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}"#;
        std::fs::write(configurations.join("10-pods.conflist"), list).expect("write");
        is(
            &judged(true),
            Verdict::Error,
            &["10-pods.conflist names plugins", "bridge, host-local, portmap", "apt-get"],
        );
        for plugin in ["bridge", "host-local", "portmap"] {
            std::fs::write(plugins.join(plugin), "").expect("write");
        }
        is(&judged(true), Verdict::Ok, &["network pods of", "10-pods.conflist"]);
        is(&judged(false), Verdict::Error, &["is not ready although"]);
        // Runtimes load the first file, whatever follows.
        std::fs::write(configurations.join("05-broken.conf"), "{").expect("write");
        is(&judged(true), Verdict::Error, &["05-broken.conf", "remove it"]);
        std::fs::write(configurations.join("05-broken.conf"), r#"{"name": "one", "type": "bridge"}"#).expect("write");
        is(&judged(true), Verdict::Ok, &["network one of"]);
        for broken in
            [r#"{"type": "bridge"}"#, r#"{"name": "x", "plugins": []}"#, r#"{"name": "x", "plugins": [{}]}"#, "[]"]
        {
            assert!(Network::parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
