//! The credential of a command line, `--creds USER:PASSWORD`. Called by the commands that reach a registry.

use oci::{Reference, RegistryAuth};

use crate::args::Creds;
use crate::exit::{Failure, Outcome};

/// Returns the credential. The images must belong to a single registry, since others would see it.
pub(super) fn credential(creds: &Creds, names: &[String]) -> Outcome<RegistryAuth> {
    let Some((user, password)) = creds.0.expose().split_once(':').filter(|(user, _)| !user.is_empty()) else {
        return Err(Failure::usage("--creds must be USER:PASSWORD"));
    };
    let mut domains: Vec<String> = Vec::new();
    for name in names {
        let reference = Reference::parse(name).map_err(|e| Failure::usage(e.to_string()))?;
        if !domains.iter().any(|domain| domain == reference.domain()) {
            domains.push(reference.domain().to_owned());
        }
    }
    if domains.len() > 1 {
        let domains = domains.join(", ");
        return Err(Failure::usage(format!("--creds is for one registry, and the images are of several: {domains}")));
    }
    Ok(RegistryAuth::basic(user, password))
}

#[cfg(test)]
mod tests {
    use oci::Secret;

    use super::*;
    use crate::exit::Code;

    #[test]
    fn a_credential_is_sent_to_one_registry_and_never_shown() {
        let creds = |text: &str| Creds(Secret::new(text));
        let names = ["a.example/x:1".to_owned(), "a.example/y:2".to_owned()];
        let auth = credential(&creds("user:p:w"), &names).expect("taken");
        let (user, password) = auth.user_and_password().expect("both");
        assert_eq!((user.as_str(), password.expose()), ("user", "p:w"));
        for (text, names) in [
            ("s3cret", &names[..]),
            (":s3cret", &names[..]),
            ("user:s3cret", &["a.example/x:1".to_owned(), "b.example/x:1".to_owned()][..]),
        ] {
            let failure = credential(&creds(text), names).expect_err("refused");
            assert_eq!(failure.code(), Code::Usage);
            assert!(!failure.lines()[0].contains("s3cret"), "{failure:?}");
        }
    }
}
