//! Pods on Debian's containerd with runc and CNI, run by `imagelet run` from a directory of manifests. Each test has its own node
//! in its own network, so that tests run in parallel; each ends with a check for leftovers.

mod backoff;
mod commands;
mod crowd;
mod hooks;
mod images;
mod input;
mod jobs;
mod kills;
mod leftovers;
mod life;
mod logs;
mod ports;
mod probes;
mod restarts;
mod sandboxes;
mod security;
mod soak;
mod sources;
mod volumes;
