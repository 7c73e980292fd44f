//! Tests of `keyring`.
