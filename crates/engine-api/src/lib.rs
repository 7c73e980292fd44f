//! The second half of the waist: what a store of ours can do with images and CRI has no call for.
//!
//! The trait [`ImageEngine`], and its plain types. Two implementations: the embedded engine, and the client of the admin
//! socket of an agent that holds the root. Where a foreign runtime keeps the images there is none: whoever has an
//! [`ImageEngine`] has every call of it. Where our engine fills the store of such a runtime, that is a
//! [`runtime_store::RuntimeStore`]. No I/O, no clock, no wire format here. With feature
//! `testing`: the conformance suite of both.
#![deny(missing_docs)]

mod check;
mod convert;
mod engine;
mod layers;
mod podman;
pub mod runtime_store;
#[cfg(feature = "testing")]
pub mod testing;
mod transfer;

pub use check::{CheckProgress, CheckReport, CheckRequest, CheckSink, LayerShapes, Problem, ProblemKind};
pub use convert::{ConvertReport, ConvertRequest, ConvertedImage, LayerShape, LeftLayer};
pub use engine::ImageEngine;
pub use layers::{
    ImageLayers, ImageMount, ImageUsage, LayerLease, LayersOf, MountRequest, MountedImage, UnfinishedPulls,
};
pub use podman::{HiddenImage, PodmanStoreReport, PodmanStoreRequest};
pub use transfer::{
    Compress, ExportOptions, Format, ImageDocuments, ImportOptions, ImportReport, ImportedImage, PassedBy, Platforms,
};
