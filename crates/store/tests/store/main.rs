//! The store through its public interface, on real directories; mounts and full disks on real file systems, which need
//! root and fail without it. With layers of each shape.
#![expect(clippy::duplicate_mod, reason = "every test is there once for each shape of layers")]

mod directories;
mod images;
