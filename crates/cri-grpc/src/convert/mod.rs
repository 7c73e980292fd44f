//! Protobuf ↔ the plain types of `cri-api`, pure and total: fields that a peer omits become the default, unknown fields are
//! ignored, and an unknown enum value becomes the cautious one. A message that is absent and one whose
//! fields are all empty mean the same. Fields for Windows and deprecated fields are neither read nor sent.

use cri_api as api;

use crate::pb;

/// `Some`, unless there is nothing in it.
fn filled<T: Default + PartialEq, U: From<T>>(value: T) -> Option<U> {
    (value != T::default()).then(|| U::from(value))
}

/// The plain value of a message that may be absent.
fn or_default<T, U: Default + From<T>>(value: Option<T>) -> U {
    value.map(U::from).unwrap_or_default()
}

/// `Some`, unless it is empty.
fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

pub(crate) fn all<T, U: From<T>>(values: Vec<T>) -> Vec<U> {
    values.into_iter().map(U::from).collect()
}

/// Two structs with the same field names, moved field by field in both directions.
macro_rules! same_fields {
    ($($pb:ident = $api:ident { $($field:ident),* $(,)? })*) => {$(
        impl From<pb::$pb> for api::$api {
            fn from(pb::$pb { $($field),* }: pb::$pb) -> Self {
                Self { $($field),* }
            }
        }
        impl From<api::$api> for pb::$pb {
            fn from(api::$api { $($field),* }: api::$api) -> Self {
                Self { $($field),* }
            }
        }
    )*};
}

/// Two structs field by field in both directions: how the field is converted (a function of [`to_api`] and of [`to_pb`]),
/// its name on the wire, its name in the plain type. After `|`: fields of the wire that are passed over. After `+`: fields
/// of the plain type that are not on the wire.
macro_rules! fields {
    ($($pb:ident = $api:ident {
        $($how:ident $wire:ident $plain:ident),* $(,)? $(| $($skip:ident),*)? $(+ $($extra:ident),*)?
    })*) => {$(
        impl From<pb::$pb> for api::$api {
            fn from(message: pb::$pb) -> Self {
                let pb::$pb { $($wire,)* $($($skip: _,)*)? } = message;
                Self { $($plain: $crate::convert::to_api::$how($wire),)* $($($extra: Default::default(),)*)? }
            }
        }
        impl From<api::$api> for pb::$pb {
            fn from(value: api::$api) -> Self {
                let api::$api { $($plain,)* $($($extra: _,)*)? } = value;
                Self { $($wire: $crate::convert::to_pb::$how($plain),)* $($($skip: Default::default(),)*)? }
            }
        }
    )*};
}

/// An enum and its numbers in both directions; a number without a name becomes the value after `or`.
macro_rules! choices {
    ($($pb:path = $api:ident or $unknown:ident { $($wire:ident $plain:ident),* $(,)? })*) => {$(
        impl $crate::convert::WireEnum for api::$api {
            fn of(number: i32) -> Self {
                use $pb as Wire;
                match Wire::try_from(number) {
                    $(Ok(Wire::$wire) => Self::$plain,)*
                    Err(_) => Self::$unknown,
                }
            }

            fn number(self) -> i32 {
                use $pb as Wire;
                let wire = match self {
                    $(Self::$plain => Wire::$wire,)*
                };
                wire as i32
            }
        }
    )*};
}

mod containers;
mod images;
mod info;
mod sandboxes;
mod security;
mod stats;

/// An enum that is a number on the wire.
trait WireEnum {
    fn of(number: i32) -> Self;
    fn number(self) -> i32;
}

/// How fields are read.
mod to_api {
    use super::{WireEnum, api, pb};

    pub(super) fn same<T>(value: T) -> T {
        value
    }

    pub(super) fn message<T, U: Default + From<T>>(value: Option<T>) -> U {
        super::or_default(value)
    }

    /// A message that is always sent, empty or not: peers read its fields without a check that it is present.
    pub(super) fn always<T, U: Default + From<T>>(value: Option<T>) -> U {
        super::or_default(value)
    }

    /// A message whose absence says something of its own.
    pub(super) fn maybe<T, U: From<T>>(value: Option<T>) -> Option<U> {
        value.map(U::from)
    }

    pub(super) fn list<T, U: From<T>>(values: Vec<T>) -> Vec<U> {
        super::all(values)
    }

    pub(super) fn choice<T: WireEnum>(number: i32) -> T {
        T::of(number)
    }

    pub(super) fn number(value: Option<pb::UInt64Value>) -> Option<u64> {
        value.map(|value| value.value)
    }

    pub(super) fn signed(value: Option<pb::Int64Value>) -> Option<i64> {
        value.map(|value| value.value)
    }

    /// A text that is empty where there is none.
    pub(super) fn text(value: String) -> Option<String> {
        super::non_empty(value)
    }

    pub(super) fn ready(state: i32) -> bool {
        state == pb::PodSandboxState::SandboxReady as i32
    }

    pub(super) fn is_ready(filter: Option<pb::PodSandboxStateValue>) -> Option<bool> {
        filter.map(|value| ready(value.state))
    }

    pub(super) fn state(filter: Option<pb::ContainerStateValue>) -> Option<api::ContainerState> {
        filter.map(|value| api::ContainerState::of(value.state))
    }

    pub(super) fn mountpoint(id: Option<pb::FilesystemIdentifier>) -> String {
        id.map(|id| id.mountpoint).unwrap_or_default()
    }

    pub(super) fn resources(resources: Option<pb::ContainerResources>) -> Option<api::LinuxContainerResources> {
        resources.and_then(|resources| resources.linux).map(Into::into)
    }

    pub(super) fn user(user: Option<pb::ContainerUser>) -> Option<api::ContainerUser> {
        user.and_then(|user| user.linux).map(Into::into)
    }

    pub(super) fn devices(devices: Vec<pb::CdiDevice>) -> Vec<String> {
        devices.into_iter().map(|device| device.name).collect()
    }

    pub(super) fn signal(number: i32) -> Option<api::Signal> {
        let name = pb::Signal::try_from(number).ok()?.as_str_name().strip_prefix("SIGNAL_")?;
        api::Signal::from_name(&name.replace("PLUS", "+").replace("MINUS", "-"))
    }
}

/// How fields are written.
mod to_pb {
    use super::{WireEnum, api, pb};

    pub(super) fn same<T>(value: T) -> T {
        value
    }

    pub(super) fn message<T: Default + PartialEq, U: From<T>>(value: T) -> Option<U> {
        super::filled(value)
    }

    pub(super) fn always<T, U: From<T>>(value: T) -> Option<U> {
        Some(U::from(value))
    }

    pub(super) fn maybe<T, U: From<T>>(value: Option<T>) -> Option<U> {
        value.map(U::from)
    }

    pub(super) fn list<T, U: From<T>>(values: Vec<T>) -> Vec<U> {
        super::all(values)
    }

    pub(super) fn choice<T: WireEnum>(value: T) -> i32 {
        value.number()
    }

    pub(super) fn number(value: Option<u64>) -> Option<pb::UInt64Value> {
        value.map(|value| pb::UInt64Value { value })
    }

    pub(super) fn signed(value: Option<i64>) -> Option<pb::Int64Value> {
        value.map(|value| pb::Int64Value { value })
    }

    pub(super) fn text(value: Option<String>) -> String {
        value.unwrap_or_default()
    }

    pub(super) fn ready(ready: bool) -> i32 {
        let state = if ready { pb::PodSandboxState::SandboxReady } else { pb::PodSandboxState::SandboxNotready };
        state as i32
    }

    pub(super) fn is_ready(filter: Option<bool>) -> Option<pb::PodSandboxStateValue> {
        filter.map(|is_ready| pb::PodSandboxStateValue { state: ready(is_ready) })
    }

    pub(super) fn state(filter: Option<api::ContainerState>) -> Option<pb::ContainerStateValue> {
        filter.map(|state| pb::ContainerStateValue { state: state.number() })
    }

    pub(super) fn mountpoint(mountpoint: String) -> Option<pb::FilesystemIdentifier> {
        super::non_empty(mountpoint).map(|mountpoint| pb::FilesystemIdentifier { mountpoint })
    }

    pub(super) fn resources(resources: Option<api::LinuxContainerResources>) -> Option<pb::ContainerResources> {
        resources.map(|linux| pb::ContainerResources { linux: Some(linux.into()), windows: None })
    }

    pub(super) fn user(user: Option<api::ContainerUser>) -> Option<pb::ContainerUser> {
        user.map(|linux| pb::ContainerUser { linux: Some(linux.into()) })
    }

    pub(super) fn devices(names: Vec<String>) -> Vec<pb::CdiDevice> {
        names.into_iter().map(|name| pb::CdiDevice { name }).collect()
    }

    pub(super) fn signal(signal: Option<api::Signal>) -> i32 {
        let Some(signal) = signal else { return pb::Signal::RuntimeDefault as i32 };
        let name = signal.as_str().replace('+', "PLUS").replace('-', "MINUS");
        pb::Signal::from_str_name(&format!("SIGNAL_{name}")).unwrap_or(pb::Signal::RuntimeDefault) as i32
    }
}

#[cfg(test)]
#[path = "arbitrary_tests.rs"]
mod arbitrary;
#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
