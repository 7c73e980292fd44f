//! Names of hosts in a static program: `/etc/hosts` and DNS, which glibc has built in, whatever `/etc/nsswitch.conf` says. Its other
//! sources are shared objects of the machine's glibc, and loading one into a program that has another glibc in it ends the program.
//! A dynamic program has none of this. `main` calls it.
#![expect(unsafe_code, reason = "one function of glibc that nothing wraps")]

use std::ffi::{c_char, c_int};

unsafe extern "C" {
    /// `nss.h`: the sources of a database, in place of those of nsswitch.conf.
    fn __nss_configure_lookup(database: *const c_char, sources: *const c_char) -> c_int;
}

/// Looks names of hosts up in `/etc/hosts` and DNS alone. Before any thread is started.
pub(crate) fn use_built_in() {
    // SAFETY: both arguments are C strings that live forever, and glibc copies what it needs of them. No other thread runs yet, and no
    // name was looked up. Should it fail, for want of memory, names are looked up as nsswitch.conf says.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}
