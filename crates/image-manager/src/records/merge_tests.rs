//! Tests of `merge.rs`.
