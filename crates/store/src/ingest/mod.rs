//! Layers in the making: unpacked in private, sharing files with others, copied and verified. No image knows them yet.

pub(crate) mod copy;
pub(crate) mod layer;
pub(crate) mod share;
pub(crate) mod whole;
