//! [`Lease`]: what a pull makes in containerd's store is kept while its lease is there.

use std::ops::Deref;

use crate::client::answer;
use crate::error::unless;
use crate::{Client, ErrorKind, Labels, Result, filter, pb};

/// Label with the time, as RFC 3339, from which containerd may collect a lease by itself.
const EXPIRES: &str = "containerd.io/gc.expire";

/// A lease, and the client whose calls it covers. It stays when this value is dropped: its creator deletes it when the
/// image's record is written, or sweeps it at the next start.
#[derive(Clone, Debug)]
pub struct Lease {
    id: String,
    client: Client,
}

impl Deref for Lease {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A lease as containerd lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingLease {
    /// Id.
    pub id: String,
    /// Labels.
    pub labels: Labels,
}

impl Client {
    /// Creates a lease which containerd may collect from `expires` (RFC 3339) on; one of this id that is there already is
    /// taken as it is. A lease cannot be prolonged.
    ///
    /// # Errors
    /// The call failed, or the id is no value of a header.
    pub async fn create_lease(&self, id: &str, expires: &str, mut labels: Labels) -> Result<Lease> {
        let lease = self.lease(id)?;
        labels.insert(EXPIRES.to_owned(), expires.to_owned());
        let request = pb::leases::CreateRequest { id: id.to_owned(), labels };
        let created = answer("Leases.Create", id, self.leases().create(request)).await;
        unless(ErrorKind::AlreadyExists, created)?;
        Ok(lease)
    }

    /// Returns a handle of an existing lease.
    ///
    /// # Errors
    /// The id is no value of a header.
    pub fn lease(&self, id: &str) -> Result<Lease> {
        Ok(Lease { id: id.to_owned(), client: self.with_lease(id)? })
    }

    /// Returns all leases with this value of a label.
    ///
    /// # Errors
    /// The call failed.
    pub async fn leases_with_label(&self, key: &str, value: &str) -> Result<Vec<ExistingLease>> {
        let request = pb::leases::ListRequest { filters: vec![filter::label(key, value)] };
        let list = answer("Leases.List", key, self.leases().list(request)).await?;
        Ok(list.leases.into_iter().map(|lease| ExistingLease { id: lease.id, labels: lease.labels }).collect())
    }
}

impl Lease {
    /// Returns the ID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Deletes the lease: objects without other references are collected from now on, with `wait` before this returns. An absent lease
    /// is success.
    ///
    /// # Errors
    /// The call failed.
    pub async fn delete(&self, wait: bool) -> Result<()> {
        let request = pb::leases::DeleteRequest { id: self.id.clone(), sync: wait };
        let deleted = answer("Leases.Delete", &self.id, self.client.leases().delete(request)).await;
        unless(ErrorKind::NotFound, deleted).map(drop)
    }
}
