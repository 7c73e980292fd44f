//! Names that an earlier version recorded in another spelling of their host (`LOCALHOST:5999/app:1`, `docker.io:443/app:1`), by
//! which their images can no longer be found. They are recorded again in their normal form when a store is opened. A name whose
//! host has none (`127.1/app:1`) stays on its image's record, which is found by its other names and by id. Called by the opening
//! of a store.

use oci::{Digest, Reference};

use crate::error::StoreError;
use crate::records::catalog::Catalog;
use crate::records::tables::{Records, RecordsMut};

impl Catalog {
    /// Gives every name its normal form. Without space for that the names stay as they are until the next opening.
    pub(crate) fn respell_names(&self) -> Result<(), StoreError> {
        let is_other = |(name, _): &(String, Digest)| normal(name).is_some();
        if !self.db.read(|records| Ok::<_, StoreError>(records.names()?.iter().any(is_other)))? {
            return Ok(());
        }
        match self.db.write(respell) {
            Ok(count) => tracing::info!(count, "names are recorded by the normal form of their hosts"),
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "names whose hosts are in other spellings are not found until there is space");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The name as it is recorded now; `None`: as it is.
fn normal(name: &str) -> Option<String> {
    let normal = Reference::parse(name).ok()?.canonical().to_string();
    (normal != name).then_some(normal)
}

/// A name that was recorded in its normal form stays with the image that has it; of several spellings the latest image gets the
/// name. Returns how many names were in another spelling.
fn respell(transaction: &impl RecordsMut) -> Result<usize, StoreError> {
    let mut images = transaction.images()?;
    images.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.created_at_unix_nanos));
    let mut count = 0;
    for (id, mut entry) in images {
        let before = count;
        for names in [&mut entry.tags, &mut entry.repo_digests] {
            let others: Vec<(String, String)> =
                names.iter().filter_map(|name| Some((name.clone(), normal(name)?))).collect();
            for (name, normal) in others {
                count += 1;
                names.remove(&name);
                transaction.delete_name(&name)?;
                if transaction.name(&normal)?.is_none() {
                    transaction.put_name(&normal, &id)?;
                    names.insert(normal);
                }
            }
        }
        if count > before {
            transaction.put_image(&id, &entry)?;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::image_commit::ImageCommit;
    use crate::options::OpenOptions;
    use crate::store::Store;

    /// Records a name as it is written, as an earlier version did.
    fn name_as_before(store: &Store, id: &Digest, name: &str) {
        let written = store.catalog.db.write(|transaction| write_name(transaction, id, name));
        written.expect("writes");
    }

    fn write_name(transaction: &impl RecordsMut, id: &Digest, name: &str) -> Result<(), StoreError> {
        let mut entry = transaction.image(id)?.expect("an image");
        let names = if name.contains('@') { &mut entry.repo_digests } else { &mut entry.tags };
        names.insert(name.to_owned());
        transaction.put_name(name, id)?;
        transaction.put_image(id, &entry)
    }

    #[test]
    fn names_of_earlier_versions_are_found() {
        let top = tempfile::tempdir().expect("a directory");
        let open = || Store::open(&top.path().join("store"), OpenOptions::default()).expect("opens");
        let store = open();
        let commit = |age: i64, tag: &str| {
            let config = format!(
                "{{\"os\":\"linux\",\"architecture\":\"amd64\",\"author\":\"{age}\",\"rootfs\":{{\"diff_ids\":[]}}}}"
            );
            let commit = ImageCommit {
                config: config.into_bytes(),
                manifest: age.to_string().into_bytes(),
                tag: Some(Reference::parse(tag).expect("a name")),
                created_at_unix_nanos: age,
                ..ImageCommit::default()
            };
            store.commit_image(&store.lease(), commit).expect("commits").id
        };
        let (old, new) = (commit(1, "r.example/app:old"), commit(2, "r.example/app:new"));
        let by_digest = format!("Docker.io:443/library/x@{}", Digest::sha256(b"1"));
        for (id, name) in [
            (&old, "LOCALHOST:05999/app:1"),
            (&old, "docker.io:443/library/x:1"),
            (&new, "Docker.io/library/x:1"),
            (&old, "R.example/app:new"),
            (&old, "127.1:5999/app:1"),
            (&old, by_digest.as_str()),
        ] {
            name_as_before(&store, id, name);
        }
        assert_eq!(store.resolve(&"LOCALHOST:05999/app:1".into()).expect("resolves"), None);
        drop(store);

        let store = open();
        for (name, id) in [
            ("LOCALHOST:05999/app:1", &old),
            ("localhost:5999/app:1", &old),
            ("docker.io:443/x:1", &new),
            ("r.example/app:new", &new),
            (by_digest.as_str(), &old),
        ] {
            assert_eq!(
                store.resolve(&name.into()).expect("resolves").map(|image| image.id).as_ref(),
                Some(id),
                "{name}"
            );
        }
        let tags = |id: &Digest| store.image(id).expect("reads").expect("is here").tags.into_iter().collect::<Vec<_>>();
        assert_eq!(tags(&old), ["127.1:5999/app:1", "localhost:5999/app:1", "r.example/app:old"]);
        assert_eq!(tags(&new), ["docker.io/library/x:1", "r.example/app:new"]);
        drop(store);
        let store = open();
        assert_eq!(store.images().expect("lists").len(), 2, "and it stays so");
        store.remove_image(&old).expect("removes, with the name that has no normal form");
    }
}
