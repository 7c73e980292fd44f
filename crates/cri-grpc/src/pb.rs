//! The generated types of `runtime.v1`, and a safe form of the credential, which code generation cannot provide: it is never
//! printed, and is wiped. Used only by [`crate::convert`], the client and the server.

use std::fmt;

use zeroize::Zeroize as _;

#[expect(
    unreachable_pub,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::enum_variant_names,
    reason = "generated code"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/runtime.v1.rs"));
}

pub(crate) use generated::*;

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthConfig(…)")
    }
}

impl Drop for AuthConfig {
    fn drop(&mut self) {
        for secret in [&mut self.password, &mut self.auth, &mut self.identity_token, &mut self.registry_token] {
            secret.zeroize();
        }
    }
}

#[cfg(test)]
#[test]
fn debug_of_a_request_shows_no_secret() {
    let request = PullImageRequest {
        auth: Some(AuthConfig {
            username: "ada".into(),
            password: "swordfish".into(),
            auth: "c3dvcmRmaXNo".into(),
            server_address: String::new(),
            identity_token: "idtok".into(),
            registry_token: "regtok".into(),
        }),
        ..PullImageRequest::default()
    };
    let shown = format!("{request:?}");
    for secret in ["ada", "swordfish", "c3dv", "idtok", "regtok"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
