//! Tests of `docker_config`.
