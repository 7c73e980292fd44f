//! Tests of `format.rs`.
