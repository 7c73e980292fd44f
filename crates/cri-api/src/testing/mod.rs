//! Fakes and suites that tests of every crate share: an in-memory [`FakeImageService`] and [`FakeRuntimeService`], and the
//! [`conformance`] suite that each implementation of [`ImageService`](crate::ImageService) runs.
//!
//! The fakes hold a real model of the semantics, with a registry inside; they touch no disk, no network and no clock.
//! Only tests may enable the feature `testing`.

pub mod conformance;
mod fake;
mod fake_pods;
mod fake_registry;
mod fake_runtime;
mod faults;
pub mod fixtures;

pub use fake::{Call, FakeImageService};
pub use fake_pods::{FakeExec, FakeProcess};
pub use fake_registry::FakeImage;
pub use fake_runtime::FakeRuntimeService;
pub use faults::{CallKind, Faults, Gate};
