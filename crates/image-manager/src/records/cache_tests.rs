//! Tests of `cache.rs`.
