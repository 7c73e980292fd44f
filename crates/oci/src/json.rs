//! [`null_as_default`]: JSON as Go programs write it. Used by the fields of descriptors, manifests, indexes and configs.

use serde::{Deserialize, Deserializer};

/// Go programs write `null` for an empty list or map.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
