//! The second half of the waist: operations on images that our own store has and CRI has no call for.
//!
//! The trait [`ImageEngine`], and its plain types. Two implementations: the embedded engine, and the client of the
//! process that owns the root. If a foreign runtime keeps the images there is none: a caller with an
//! [`ImageEngine`] can make every call of it. The store of such a runtime, when our engine fills it, is a
//! [`runtime_store::RuntimeStore`]. No I/O, no clock, no wire format in this crate. With feature `testing`: the
//! conformance suite of both.

mod check;
mod convert;
mod image_engine;
mod layers;
mod podman;
mod runtime_pins;
pub mod runtime_store;
#[cfg(feature = "testing")]
pub mod testing;
mod transfer;

pub use check::{CheckProgress, CheckReport, CheckRequest, CheckSink, LayerShapes, Problem, ProblemKind};
pub use convert::{ConvertReport, ConvertRequest, ConvertedImage, LayerShape, LeftLayer};
pub use image_engine::ImageEngine;
pub use layers::{
    ImageLayers, ImageMount, ImageUsage, LayerLease, LayersOf, MountRequest, MountedImage, UnfinishedPulls,
};
pub use podman::{HiddenImage, PodmanStoreReport, PodmanStoreRequest};
pub use runtime_pins::RuntimePins;
pub use transfer::{
    Compress, ExportOptions, Format, ImageDocuments, ImportOptions, ImportReport, ImportedImage, PassedBy, Platforms,
};
