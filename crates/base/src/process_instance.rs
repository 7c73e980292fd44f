//! The identity of this process among all that its callers may reach.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;

/// Returns 32 hex digits that are the same during the life of this process, and different in every other one. Unlike a process id,
/// they also distinguish processes in different namespaces.
#[must_use]
pub fn process_instance() -> &'static str {
    static INSTANCE: LazyLock<String> = LazyLock::new(|| {
        let half = || RandomState::new().build_hasher().finish();
        format!("{:016x}{:016x}", half(), half())
    });
    &INSTANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_constant_and_hexadecimal() {
        let instance = process_instance();
        assert_eq!((instance.len(), process_instance()), (32, instance));
        assert!(instance.bytes().all(|byte| byte.is_ascii_hexdigit()), "{instance}");
        assert_ne!(instance[..16], instance[16..]);
    }
}
