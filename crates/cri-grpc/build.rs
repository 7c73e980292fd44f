//! Compiles `proto/runtime/v1/api.proto` without `protoc`. The descriptor set is kept next to the generated code: the
//! golden test of the wire contract reads it.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let proto = "proto/runtime/v1/api.proto";
    println!("cargo::rerun-if-changed={proto}");
    let descriptors = protox::compile([proto], ["proto"])?;
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo tells build scripts where to write by an environment variable"
    )]
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("runtime.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Methods without an override answer Unimplemented; `server::served` answers first, with an explanation.
        .generate_default_stubs(true)
        // Its fields are secrets: `pb` has a Debug that shows none of them.
        .skip_debug([".runtime.v1.AuthConfig"])
        .compile_fds(descriptors)?;
    Ok(())
}
