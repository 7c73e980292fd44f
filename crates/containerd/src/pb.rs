//! The generated messages and clients.

#[expect(unreachable_pub, clippy::allow_attributes_without_reason, reason = "generated code")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));
}

pub(crate) use generated::containerd::services::{
    content::v1 as content, events::v1 as events, images::v1 as images, introspection::v1 as introspection,
    leases::v1 as leases, snapshots::v1 as snapshots,
};
pub(crate) use generated::containerd::types;
