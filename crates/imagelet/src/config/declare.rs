//! The declaration of settings: [`settings!`] turns one table into the struct that holds the values with their defaults, and a [`Setting`]
//! for each of them. The file's field, the flag, the variable, the help text, the reference page and `imagelet config` are all derived from
//! it. Knows no particular setting. Called by [`super::settings`] and [`super::model`].

use serde_json::Value;

use super::kind::{Form, Kind};
use super::value::{Raw, Wrong};

/// A setting whose value is stored in a `T`.
pub(crate) struct Setting<T> {
    /// Field of the configuration file, spelled as in KubeletConfiguration if it has the field. A dot selects an entry of a map.
    pub(crate) field: &'static str,
    /// The long flag, without dashes.
    pub(crate) flag: &'static str,
    /// The environment variable: `IMAGELET_` and the flag in capitals.
    pub(crate) variable: String,
    /// The short flag, if any: that of crictl.
    pub(crate) short: Option<char>,
    /// Placeholder of the value in the help text, and separator of a list.
    pub(crate) form: Form,
    /// Heading under which the help and the reference page show the setting.
    pub(crate) group: Group,
    /// Text of `--help`. A default that depends on other facts is written at its end: ` [default: …]`.
    pub(crate) help: &'static str,
    /// Set for a field that is also taken from a kubelet's configuration file.
    pub(crate) kubelet: Option<Zero>,
    /// True if a running agent applies a new value when it reloads its configuration. Any other setting needs a restart.
    pub(crate) reloads: bool,
    /// Checks a value and stores it.
    apply: Apply<T>,
    /// Returns the value in force, in the form of the file; null if there is none.
    show: Show<T>,
    /// Copies the value of one target into another.
    carry: Carry<T>,
}

type Apply<T> = Box<dyn Fn(&mut T, Raw<'_>) -> Result<(), Wrong> + Send + Sync>;
type Show<T> = Box<dyn Fn(&T) -> Value + Send + Sync>;
type Carry<T> = Box<dyn Fn(&T, &mut T) + Send + Sync>;

/// Meaning of a zero value in a kubelet's configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zero {
    /// The field is treated as unset.
    Unset,
    /// The zero is a value.
    Counts,
}

impl<T: 'static> Setting<T> {
    /// Creates a setting whose value is a field of `T`.
    pub(super) fn new<V: Clone + 'static>(
        group: Group,
        names: (&'static str, &'static str, &'static str),
        kind: Kind<V>,
        get: fn(&T) -> &V,
        get_mut: fn(&mut T) -> &mut V,
    ) -> Self {
        let Kind { form, read, show } = kind;
        let apply = move |target: &mut T, raw: Raw<'_>| {
            *get_mut(target) = read(raw)?;
            Ok(())
        };
        let show = Box::new(move |target: &T| show(get(target)));
        let carry = Box::new(move |from: &T, to: &mut T| get_mut(to).clone_from(get(from)));
        Self::with(group, names, form, (Box::new(apply), show, carry))
    }

    /// Creates a setting with its own functions to read and show it.
    pub(super) fn with(
        group: Group,
        (field, flag, help): (&'static str, &'static str, &'static str),
        form: Form,
        (apply, show, carry): (Apply<T>, Show<T>, Carry<T>),
    ) -> Self {
        let variable = format!("IMAGELET_{}", flag.replace('-', "_").to_uppercase());
        Self {
            field,
            flag,
            variable,
            short: None,
            form,
            group,
            help,
            kubelet: None,
            reloads: false,
            apply,
            show,
            carry,
        }
    }

    /// Gives the flag a letter.
    pub(super) fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }

    /// Takes the field from a kubelet's configuration file unless it is zero there.
    pub(super) fn kubelet(self) -> Self {
        Self { kubelet: Some(Zero::Unset), ..self }
    }

    /// Takes the field from a kubelet's configuration file, zero included.
    pub(super) fn kubelet_with_zero(self) -> Self {
        Self { kubelet: Some(Zero::Counts), ..self }
    }

    /// Takes a new value when a running agent reloads its configuration.
    pub(super) fn reloads(self) -> Self {
        Self { reloads: true, ..self }
    }

    /// Returns the same setting for a type `W` that contains `T`.
    pub(super) fn within<W: 'static>(self, get: fn(&W) -> &T, get_mut: fn(&mut W) -> &mut T) -> Setting<W> {
        let Self { field, flag, variable, short, form, group, help, kubelet, reloads, apply, show, carry } = self;
        let apply = Box::new(move |whole: &mut W, raw: Raw<'_>| apply(get_mut(whole), raw));
        let show = Box::new(move |whole: &W| show(get(whole)));
        let carry = Box::new(move |from: &W, to: &mut W| carry(get(from), get_mut(to)));
        Setting { field, flag, variable, short, form, group, help, kubelet, reloads, apply, show, carry }
    }
}

impl<T> Setting<T> {
    /// Checks a value and stores it in `target`.
    pub(crate) fn apply(&self, target: &mut T, raw: Raw<'_>) -> Result<(), Wrong> {
        (self.apply)(target, raw)
    }

    /// Returns the value in force, in the form of the file; null if there is none.
    pub(crate) fn show(&self, target: &T) -> Value {
        (self.show)(target)
    }

    /// Copies the value of `from` into `to`.
    pub(crate) fn carry(&self, from: &T, to: &mut T) {
        (self.carry)(from, to);
    }

    /// Returns the help text without the default, and the default, if any: the one that the text names, otherwise
    /// the value in `defaults`.
    pub(crate) fn help_and_default(&self, defaults: &T) -> (&'static str, Option<String>) {
        if let Some((text, rest)) = self.help.split_once(" [default: ") {
            return (text, rest.strip_suffix(']').map(str::to_owned));
        }
        (self.help, Some(self.shown(defaults)).filter(|text| !text.is_empty()))
    }

    /// Returns true if a value must not be shown.
    pub(crate) fn is_secret(&self) -> bool {
        self.form.secret
    }

    /// Returns the value in force in one line; empty if there is none.
    pub(crate) fn shown(&self, target: &T) -> String {
        match self.show(target) {
            Value::Null => String::new(),
            Value::String(text) => text,
            Value::Array(list) => {
                let separator = self.form.list.map(String::from).unwrap_or_default();
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(&separator)
            }
            Value::Object(map) => {
                let pairs = map.iter().map(|(key, value)| format!("{key}<{}", value.as_str().unwrap_or_default()));
                pairs.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        }
    }
}

/// Topic of a setting: a heading of the help text and of the reference page, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Node,
    Pods,
    Cluster,
    Pulls,
    Credentials,
    Collection,
    Engine,
    Logging,
}

impl Group {
    /// Returns the heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Node => "The node",
            Self::Pods => "Pods",
            Self::Cluster => "The cluster",
            Self::Pulls => "Pulls",
            Self::Credentials => "Credentials",
            Self::Collection => "Garbage collection",
            Self::Engine => "The embedded engine",
            Self::Logging => "The log",
        }
    }
}

/// Declares settings. With `struct`, each row is a field with its type and default, and the struct gets `initial(…)`, which returns the
/// defaults; fields below `+ other` are no settings. With `impl`, each row is a field of an existing type. Both get `settings()`, which
/// returns the [`Setting`]s in order. Each row continues with the field of the file, the flag, the [`Kind`] of the values and the help
/// text, and ends with the required methods of [`Setting`].
macro_rules! settings {
    (
        $(#[$struct_meta:meta])*
        struct $name:ident ($($argument:ident: $argument_type:ty),*) {
            $($group:ident {$(
                $(#[$meta:meta])*
                $value:ident: $type:ty = $default:expr =>
                    $field:literal, $flag:literal, $kind:expr, $help:literal $(, $method:ident($($parameter:tt)*))*;
            )*})*
            $(+ other {$(
                $(#[$other_meta:meta])*
                $other:ident: $other_type:ty = $other_default:expr;
            )*})?
        }
    ) => {
        $(#[$struct_meta])*
        pub(crate) struct $name {
            $($($(#[$meta])* pub(crate) $value: $type,)*)*
            $($($(#[$other_meta])* pub(crate) $other: $other_type,)*)?
        }

        impl $name {
            /// Returns the defaults.
            pub(in crate::config) fn initial($($argument: $argument_type),*) -> Self {
                Self { $($($value: $default,)*)* $($($other: $other_default,)*)? }
            }
        }

        crate::config::declare::settings! {
            impl $name {
                $($group {$(
                    $value => $field, $flag, $kind, $help $(, $method($($parameter)*))*;
                )*})*
            }
        }
    };
    (
        impl $name:ident {
            $($group:ident {$(
                $first:ident $(.$next:ident)* =>
                    $field:literal, $flag:literal, $kind:expr, $help:literal $(, $method:ident($($parameter:tt)*))*;
            )*})*
        }
    ) => {
        impl crate::config::declare::Declared for $name {
            fn settings() -> Vec<crate::config::declare::Setting<Self>> {
                vec![$($(
                    crate::config::declare::Setting::new(
                        crate::config::declare::Group::$group,
                        ($field, $flag, $help),
                        $kind,
                        |values: &Self| &values.$first$(.$next)*,
                        |values: &mut Self| &mut values.$first$(.$next)*,
                    )
                    $(.$method($($parameter)*))*,
                )*)*]
            }
        }
    };
}
pub(crate) use settings;

/// A struct whose fields are settings.
pub(super) trait Declared: Sized {
    /// Returns the settings in the order of their declaration.
    fn settings() -> Vec<Setting<Self>>;
}
