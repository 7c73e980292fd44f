//! Tests of `pull_secrets`.
