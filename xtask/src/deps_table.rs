//! The borders between the crates, as data. ARCHITECTURE.md draws them; `deps.rs` holds the workspace to them.
//!
//! A new arrow is added here, in a commit that says why, and nowhere else.

/// Border of a crate: the dependencies that it may have.
pub(crate) struct Border {
    /// Package name.
    pub(crate) package: &'static str,
    /// Crates of the workspace that it may use, directly.
    pub(crate) uses: &'static [&'static str],
    /// Crates of the workspace that its tests may use besides.
    pub(crate) tests_use: &'static [&'static str],
    /// If given, the only third-party crates it may use (its tests and its optional features are freer).
    pub(crate) third_party: Option<&'static [&'static str]>,
    /// Packages that must not be reachable from it by any path, tests and optional features aside.
    pub(crate) never_reaches: &'static [&'static str],
    /// Why.
    pub(crate) reason: &'static str,
}

/// A third-party crate which only some may use directly.
pub(crate) struct Wrapper {
    /// Names of the third-party packages.
    pub(crate) packages: &'static [&'static str],
    /// The crates of the workspace that may.
    pub(crate) owners: &'static [&'static str],
    /// Why.
    pub(crate) reason: &'static str,
}

/// Everything that touches the outside world, of what this workspace is likely to meet.
const IO: &[&str] = &["tokio", "mio", "rustix", "nix", "hyper", "reqwest", "tonic", "axum", "redb", "tempfile"];
const NETWORK: &[&str] = &["tokio", "mio", "hyper", "reqwest", "rustls", "tonic", "axum", "imagelet-registry"];
const GRPC_OR_HTTP: &[&str] = &["tonic", "prost", "hyper", "reqwest", "rustls", "axum", "redb", "k8s-openapi"];

/// An entry for every crate of the workspace.
pub(crate) const BORDERS: &[Border] = &[
    Border {
        package: "imagelet-oci",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["base64", "hex", "oci-spec", "serde", "serde_json", "sha2", "thiserror", "zeroize"]),
        never_reaches: IO,
        reason: "oci is pure values: no I/O, no clock, no environment",
    },
    Border {
        package: "imagelet-cri-api",
        uses: &["imagelet-oci"],
        tests_use: &[],
        third_party: Some(&["async-trait", "futures-core", "serde", "serde_json", "thiserror"]),
        never_reaches: IO,
        reason: "cri-api is the waist: traits and plain types, no I/O",
    },
    Border {
        package: "imagelet-engine-api",
        uses: &["imagelet-oci", "imagelet-cri-api"],
        tests_use: &[],
        third_party: Some(&["async-trait", "serde", "serde_json"]),
        never_reaches: IO,
        reason: "engine-api is the waist's other half: what only a store of ours can do, as a trait and plain types",
    },
    Border {
        package: "imagelet-cri-grpc",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-cri-api"],
        tests_use: &[],
        third_party: None,
        never_reaches: &["reqwest", "redb", "axum", "imagelet-image-manager", "imagelet-image-service"],
        reason: "cri-grpc converts, it decides nothing and stores nothing",
    },
    Border {
        package: "imagelet-credentials",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-single-flight"],
        tests_use: &[],
        third_party: None,
        never_reaches: &[
            "hyper",
            "reqwest",
            "rustls",
            "tonic",
            "axum",
            "redb",
            "imagelet-cri-api",
            "imagelet-registry",
        ],
        reason: "credentials finds who may have which secret: files and programs of the node, no network, no CRI",
    },
    Border {
        package: "imagelet-base",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["rustix"]),
        never_reaches: &["hyper", "reqwest", "tonic", "axum", "redb"],
        reason: "base is small mechanisms of the node: it knows nothing of images, pods and settings",
    },
    Border {
        package: "imagelet-single-flight",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["parking_lot", "tokio", "tokio-util", "tracing"]),
        never_reaches: &["reqwest", "hyper", "tonic", "axum", "redb"],
        reason: "single-flight shares work between callers, and knows nothing of the work",
    },
    Border {
        package: "imagelet-inflate",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["bytes", "crc32fast", "flate2", "parking_lot", "thiserror", "zstd"]),
        never_reaches: IO,
        reason: "inflate turns bytes into bytes: no network, no disk, no async, no digest",
    },
    Border {
        package: "imagelet-erofs",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["thiserror"]),
        never_reaches: IO,
        reason: "erofs is a format: it is handed where bytes go and come from, and knows no layers",
    },
    Border {
        package: "imagelet-registry",
        uses: &["imagelet-oci"],
        tests_use: &[],
        third_party: None,
        never_reaches: &["redb", "tonic", "axum", "imagelet-store", "imagelet-cri-api"],
        reason: "registry is HTTP only: no disk, no CRI",
    },
    Border {
        package: "imagelet-signature",
        uses: &["imagelet-oci"],
        tests_use: &[],
        third_party: Some(&["base64", "ring", "rustls-pki-types", "serde", "serde_json", "thiserror"]),
        never_reaches: IO,
        reason: "signature turns bytes into a verdict: it reads no policy file, no key file, and asks no registry",
    },
    Border {
        package: "imagelet-store",
        uses: &["imagelet-oci", "imagelet-base", "imagelet-erofs"],
        tests_use: &["imagelet-testdisk", "imagelet-testfault"],
        third_party: None,
        never_reaches: NETWORK,
        reason: "store is disk only: no network, no async",
    },
    Border {
        package: "imagelet-image-service",
        uses: &[
            "imagelet-base",
            "imagelet-oci",
            "imagelet-cri-api",
            "imagelet-engine-api",
            "imagelet-inflate",
            "imagelet-registry",
            "imagelet-signature",
            "imagelet-single-flight",
            "imagelet-store",
        ],
        tests_use: &["imagelet-testdisk", "imagelet-testfault"],
        third_party: None,
        never_reaches: &["tonic", "prost", "axum", "imagelet-image-manager", "k8s-openapi"],
        reason: "image-service does, it does not decide, and it does not know gRPC",
    },
    Border {
        package: "imagelet-image-manager",
        uses: &[
            "imagelet-base",
            "imagelet-oci",
            "imagelet-cri-api",
            "imagelet-credentials",
            "imagelet-engine-api",
            "imagelet-single-flight",
        ],
        tests_use: &[],
        third_party: None,
        never_reaches: GRPC_OR_HTTP,
        reason: "image-manager decides: no wire format, no HTTP, no store, no Kubernetes client types; collection asks a store \
                 of ours for what layers share",
    },
    Border {
        package: "imagelet-probe",
        uses: &[],
        tests_use: &["imagelet-registry"],
        third_party: None,
        never_reaches: &["reqwest", "tonic", "axum", "redb", "imagelet-cri-api"],
        reason: "probe asks containers over the network as the kubelet's probes do; it knows no pods, no images, no CRI",
    },
    Border {
        package: "imagelet-kuberuntime",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-cri-api", "imagelet-image-manager", "imagelet-probe"],
        tests_use: &[],
        third_party: None,
        never_reaches: &["tonic", "prost", "reqwest", "axum", "redb", "k8s-openapi", "imagelet-image-service"],
        reason: "kuberuntime runs pods over the waist: no wire format, no engine",
    },
    Border {
        package: "imagelet",
        uses: &[
            "imagelet-base",
            "imagelet-oci",
            "imagelet-cri-api",
            "imagelet-cri-grpc",
            "imagelet-credentials",
            "imagelet-engine-api",
            "imagelet-image-manager",
            "imagelet-image-service",
            "imagelet-kuberuntime",
            "imagelet-registry",
            "imagelet-store",
        ],
        tests_use: &["imagelet-testdisk", "imagelet-testfault"],
        third_party: None,
        never_reaches: &[],
        reason: "the binary speaks with the managers and services; of registry and store it has their options, and of store \
                 the trees that a command reads itself (ls, cat, cp), where a copy goes, and unmount",
    },
    Border {
        package: "imagelet-testdisk",
        uses: &["imagelet-base"],
        tests_use: &[],
        third_party: Some(&["fuser", "parking_lot", "rustix"]),
        never_reaches: &["tokio", "hyper", "redb", "imagelet-store"],
        reason: "testdisk is a disk for tests: it knows nothing of what is kept on it, and nothing that is shipped has it",
    },
    Border {
        package: "imagelet-testfault",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["nix", "rustix"]),
        never_reaches: &["tokio", "hyper", "redb", "imagelet-store"],
        reason: "testfault lets system calls of tests fail: it knows calls and a directory, and nothing that is shipped has it",
    },
    Border {
        package: "xtask",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["anyhow", "proc-macro2", "serde", "serde_json", "syn"]),
        never_reaches: IO,
        reason: "chores build in seconds and depend on nothing of the product",
    },
    Border {
        package: "imagelet-bench",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["anyhow", "parking_lot", "serde", "serde_json"]),
        never_reaches: IO,
        reason: "the benchmark measures programs, its own build among them, and depends on nothing of the product",
    },
];

/// Third-party crates with an owner. `deny.toml` says the same of the ones that matter most.
pub(crate) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        packages: &["tonic", "tonic-prost", "tonic-prost-build", "prost", "prost-types", "protox"],
        owners: &["imagelet-cri-grpc"],
        reason: "only cri-grpc knows protobuf and gRPC",
    },
    Wrapper {
        packages: &["rustls", "rustls-native-certs", "tokio-rustls"],
        owners: &["imagelet-registry", "imagelet-probe"],
        reason: "TLS is registry's, and that of probes, which accept what a container shows",
    },
    Wrapper {
        packages: &["ring"],
        owners: &["imagelet-signature"],
        reason: "signatures of images are verified in one place; TLS has it through rustls",
    },
    Wrapper {
        packages: &["h2"],
        owners: &["imagelet-probe"],
        reason: "gRPC's health protocol is one call with two small messages; cri-grpc is for CRI",
    },
    Wrapper {
        packages: &["hyper"],
        owners: &["imagelet-cri-grpc", "imagelet-registry", "imagelet-probe", "imagelet"],
        reason: "below gRPC, where the server tracks every task of its connections; below registry's client, and its tests; for probes, \
                 which must not reuse a connection nor follow a proxy; and for the one request that a command of the \
                 binary asks over an admin socket, or of a runtime that is to stream, where no registry is meant",
    },
    Wrapper { packages: &["axum"], owners: &["imagelet"], reason: "only the binary serves HTTP" },
    Wrapper {
        packages: &["fuser"],
        owners: &["imagelet-testdisk"],
        reason: "a file system of our own serves the disks of tests, and nothing else",
    },
    Wrapper {
        packages: &["nix"],
        owners: &["imagelet-testfault"],
        reason: "for tracing alone, which rustix does not do; everything else goes through rustix",
    },
    Wrapper { packages: &["redb"], owners: &["imagelet-store"], reason: "only store keeps records" },
    Wrapper {
        packages: &["clap", "clap_complete", "indicatif", "tracing-subscriber", "serde-saphyr"],
        owners: &["imagelet"],
        reason: "the command line and Kubernetes' YAML end at the binary",
    },
    Wrapper {
        packages: &["anyhow"],
        owners: &["imagelet", "imagelet-bench", "xtask"],
        reason: "libraries have error types that callers can act on",
    },
];
