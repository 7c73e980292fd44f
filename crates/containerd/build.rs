//! Compiles the messages of `proto/` without `protoc`.

use std::error::Error;

const FILES: [&str; 7] = ["types", "introspection", "leases", "content", "snapshots", "images", "events"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = FILES.map(|name| format!("proto/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        .build_server(false)
        .build_transport(false)
        .include_file("packages.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
