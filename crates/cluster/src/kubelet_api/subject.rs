//! The identity in a client certificate: common names and organisations of its subject, as the API server reads them. Verifies nothing: that is TLS's.

use base::der::{each, expect, tag};

use crate::kubelet_api::authority::Identity;

/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10.
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0A];

/// Reads the subject of a certificate; `None` where it has no common name.
pub(crate) fn identity(certificate: &[u8]) -> Option<Identity> {
    let (certificate, _) = expect(tag::SEQUENCE, certificate)?;
    let (to_be_signed, _) = expect(tag::SEQUENCE, certificate)?;
    // A version may stand before serial number, algorithm, issuer and validity.
    let mut fields = each(to_be_signed).skip_while(|(tag, _)| *tag == tag::explicit(0));
    let (tag, subject) = fields.nth(4)?;
    if tag != tag::SEQUENCE {
        return None;
    }
    let mut identity = Identity::default();
    let attributes = each(subject).flat_map(|(_, set)| each(set));
    for (_, attribute) in attributes {
        let Some((kind, rest)) = expect(tag::OBJECT_IDENTIFIER, attribute) else { continue };
        let Some((_, text)) = each(rest).next() else { continue };
        let Ok(text) = std::str::from_utf8(text) else { continue };
        match kind {
            COMMON_NAME => text.clone_into(&mut identity.name),
            ORGANIZATION => identity.groups.push(text.to_owned()),
            _ => {}
        }
    }
    (!identity.name.is_empty()).then_some(identity)
}

#[cfg(test)]
mod tests {
    use base::der::value;

    use super::*;

    fn attribute(kind: &[u8], text: &str) -> Vec<u8> {
        let kind = value(tag::OBJECT_IDENTIFIER, &[kind]);
        value(tag::SET, &[&value(tag::SEQUENCE, &[&kind, &value(tag::PRINTABLE_STRING, &[text.as_bytes()])])])
    }

    fn certificate(version: bool, subject: &[Vec<u8>]) -> Vec<u8> {
        let subject: Vec<&[u8]> = subject.iter().map(Vec::as_slice).collect();
        let version = if version { value(tag::explicit(0), &[&[2, 1, 2]]) } else { Vec::new() };
        let sequence = || value(tag::SEQUENCE, &[]);
        let fields: [&[u8]; 7] = [
            &version,
            &value(tag::INTEGER, &[&[1]]),
            &sequence(),
            &value(tag::SEQUENCE, &[&attribute(COMMON_NAME, "the issuer")]),
            &sequence(),
            &value(tag::SEQUENCE, &subject),
            &sequence(),
        ];
        value(tag::SEQUENCE, &[&value(tag::SEQUENCE, &fields), &sequence()])
    }

    #[test]
    fn the_subject_is_the_identity() {
        let subject = [
            attribute(ORGANIZATION, "system:masters"),
            attribute(&[0x55, 0x04, 0x06], "XX"),
            attribute(ORGANIZATION, "staff"),
            attribute(COMMON_NAME, "kubelet-client"),
        ];
        for version in [true, false] {
            let found = identity(&certificate(version, &subject)).expect("a subject");
            assert_eq!(found.name, "kubelet-client");
            assert_eq!(found.groups, ["system:masters", "staff"]);
        }
        assert_eq!(identity(&certificate(true, &subject[..3])), None, "nobody's");
        for garbage in [&[][..], &[0x30, 0], &[0x30, 2, 0x30, 0], b"garbage"] {
            assert_eq!(identity(garbage), None);
        }
    }
}
