//! Tests of `files.rs`.
