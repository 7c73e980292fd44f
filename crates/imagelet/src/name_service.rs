//! Host names in a static program: resolved by `/etc/hosts` and DNS, which are built into glibc, regardless of `/etc/nsswitch.conf`. Its
//! other sources are shared objects of the machine's glibc, and loading one into a program with another glibc ends the program. Not used in
//! a dynamic program. Called by `main`.
#![expect(unsafe_code, reason = "one function of glibc that nothing wraps")]

use std::ffi::{c_char, c_int};

unsafe extern "C" {
    /// `nss.h`: the sources of a database, in place of those of nsswitch.conf.
    fn __nss_configure_lookup(database: *const c_char, sources: *const c_char) -> c_int;
}

/// Resolves host names by `/etc/hosts` and DNS only. Must be called before any thread is started.
pub(crate) fn use_built_in() {
    // SAFETY: both arguments are C strings that live forever, and glibc copies the parts that it needs. No other thread is running yet, and
    // no name was resolved. If the call fails for lack of memory, names are resolved by nsswitch.conf.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}
