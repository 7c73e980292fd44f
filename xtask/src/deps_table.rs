//! The borders between the crates, as data. ARCHITECTURE.md draws them; `deps.rs` holds the workspace to them.
//!
//! A new arrow is added here, in a commit with the reason, and nowhere else.

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

/// A crate that uses no other of the workspace, and whatever third parties it likes.
const ALONE: Border =
    Border { package: "", uses: &[], tests_use: &[], third_party: None, never_reaches: &[], reason: "" };

/// An entry for every crate of the workspace.
pub(crate) const BORDERS: &[Border] = &[
    Border {
        package: "imagelet-oci",
        third_party: Some(&["base64", "hex", "oci-spec", "serde", "serde_json", "sha2", "thiserror", "zeroize"]),
        never_reaches: IO,
        reason: "oci is pure values: no I/O, no clock, no environment",
        ..ALONE
    },
    Border {
        package: "imagelet-cri-api",
        uses: &["imagelet-base", "imagelet-oci"],
        third_party: Some(&["async-trait", "futures-core", "schemars", "serde", "serde_json", "thiserror"]),
        never_reaches: IO,
        reason: "cri-api is the waist: traits and plain types, those of our own engine among them; no I/O",
        ..ALONE
    },
    Border {
        package: "imagelet-containerd",
        // A layer that is an EROFS file gets the attributes of the root of containers when it is placed.
        uses: &["imagelet-base", "imagelet-erofs", "imagelet-oci", "imagelet-cri-api"],
        never_reaches: &["reqwest", "redb", "axum", "imagelet-store", "imagelet-registry"],
        reason: "containerd speaks containerd's API; what is pulled, and from where, is decided above it",
        ..ALONE
    },
    Border {
        package: "imagelet-cri-grpc",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-cri-api"],
        never_reaches: &["reqwest", "redb", "axum", "imagelet-image-manager", "imagelet-image-service"],
        reason: "cri-grpc converts, it decides nothing and stores nothing",
        ..ALONE
    },
    Border {
        package: "imagelet-credentials",
        uses: &["imagelet-base", "imagelet-oci"],
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
        ..ALONE
    },
    Border {
        package: "imagelet-base",
        third_party: Some(&["base64", "libc", "rustix", "strsim"]),
        never_reaches: &["hyper", "reqwest", "tonic", "axum", "redb"],
        reason: "base is small mechanisms of the node: it knows nothing of images, pods and settings",
        ..ALONE
    },
    Border {
        package: "imagelet-erofs",
        third_party: Some(&["thiserror"]),
        never_reaches: IO,
        reason: "erofs is a format: it is handed where bytes go and come from, and knows no layers",
        ..ALONE
    },
    Border {
        package: "imagelet-registry",
        uses: &["imagelet-base", "imagelet-oci"],
        never_reaches: &["redb", "tonic", "axum", "imagelet-store", "imagelet-cri-api"],
        reason: "registry is HTTP only: no disk, no CRI",
        ..ALONE
    },
    Border {
        package: "imagelet-signature",
        uses: &["imagelet-oci"],
        third_party: Some(&["base64", "ring", "rustls-pki-types", "serde", "serde_json", "thiserror", "x509-parser"]),
        never_reaches: IO,
        reason: "signature turns bytes into a verdict: it reads no policy file, no key file, and asks no registry",
        ..ALONE
    },
    Border {
        package: "imagelet-store",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-cri-api", "imagelet-erofs"],
        tests_use: &["imagelet-testdisk", "imagelet-testfault"],
        never_reaches: NETWORK,
        reason: "store is disk only: no network, no async; reports of its work are the plain types of cri-api",
        ..ALONE
    },
    Border {
        package: "imagelet-image-service",
        uses: &[
            "imagelet-base",
            "imagelet-oci",
            "imagelet-cri-api",
            "imagelet-registry",
            "imagelet-signature",
            "imagelet-store",
        ],
        tests_use: &["imagelet-testdisk", "imagelet-testfault"],
        never_reaches: &["tonic", "prost", "axum", "imagelet-image-manager", "k8s-openapi"],
        reason: "image-service does, it does not decide, and it does not know gRPC",
        ..ALONE
    },
    Border {
        package: "imagelet-image-manager",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-cri-api", "imagelet-credentials"],
        never_reaches: GRPC_OR_HTTP,
        reason: "image-manager decides: no wire format, no HTTP, no store, no Kubernetes client types; collection asks a store \
                 of ours for what layers share",
        ..ALONE
    },
    Border {
        package: "imagelet-kuberuntime",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-cri-api", "imagelet-image-manager", "imagelet-manifest"],
        tests_use: &["imagelet-registry"],
        never_reaches: &["tonic", "prost", "reqwest", "axum", "redb", "kube", "imagelet-image-service"],
        reason: "kuberuntime runs pods over the waist: no wire format, no engine, no client of an API server",
        ..ALONE
    },
    Border {
        package: "imagelet-manifest",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-credentials", "imagelet-image-manager"],
        third_party: Some(&[
            "base64",
            "k8s-openapi",
            "serde",
            "serde-saphyr",
            "serde_ignored",
            "serde_json",
            "serde_path_to_error",
            "thiserror",
        ]),
        never_reaches: &[
            "reqwest",
            "tonic",
            "axum",
            "redb",
            "clap",
            "kube",
            "imagelet-store",
            "imagelet-image-service",
        ],
        reason: "manifest reads what people wrote: it pulls nothing, runs nothing and asks no API server",
        ..ALONE
    },
    Border {
        package: "imagelet-cluster",
        uses: &["imagelet-base", "imagelet-oci", "imagelet-cri-api", "imagelet-image-manager", "imagelet-kuberuntime"],
        never_reaches: &["tonic", "prost", "axum", "redb", "clap", "imagelet-store", "imagelet-image-service"],
        reason: "cluster speaks with the API server and serves the kubelet's port: it runs no pod and pulls no image",
        ..ALONE
    },
    Border {
        package: "imagelet-fleet",
        uses: &[
            "imagelet-base",
            "imagelet-oci",
            "imagelet-cri-api",
            "imagelet-credentials",
            "imagelet-cluster",
            "imagelet-image-manager",
            "imagelet-registry",
        ],
        never_reaches: &["tonic", "prost", "axum", "redb", "clap", "imagelet-store", "imagelet-image-service"],
        reason: "fleet has the objects and rules of many nodes, and the controller, which resolves tags: it pulls nothing and runs no pod",
        ..ALONE
    },
    Border {
        package: "imagelet-agent",
        uses: &[
            "imagelet-base",
            "imagelet-cluster",
            "imagelet-oci",
            "imagelet-cri-api",
            "imagelet-cri-grpc",
            "imagelet-image-manager",
            "imagelet-kuberuntime",
            "imagelet-manifest",
        ],
        tests_use: &["imagelet-image-service", "imagelet-registry"],
        never_reaches: &[
            "clap",
            "tracing-subscriber",
            "reqwest",
            "redb",
            "imagelet-registry",
            "imagelet-store",
            "imagelet-image-service",
        ],
        reason: "the agent is a long-running process and what others ask of it: no command line, no configuration, no output, \
                 and the store only by its trait; its status page is served on a port like the kubelet's",
        ..ALONE
    },
    Border {
        package: "imagelet",
        uses: &[
            "imagelet-base",
            "imagelet-agent",
            "imagelet-cluster",
            "imagelet-containerd",
            "imagelet-oci",
            "imagelet-cri-api",
            "imagelet-cri-grpc",
            "imagelet-credentials",
            "imagelet-fleet",
            "imagelet-image-manager",
            "imagelet-image-service",
            "imagelet-kuberuntime",
            "imagelet-manifest",
            "imagelet-registry",
            "imagelet-store",
        ],
        tests_use: &["imagelet-testdisk", "imagelet-testfault"],
        reason: "the binary speaks with the managers and services; of registry and store it has their options, and of store \
                 the trees that a command reads itself (ls, cat, cp), where a copy goes, and unmount",
        ..ALONE
    },
    Border {
        package: "imagelet-testdisk",
        uses: &["imagelet-base"],
        third_party: Some(&["fuser", "rustix"]),
        never_reaches: &["tokio", "hyper", "redb", "imagelet-store"],
        reason: "testdisk is a disk for tests: it knows nothing of what is kept on it, and nothing that is shipped has it",
        ..ALONE
    },
    Border {
        package: "imagelet-testfault",
        third_party: Some(&["nix", "rustix"]),
        never_reaches: &["tokio", "hyper", "redb", "imagelet-store"],
        reason: "testfault lets system calls of tests fail: it knows calls and a directory, and nothing that is shipped has it",
        ..ALONE
    },
    Border {
        package: "xtask",
        third_party: Some(&["anyhow", "proc-macro2", "serde", "serde_json", "syn"]),
        never_reaches: IO,
        reason: "chores build in seconds and depend on nothing of the product",
        ..ALONE
    },
    Border {
        package: "imagelet-bench",
        uses: &["imagelet-base", "imagelet-cri-api", "imagelet-cri-grpc"],
        third_party: Some(&["anyhow", "clap", "serde", "serde_json", "tokio"]),
        never_reaches: &["imagelet-store", "imagelet-registry", "imagelet-image-service", "redb"],
        reason: "the benchmark measures programs, its own build among them; of the product it has the client of CRI, with which it asks them, and locks",
        ..ALONE
    },
];

/// Third-party crates with an owner. `deny.toml` has the same rule for the most important ones.
pub(crate) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        packages: &["tonic", "tonic-prost", "tonic-prost-build", "prost", "prost-types", "protox"],
        owners: &["imagelet-containerd", "imagelet-cri-grpc"],
        reason: "protobuf and gRPC stay behind the crates of the two APIs that are spoken with them",
    },
    Wrapper {
        packages: &["rustls", "rustls-native-certs", "tokio-rustls"],
        owners: &["imagelet-base", "imagelet-registry", "imagelet-kuberuntime", "imagelet-cluster"],
        reason: "TLS is registry's, that of probes, which accept what a container shows, and that of the kubelet's port; base has \
                 what the clients share",
    },
    Wrapper {
        packages: &["ring"],
        owners: &["imagelet-signature", "imagelet-cluster"],
        reason: "signatures of images are verified in one place, and cluster needs random numbers; TLS and rcgen have it by \
                 themselves",
    },
    Wrapper {
        packages: &["h2"],
        owners: &["imagelet-kuberuntime", "imagelet-cri-grpc"],
        reason: "gRPC's health protocol is one call with two small messages; and cri-grpc gives calls back at the end of its server, or \
                 is given them, by a word of HTTP/2 that hyper has no name for",
    },
    Wrapper {
        packages: &["hyper"],
        owners: &[
            "imagelet-cri-grpc",
            "imagelet-registry",
            "imagelet-kuberuntime",
            "imagelet-cluster",
            "imagelet-agent",
            "imagelet",
        ],
        reason: "below gRPC, where the server tracks every task of its connections; for the kubelet's port; below registry's client, and its tests; for probes, \
                 which must not reuse a connection nor follow a proxy; and for the one request that a client of \
                 the agent asks over an admin socket, or a command of a runtime that is to stream, where no registry is meant",
    },
    Wrapper {
        packages: &["hyper-rustls"],
        owners: &["imagelet-cluster"],
        reason: "the connections to the API server are made in one crate",
    },
    Wrapper {
        packages: &["kube"],
        owners: &["imagelet-cluster", "imagelet-fleet"],
        reason: "the client of the Kubernetes API stays in one crate; fleet has custom resources, whose types and watches are kube's",
    },
    Wrapper {
        packages: &["k8s-openapi"],
        owners: &["imagelet-cluster", "imagelet-fleet", "imagelet-kuberuntime", "imagelet-manifest"],
        reason: "the types of the Kubernetes API are for the crates that read manifests, run pods or speak with an API server",
    },
    Wrapper {
        packages: &["serde_ignored", "serde_path_to_error"],
        owners: &["imagelet-manifest"],
        reason: "one reader decodes the Kubernetes API strictly, and names fields in one way",
    },
    Wrapper {
        packages: &["axum"],
        owners: &["imagelet-agent", "imagelet"],
        reason: "HTTP is served by the admin endpoint, and by `imagelet registry`",
    },
    Wrapper { packages: &["maud"], owners: &["imagelet-agent"], reason: "HTML is written by the status page alone" },
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
        packages: &["clap_complete", "clap_mangen", "tracing-subscriber"],
        owners: &["imagelet"],
        reason: "the command line and its output end at the binary",
    },
    Wrapper {
        packages: &["clap"],
        owners: &["imagelet", "imagelet-bench"],
        reason: "only programs have command lines",
    },
    Wrapper {
        packages: &["serde-saphyr"],
        owners: &["imagelet-manifest", "imagelet"],
        reason: "YAML is read in one place; the binary writes documents",
    },
    Wrapper {
        packages: &["anyhow"],
        owners: &["imagelet", "imagelet-bench", "xtask"],
        reason: "libraries have error types that callers can act on",
    },
];
