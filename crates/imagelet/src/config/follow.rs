//! The settings that select images, as a command takes them over from the agent whose images it uses. Pure. Called by [`crate::follow`].

use serde_json::{Map, Value};

use super::error::Origin;
use super::model::Config;
use super::setting::of_field;
use super::value::{Raw, Wrong};

/// The settings that a command takes over: which images, and how they are pulled into a runtime's store.
const ADOPTED: [&str; 6] =
    ["root", "imageServiceEndpoint", "containerRuntimeEndpoint", "pullEngine", "runtimeLayers", "signaturePolicy"];

impl Config {
    /// Returns true if the user selects the images: the root by a flag or a variable, or an endpoint in any way.
    pub(crate) fn selects_images(&self) -> bool {
        self.origins.contains_key("imageServiceEndpoint") || self.is_of_command("root")
    }

    /// Takes over the settings that select images from the configuration of an agent. Flags and variables of this command stay in force, and
    /// so do a signature policy, from wherever it is, and the pull engine that it demands: no agent weakens them.
    ///
    /// # Errors
    /// The field with a value that this version does not know, and the allowed values.
    pub(crate) fn adopt(&mut self, agent: &Map<String, Value>) -> Result<(), String> {
        let has_policy = self.engine.signature_policy.is_some();
        for field in ADOPTED {
            if has_policy && ["signaturePolicy", "pullEngine"].contains(&field) {
                continue;
            }
            let Some(text) = agent.get(field).and_then(Value::as_str) else { continue };
            let Some(setting) = of_field(field).filter(|_| !self.is_of_command(field)) else { continue };
            setting
                .apply(self, Raw::Text(text))
                .map_err(|Wrong(allowed)| format!("its {field} is {text:?}, which is not {allowed}"))?;
        }
        Ok(())
    }

    /// Returns true if a flag or a variable sets this field.
    pub(crate) fn is_of_command(&self, field: &str) -> bool {
        matches!(self.origins.get(field), Some(Origin::Flag(_) | Origin::Variable(_)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::environment::Environment;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("a map")
    }

    #[test]
    fn settings_of_the_command_line_stay_in_force() {
        let agent = fields(json!({
            "root": "/var/lib/imagelet-serve",
            "imageServiceEndpoint": "unix:///run/containerd/containerd.sock",
            "pullEngine": "embedded",
            "runtimeLayers": "dir",
            "maxPods": 7,
            "listen": "unix:///run/imagelet/imagelet.sock",
        }));
        let mut config = Config::defaults(&Environment::default());
        config.origins.insert("pullEngine", Origin::Flag("pull-engine"));
        assert!(!config.selects_images());
        config.adopt(&agent).expect("known values");
        assert_eq!(config.root, std::path::Path::new("/var/lib/imagelet-serve"));
        assert_eq!(config.image_service_endpoint.as_deref(), Some("unix:///run/containerd/containerd.sock"));
        assert_eq!(config.runtime_layers, store::LayerFormat::Dir);
        assert_eq!(config.pull_engine, image_service::PullEngine::Auto);
        assert_eq!((config.max_pods, config.listen), (Config::default().max_pods, None));
    }

    #[test]
    fn no_agent_weakens_a_signature_policy() {
        let agent = fields(json!({"root": "/data", "signaturePolicy": "", "pullEngine": "runtime"}));
        let mut config = Config::defaults(&Environment::default());
        config.engine.signature_policy = Some("/etc/containers/policy.json".into());
        let file = Origin::File { path: "/etc/imagelet/config.yaml".into(), line: 3 };
        config.origins.insert("signaturePolicy", file);
        config.adopt(&agent).expect("known values");
        assert_eq!(
            config.engine.signature_policy.as_deref(),
            Some(std::path::Path::new("/etc/containers/policy.json"))
        );
        assert_eq!(config.pull_engine, image_service::PullEngine::Auto);
        assert_eq!(config.root, std::path::Path::new("/data"));
    }

    #[test]
    fn unknown_values_are_named() {
        let mut config = Config::defaults(&Environment::default());
        let error = config.adopt(&fields(json!({"pullEngine": "new"}))).expect_err("no such engine");
        assert!(error.starts_with("its pullEngine is \"new\", which is not "), "{error}");
    }

    #[test]
    fn root_of_a_file_selects_no_images() {
        let of = |field: &'static str, origin: Origin| {
            let mut config = Config::defaults(&Environment::default());
            config.origins.insert(field, origin);
            config.selects_images()
        };
        let file = || Origin::File { path: "/etc/imagelet/config.yaml".into(), line: 3 };
        assert!(!of("root", file()));
        assert!(of("root", Origin::Flag("root")) && of("root", Origin::Variable("IMAGELET_ROOT")));
        assert!(of("imageServiceEndpoint", file()));
    }
}
