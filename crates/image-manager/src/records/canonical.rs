//! [`record`]: reads a record in exactly the form that imagelet and the kubelet write, in one pass. It refuses any other
//! form, valid or not: the general parser of `format.rs`, which calls it, reads that.

use std::collections::BTreeMap;

use super::record::{PulledRecord, RecordedAccount, RecordedCredentials, RecordedSecret};

/// The record of a file of the present version; `None`: it is written in another way.
pub(super) fn record(bytes: &[u8]) -> Option<PulledRecord> {
    let mut rest = Rest(std::str::from_utf8(bytes).ok()?);
    rest.eat(r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"#)?;
    let last_updated = match rest.eat("null") {
        Some(()) => None,
        None => Some(rest.text()?.parse().ok()?),
    };
    rest.eat(r#","imageRef":"#)?;
    let image_ref = rest.text()?.to_owned();
    let mut mapping = BTreeMap::new();
    if rest.eat(r#","credentialMapping":{"#).is_some() {
        rest.list('}', |rest| {
            let name = rest.text()?.to_owned();
            rest.eat(":{")?;
            mapping.insert(name, recorded(rest)?).is_none().then_some(())
        })?;
    }
    rest.eat("}")?;
    matches!(rest.0, "" | "\n").then_some(PulledRecord { last_updated, image_ref, mapping })
}

/// Reads the credentials behind a name, up to the closing brace.
fn recorded(rest: &mut Rest<'_>) -> Option<RecordedCredentials> {
    let mut recorded = RecordedCredentials::default();
    let mut field = |rest: &mut Rest<'_>| {
        let (secrets, accounts) = (&mut recorded.secrets, &mut recorded.accounts);
        if secrets.is_empty() && accounts.is_empty() && rest.eat(r#""kubernetesSecrets":["#).is_some() {
            return rest.list(']', |rest| {
                let uid = rest.value(r#"{"uid":"#)?;
                let namespace = rest.value(r#","namespace":"#)?;
                let name = rest.value(r#","name":"#)?;
                let credential_hash = rest.value(r#","credentialHash":"#)?;
                secrets.push(RecordedSecret { uid, namespace, name, credential_hash });
                rest.eat("}")
            });
        }
        if accounts.is_empty() && rest.eat(r#""kubernetesServiceAccounts":["#).is_some() {
            return rest.list(']', |rest| {
                let uid = rest.value(r#"{"uid":"#)?;
                let namespace = rest.value(r#","namespace":"#)?;
                let name = rest.value(r#","name":"#)?;
                accounts.push(RecordedAccount { uid, namespace, name });
                rest.eat("}")
            });
        }
        // It must be the last field, and occur only once.
        recorded.node_pods_accessible = true;
        rest.eat(r#""nodePodsAccessible":true"#)?;
        rest.0.starts_with('}').then_some(())
    };
    rest.list('}', &mut field)?;
    Some(recorded)
}

/// The text that is still to be read.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Advances past `text`, if that is next.
    fn eat(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// A text in quotes that means itself.
    fn text(&mut self) -> Option<&'a str> {
        let inside = self.0.strip_prefix('"')?;
        let end = inside.bytes().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f))?;
        let (text, behind) = inside.split_at(end);
        self.0 = behind.strip_prefix('"')?;
        Some(text)
    }

    /// The text behind `name`.
    fn value(&mut self, name: &str) -> Option<String> {
        self.eat(name)?;
        self.text().map(str::to_owned)
    }

    /// Reads items with `one`, at least one, with commas between them, up to `end`.
    fn list(&mut self, end: char, mut one: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        loop {
            one(self)?;
            if let Some(behind) = self.0.strip_prefix(end) {
                self.0 = behind;
                return Some(());
            }
            self.eat(",")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::super::format::{encode_record, parse_record};
    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![4 => "[a-z0-9./:_-]{0,12}", 1 => "[ -~äß\u{1F600}\n]{0,6}"]
    }

    fn a_record() -> impl Strategy<Value = PulledRecord> {
        let secret = (text(), text(), text(), text()).prop_map(|(uid, namespace, name, credential_hash)| {
            RecordedSecret { uid, namespace, name, credential_hash }
        });
        let account =
            (text(), text(), text()).prop_map(|(uid, namespace, name)| RecordedAccount { uid, namespace, name });
        let recorded = (prop::collection::vec(secret, 0..3), prop::collection::vec(account, 0..3), any::<bool>())
            .prop_map(|(secrets, accounts, node_pods_accessible)| RecordedCredentials {
                secrets,
                accounts,
                node_pods_accessible,
            });
        let time = prop::option::of((0_i64..4_000_000_000).prop_map(|s| Timestamp::from_second(s).unwrap()));
        (time, text(), prop::collection::btree_map(text(), recorded, 0..3))
            .prop_map(|(last_updated, image_ref, mapping)| PulledRecord { last_updated, image_ref, mapping })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(wanted in a_record()) {
            let bytes = encode_record(&wanted);
            prop_assert_eq!(&parse_record(&bytes).unwrap().0, &wanted);
            let plain = !bytes.contains(&b'\\');
            // A name of which nothing is recorded is an empty object, which the general parser reads.
            let whole = wanted.mapping.values().all(|recorded| !recorded.is_empty());
            match record(&bytes) {
                Some(read) => prop_assert_eq!(read, wanted),
                None => prop_assert!(!plain || !whole, "{}", String::from_utf8_lossy(&bytes)),
            }
        }

        #[test]
        fn whatever_it_reads_the_general_parser_reads_the_same(
            wanted in a_record(), at in any::<prop::sample::Index>(), by in any::<u8>(), cut in any::<bool>(),
        ) {
            let mut bytes = encode_record(&wanted);
            let at = at.index(bytes.len());
            if cut {
                bytes.remove(at);
            } else {
                bytes[at] = by;
            }
            if let Some(read) = record(&bytes) {
                prop_assert_eq!(Ok(read), parse_record(&bytes).map(|(record, _)| record));
            }
        }
    }
}
