//! The view of the store that podman and CRI-O read: an additional image store of containers/storage, `<root>/podman`, whose
//! layers are symbolic links to the directories of the store's own, or mounts of its EROFS files. Nothing is copied but manifests and configs.
//!
//! The view follows the records: [`view::View::follow`] is called after every change of the database and when the store is
//! opened, and updates the view from the records, whatever state it had. Layers that a container of podman uses stay: [`users`]
//! finds these. No module of the view decides about images, and the rest of the store uses [`view::View`] alone.

pub(crate) mod contents;
mod documents;
mod files;
mod locks;
mod mounted;
mod placed;
mod sizes;
pub(crate) mod users;
pub(crate) mod view;
mod write;

/// The directory in the store's root.
pub(crate) const DIRECTORY: &str = "podman";
