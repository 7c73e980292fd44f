//! imagelet as the node of a real cluster: etcd, kube-apiserver, controllers and scheduler, containerd with runc and CNI, and kubectl as the
//! user. Each test has a cluster in a network of its own, in which its scenes are played one after the other: to start one takes longer
//! than most scenes.

mod documents;
mod eviction;
mod faults;
mod fleet;
mod fleet_commands;
mod hollow;
mod identity;
mod image_sets;
mod kills;
mod kustomize;
mod newer;
mod node;
mod plane;
mod pods;
mod port;
mod prepull;
mod providers;
mod server_faults;
mod top;
mod workloads;
