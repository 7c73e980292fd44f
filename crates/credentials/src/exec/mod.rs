//! The kubelet's exec credential providers: configuration, protocol, cache.
