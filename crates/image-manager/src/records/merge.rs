//! [`merge`]: adds the credentials of a pull to a record. Pure; the rules are the kubelet's, except that secrets and service
//! accounts of the same pull are both kept.

use jiff::Timestamp;

use super::format::full_seconds;
use super::record::{PulledRecord, RecordedAccount, RecordedCredentials, RecordedSecret};

/// Returns the record after a pull of `name` (without tag and digest), or `None` where there is nothing new to record.
/// `added` is `None` where the credentials of the pull are not known.
pub(super) fn merge(
    record: &PulledRecord,
    name: &str,
    added: Option<&RecordedCredentials>,
    now: Timestamp,
) -> Option<PulledRecord> {
    let added = added.filter(|added| !added.is_empty())?;
    let merged = match record.mapping.get(name) {
        None => added.clone(),
        Some(known) => union(known, added)?,
    };
    let mut record = record.clone();
    record.mapping.insert(name.to_owned(), merged);
    record.last_updated = Some(full_seconds(now));
    Some(record)
}

/// A record where there was none.
pub(super) fn first(
    image_ref: &str,
    name: Option<&str>,
    added: Option<&RecordedCredentials>,
    now: Timestamp,
) -> PulledRecord {
    let mapping = name.zip(added).map(|(name, added)| (name.to_owned(), added.clone()));
    PulledRecord {
        last_updated: Some(full_seconds(now)),
        image_ref: image_ref.to_owned(),
        mapping: mapping.into_iter().collect(),
    }
}

fn union(known: &RecordedCredentials, added: &RecordedCredentials) -> Option<RecordedCredentials> {
    if known.node_pods_accessible {
        return None;
    }
    if added.node_pods_accessible {
        return Some(RecordedCredentials::node());
    }
    let secrets = union_secrets(&known.secrets, &added.secrets);
    let accounts = union_accounts(&known.accounts, &added.accounts);
    if secrets.is_none() && accounts.is_none() {
        return None;
    }
    Some(RecordedCredentials {
        secrets: secrets.unwrap_or_else(|| known.secrets.clone()),
        accounts: accounts.unwrap_or_else(|| known.accounts.clone()),
        node_pods_accessible: false,
    })
}

/// Merges secrets; a new hash takes the place of the old one. `None`: nothing is new.
fn union_secrets(known: &[RecordedSecret], added: &[RecordedSecret]) -> Option<Vec<RecordedSecret>> {
    fn place(s: &RecordedSecret) -> (&str, &str, &str) {
        (&s.namespace, &s.name, &s.uid)
    }
    let mut all = known.to_vec();
    let mut changed = false;
    for secret in added {
        match all.iter_mut().find(|other| place(other) == place(secret)) {
            Some(same) if same.credential_hash == secret.credential_hash => {}
            Some(same) => {
                same.credential_hash.clone_from(&secret.credential_hash);
                changed = true;
            }
            None => {
                all.push(secret.clone());
                changed = true;
            }
        }
    }
    all.sort_by(|a, b| place(a).cmp(&place(b)));
    changed.then_some(all)
}

/// Merges service accounts. `None`: nothing is new.
fn union_accounts(known: &[RecordedAccount], added: &[RecordedAccount]) -> Option<Vec<RecordedAccount>> {
    let mut all = known.to_vec();
    for account in added {
        if !all.contains(account) {
            all.push(account.clone());
        }
    }
    let changed = all.len() > known.len();
    all.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    changed.then_some(all)
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
