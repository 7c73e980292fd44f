//! The part of the check that covers the keys of records: names of images, and diff ids and chain ids of layers.

use std::collections::BTreeMap;

use cri_api::engine::ProblemKind;
use oci::Digest;
use redb::ReadableTable;

use super::fix::Fix;
use super::records::Examiner;
use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::entries::{ImageEntry, LayerEntry};
use crate::records::tables::{BY_CHAIN_ID, BY_DIFF_ID, NAMES, Records};

impl<R: Records> Examiner<'_, R> {
    pub(super) fn names(&mut self) -> Result<(), StoreError> {
        let mut names = BTreeMap::new();
        for row in self.records.table(NAMES)?.iter()? {
            let (name, id) = row?;
            names.insert(name.value().to_owned(), id.value().to_owned());
        }
        let has = |entry: &ImageEntry, name: &str| entry.tags.contains(name) || entry.repo_digests.contains(name);
        for (name, id) in &names {
            let image = id.parse::<Digest>().ok().and_then(|id| self.images.get(&id));
            if image.is_some_and(|image| has(&image.before, name)) {
                continue;
            }
            self.out.fixes.push(Fix::DropName(name.clone()));
            // The names of an image that is dropped are dropped with it, and are no faults of their own.
            let goes = self.out.fixes.iter().any(|fix| matches!(fix, Fix::DropImageRow(image) if image == id));
            if !goes {
                let detail = if image.is_some() { "that image does not know it" } else { "there is no such image" };
                self.add_problem(ProblemKind::WrongName, format!("name {name}"), format!("it leads to {id}: {detail}"));
            }
        }
        let mut wrong = Vec::new();
        for (id, image) in &mut self.images {
            for name in image.before.unverified_names() {
                if names.get(name).is_some_and(|leads| *leads == id.to_string()) {
                    self.out.fixes.push(Fix::DropName(name.clone()));
                }
                image.after.tags.remove(name);
                image.after.repo_digests.remove(name);
                let detail = format!("its digest is neither that of the manifest of image {id} nor of an index of it");
                wrong.push((name.clone(), detail, id.clone()));
            }
            let own = image.before.tags.iter().chain(&image.before.repo_digests);
            let own = own.filter(|name| image.before.may_use(name));
            for name in own.filter(|name| names.get(*name).is_none_or(|leads| *leads != id.to_string())) {
                let other = names.get(name);
                if other.is_none() {
                    self.out.fixes.push(Fix::PutName(name.clone(), id.clone()));
                } else {
                    // The name decides.
                    image.after.tags.remove(name);
                    image.after.repo_digests.remove(name);
                }
                let leads = other.map_or("nowhere".to_owned(), |other| format!("to {other}"));
                wrong.push((name.clone(), format!("it leads {leads}, and image {id} has it"), id.clone()));
            }
        }
        for (name, detail, id) in wrong {
            self.add_problem(ProblemKind::WrongName, format!("name {name}"), detail).images.push(id.to_string());
        }
        Ok(())
    }

    /// The ways to layers: by chain id or by diff id.
    pub(super) fn ways(&mut self) -> Result<(), StoreError> {
        let mut ways: BTreeMap<(bool, String), LayerId> = BTreeMap::new();
        for (by_chain, table) in [(false, BY_DIFF_ID), (true, BY_CHAIN_ID)] {
            for row in self.records.table(table)?.iter()? {
                let (key, id) = row?;
                ways.insert((by_chain, key.value().to_owned()), LayerId(id.value()));
            }
        }
        let way_of = |entry: &LayerEntry| match &entry.chain_id {
            Some(chain_id) => (true, chain_id.to_string()),
            None => (false, entry.diff_id.to_string()),
        };
        for ((by_chain, key), id) in &ways {
            let leads = self.layers.get(id).is_some_and(|row| way_of(&row.before) == (*by_chain, key.clone()));
            if leads {
                continue;
            }
            self.out.fixes.push(Fix::DropWay { by_chain: *by_chain, key: key.clone() });
            let goes = self.out.fixes.iter().any(|fix| matches!(fix, Fix::DropLayerRow(layer) if layer == id));
            if !goes {
                self.add_problem(
                    ProblemKind::DamagedRecord,
                    format!("layer {id}"),
                    format!("{key} leads to it by mistake"),
                );
            }
        }
        let mut lost = Vec::new();
        for (id, row) in &self.layers {
            let way = way_of(&row.before);
            let led = ways.get(&way).and_then(|led| self.layers.get(led));
            if led.is_none_or(|led| way_of(&led.before) != way) {
                lost.push((*id, format!("{} does not lead to it", way.1), row.after.clone()));
            }
        }
        for (id, detail, entry) in lost {
            self.add_problem(ProblemKind::DamagedRecord, format!("layer {id}"), detail);
            self.out.fixes.push(Fix::PutLayer(id, entry));
        }
        Ok(())
    }
}
