//! Unknown names, and the names that were probably meant: fields of the configuration file, and `IMAGELET_…` variables, which would
//! otherwise be ignored. Called by [`super::Config::load`] and by `main`.

use std::collections::BTreeSet;

use super::error::ConfigError;
use super::removed::{self, REMOVED};
use super::setting::SETTINGS;

/// Prefix of the names of our variables.
const PREFIX: &str = "IMAGELET_";

/// Returns a hint for an unknown field: `; did you mean root?`.
pub(super) fn hint(field: &str) -> String {
    let words = SETTINGS.iter().map(|setting| {
        let last = setting.field.rsplit('.').next().unwrap_or_default();
        (setting.field, vec![setting.field, last, setting.flag])
    });
    match base::near_names(field, words).as_slice() {
        [] => "; `imagelet config` shows all fields".to_owned(),
        names => did_you_mean(names),
    }
}

fn did_you_mean(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

/// `IMAGELET_…` variables without a meaning.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnknownVariables {
    /// An error line for each variable that is similar to a known one, and so probably misspelt.
    misspelt: Vec<String>,
    /// The other variables, which another program may have set, such as Kubernetes for a Service of our name.
    strange: Vec<String>,
}

impl UnknownVariables {
    /// Returns the unknown names among `variables`. `further` returns the variables that are no settings, and is called only if necessary.
    pub(crate) fn among(variables: &[String], further: impl FnOnce() -> BTreeSet<String>) -> Self {
        let is_setting = |name: &String| SETTINGS.iter().any(|setting| setting.variable == *name);
        let mut doubtful: Vec<&String> =
            variables.iter().filter(|name| name.starts_with(PREFIX) && !is_setting(name)).collect();
        let mut unknown = Self::default();
        if doubtful.is_empty() {
            return unknown;
        }
        let mut known = further();
        known.extend(SETTINGS.iter().map(|setting| setting.variable.clone()));
        doubtful.retain(|name| !known.contains(*name));
        doubtful.sort();
        // All names share the prefix, so it must not count for similarity.
        let bare = |name: &'_ str| name.get(PREFIX.len()..).unwrap_or_default().to_owned();
        let names: Vec<String> = known.iter().map(|name| bare(name)).collect();
        for name in doubtful {
            if let Some(removed) = REMOVED.iter().find(|removed| removed.variable() == *name) {
                unknown.misspelt.push(removed::refusal(&format!("variable {name}"), removed));
                continue;
            }
            match base::nearest(&bare(name), names.iter().map(String::as_str)) {
                Some(meant) => {
                    let hint = did_you_mean(&[&format!("{PREFIX}{meant}")]);
                    unknown.misspelt.push(format!("there is no variable {name}{hint}"));
                }
                None => unknown.strange.push(name.clone()),
            }
        }
        unknown
    }

    /// Returns the variables that no setting reads and that are similar to none of ours.
    pub(crate) fn strange(&self) -> &[String] {
        &self.strange
    }

    /// Refuses misspelt variables, as misspelt fields are refused: their values would be ignored.
    pub(crate) fn refuse_misspelt(&self) -> Result<(), ConfigError> {
        if self.misspelt.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(self.misspelt.clone())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_were_meant_are_few() {
        for (wrong, want) in [
            ("rooot", "; did you mean root?"),
            ("registryPullQps", "; did you mean registryPullQPS?"),
            ("registryQPS", "; did you mean registryPullQPS?"),
            ("image-endpoint", "; did you mean imageServiceEndpoint?"),
            ("logFormat", "; did you mean logging.format?"),
            ("logging.levle", "; did you mean logging.level?"),
            ("zzz", "; `imagelet config` shows all fields"),
        ] {
            assert_eq!(hint(wrong), want, "{wrong}");
        }
    }

    #[test]
    fn unread_variables_are_named() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            UnknownVariables::among(&names, || {
                BTreeSet::from(["IMAGELET_CONFIG".to_owned(), "IMAGELET_CREDS".to_owned()])
            })
        };
        assert_eq!(of(&["PATH", "IMAGELET_ROOT", "IMAGELET_CONFIG", "IMAGELET_CREDS"]), UnknownVariables::default());
        let got = of(&[
            "IMAGELET_ROTO",
            "IMAGELET_SERVICE_PORT",
            "IMAGELET_PORT_80_TCP",
            "IMAGELET_REGISTRY_QSP",
            "IMAGELET_CONFG",
        ]);
        let want = [
            "there is no variable IMAGELET_CONFG; did you mean IMAGELET_CONFIG?",
            "there is no variable IMAGELET_REGISTRY_QSP; did you mean IMAGELET_REGISTRY_QPS?",
            "there is no variable IMAGELET_ROTO; did you mean IMAGELET_ROOT?",
        ];
        assert_eq!(got.misspelt, want);
        assert_eq!(got.strange(), ["IMAGELET_PORT_80_TCP", "IMAGELET_SERVICE_PORT"]);
    }
}
