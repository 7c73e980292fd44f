//! The store through its public interface, on real directories; mounts and full disks on real file systems, which need
//! root and fail without it.

mod check;
mod commit;
mod concurrency;
mod crash;
mod full_disk;
mod keeping;
mod mount;
mod names;
mod open;
mod order;
mod ordinary_user;
mod power_cut;
mod remove;
mod sharing;
mod support;
mod view;
