//! Pods on Debian's containerd with runc and CNI, run by `imagelet run` from a directory of manifests. Each test has a node of
//! its own, in a network of its own, so that they run beside each other; each ends with a look at what is left.

mod backoff;
mod commands;
mod crowd;
mod ground;
mod hooks;
mod images;
mod input;
mod jobs;
mod kills;
mod life;
mod logs;
mod ports;
mod probes;
mod restarts;
mod security;
mod soak;
mod sources;
mod volumes;
