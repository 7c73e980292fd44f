//! The difference that a reload of the configuration makes: settings that a running agent applies, and those that need a restart and keep
//! their values. Pure. Called by [`crate::wiring::reload`].

use super::model::Config;
use super::setting::SETTINGS;

/// A setting whose value changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingChange {
    /// The field of the file.
    pub(crate) field: &'static str,
    /// The value in force, in one line.
    pub(crate) old: String,
    /// The value in the file.
    pub(crate) new: String,
}

/// A configuration that replaces another one.
#[derive(Debug)]
pub(crate) struct Reload {
    /// The configuration to put in force: settings that need a restart have their old values.
    pub(crate) config: Config,
    /// Settings that change.
    pub(crate) changed: Vec<SettingChange>,
    /// Settings that would change after a restart.
    pub(crate) pending: Vec<SettingChange>,
}

/// Returns the result of replacing `old` with `new`.
pub(crate) fn reload(old: &Config, mut new: Config) -> Reload {
    let (mut changed, mut pending) = (Vec::new(), Vec::new());
    let (before, mut after) = (old.fields(), new.fields());
    for setting in SETTINGS.iter() {
        let (from, to) = (setting.value_in(&before), setting.value_in(&after));
        let change = SettingChange { field: setting.field, old: setting.line(&from), new: setting.line(&to) };
        let differs = from != to;
        if setting.reloads {
            changed.extend(differs.then_some(change));
            continue;
        }
        pending.extend(differs.then_some(change));
        if let Some(value) = before.get(setting.field) {
            after.insert(setting.field.to_owned(), value.clone());
        }
        match old.origins.get(setting.field) {
            Some(origin) => new.origins.insert(setting.field, origin.clone()),
            None => new.origins.remove(setting.field),
        };
    }
    let config = new.with_fields(after).expect("each of the values is that of a configuration");
    Reload { config, changed, pending }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;
    use crate::environment::Environment;

    #[test]
    fn some_settings_change_and_others_stay() {
        let old = Config::defaults(&Environment::default());
        let mut new = old.clone();
        new.gc.high = 70;
        new.eviction.hard = vec![("imagefs.available".to_owned(), "1%".to_owned())];
        new.root = "/elsewhere".into();
        new.origins.insert("root", Origin::Flag("root"));
        let reload = reload(&old, new);
        let change = |field, old: &str, new: &str| SettingChange { field, old: old.to_owned(), new: new.to_owned() };
        let evictions = "imagefs.available<15%,imagefs.inodesFree<5%,nodefs.available<10%,nodefs.inodesFree<5%";
        assert_eq!(
            reload.changed,
            [
                change("imageGCHighThresholdPercent", "85", "70"),
                change("evictionHard", evictions, "imagefs.available<1%")
            ]
        );
        assert_eq!(reload.pending, [change("root", "/var/lib/imagelet", "/elsewhere")]);
        assert_eq!((reload.config.gc.high, reload.config.root), (70, old.root));
        assert!(!reload.config.origins.contains_key("root"));
    }
}
