//! Tests of `node_files`.
