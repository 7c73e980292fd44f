//! Pods on a CRI runtime: the model of a pod, what a pod needs done (pure), and the hands that do it over
//! `cri_api::RuntimeService`. Images are asked of `image_manager` and nobody else. It knows no gRPC, no embedded engine
//! and no credentials; the binary calls it.
