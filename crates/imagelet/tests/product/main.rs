//! The product, through its built program, against real daemons: Debian's docker-registry and containerd, skopeo,
//! umoci, real file systems. One module a topic. Most need root and what `scripts/prerequisites.sh` installs; they say so where
//! something is missing. Layers are what serves best here, which is EROFS files, but in what [`in_directories`] has once more. No test reaches beyond loopback, uses a fixed port, or waits by the clock.
#![expect(clippy::disallowed_methods, reason = "these tests start programs: that is what they are for")]
#![expect(clippy::duplicate_mod, reason = "some suites are there once for each shape of layers")]

mod admin;
mod agent_store;
mod api;
mod archives;
mod backoff;
mod behind_agent;
mod clock_steps;
mod cluster;
mod config;
mod configuration;
mod conformance;
mod convert;

mod crio;
mod crowd;
mod cut_off;
mod dashboards;
mod deadlines;
mod destinations;
mod documents;
mod dropin_faults;
mod engines_trees;
mod ensure;
mod explain;
mod files;
mod gc_clock;
mod gc_commands;
mod gc_containerd;
mod gc_containers;
mod gc_disk;
mod gc_kill;
mod gc_rules;
mod go_documents;
mod grpc_clients;
mod help;
mod hosts;
mod housekeeping;
mod in_directories;
mod in_images;
mod in_runtime;
mod interrupt;
mod kill;
mod layers;
mod layout;
mod limits;
mod listeners;
mod lists;
mod login;
mod logs;
mod manifests;
mod memory;
mod modes;
mod node_status;
mod odd_registries;
mod outputs;
mod page_cache;
mod plugins;
mod podman;
mod podman_mounted;
mod pods;
mod pull_engine;
mod pull_real;
mod push;
mod reload;
mod remote;
mod restart;
mod runtime_conformance;
mod secrets;
mod serve;
mod shared_content;
mod signatures;
mod status_page;
mod store_owner;
mod streaming;
mod support;
mod tenants;
mod terminal;
mod traces;
mod tree;
mod warm;

testdisk::serve!();
