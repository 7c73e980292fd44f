//! The table of all settings. A setting that is not in it does not exist. Called by [`crate::config`], by the reference page, and by
//! `imagelet config`.

use std::sync::LazyLock;

use super::declare::{self, Declared};
use super::error::Origin;
use super::eviction;
use super::model::Config;

/// A setting of the configuration.
pub(crate) type Setting = declare::Setting<Config>;

/// Values from the command line and the environment, in the order of [`SETTINGS`].
pub(crate) type Given = Vec<(&'static Setting, Origin, String)>;

/// All settings, in the order in which help and `imagelet config` show them.
pub(crate) static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let mut settings = Vec::new();
    settings.extend(part(|c| &c.pods, |c| &mut c.pods));
    settings.extend(part(|c| &c.cluster, |c| &mut c.cluster));
    settings.extend(part(|c| &c.pulls, |c| &mut c.pulls));
    settings.extend(part(|c| &c.back_off, |c| &mut c.back_off));
    settings.extend(part(|c| &c.verification, |c| &mut c.verification));
    settings.extend(part(|c| &c.credentials, |c| &mut c.credentials));
    settings.extend(part(|c| &c.gc, |c| &mut c.gc));
    settings.push(eviction::hard().within(|c| &c.eviction, |c| &mut c.eviction));
    settings.extend(part(|c| &c.eviction, |c| &mut c.eviction));
    settings.extend(part(|c| &c.container_gc, |c| &mut c.container_gc));
    settings.extend(part(|c| &c.engine, |c| &mut c.engine));
    settings.extend(Config::settings());
    settings.extend(part(|c| &c.traces, |c| &mut c.traces));
    settings.extend(part(|c| &c.status_page, |c| &mut c.status_page));
    // The sort is stable: within a group, the order above is kept.
    settings.sort_by_key(|setting| setting.group);
    settings
});

fn part<T: Declared + 'static>(
    get: fn(&Config) -> &T,
    get_mut: fn(&mut Config) -> &mut T,
) -> impl Iterator<Item = Setting> {
    T::settings().into_iter().map(move |setting| setting.within(get, get_mut))
}

/// Returns the setting of a field of the configuration file.
pub(crate) fn of_field(field: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.field == field)
}
