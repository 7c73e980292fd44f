//! [`Names`]: what stands under which name in which directory. In memory up to a budget; beyond it, sorted runs go to the spill, and
//! what is newer stands over what is older. In the end all are read in order, more than once. So many runs of one size are merged
//! into one that there are few, however many names come: the work for a name grows with the logarithm of their number.

use super::entry::{Dir, Entry, EntryCode};
use super::error::WriteError;
use super::run::{Cursor, NameRun, RunWriter};
use super::spill::Spill;
use super::table::{Hash, NameTable};

/// Bytes that the table keeps at least, however much the runs take.
const LEAST: usize = 1 << 20;
/// So many runs of one level become one of the next.
const MERGED: usize = 8;

/// Receives names, with what stands under them.
pub(super) type EntryVisitor<'a, T> = &'a mut dyn FnMut(&[u8], T, &mut Spill) -> Result<(), WriteError>;

/// All names.
pub(super) struct Names {
    table: NameTable,
    hash: Hash,
    /// The oldest first, each with its level: how often its names have been merged. None is below one that follows it.
    runs: Vec<(u32, NameRun)>,
    budget: usize,
}

impl Names {
    pub(super) fn new(budget: usize) -> Self {
        Self { table: NameTable::default(), hash: Hash::default(), runs: Vec::new(), budget }
    }

    /// The entry under a name.
    pub(super) fn get(&mut self, dir: Dir, name: &[u8], spill: &Spill) -> Result<Option<Entry>, WriteError> {
        let hash = self.hash.of(dir.0, name);
        if let Some(value) = self.table.get(dir.0, name, hash) {
            return Ok(value.entry());
        }
        self.older(dir, name, hash, spill)
    }

    fn older(&mut self, dir: Dir, name: &[u8], hash: u64, spill: &Spill) -> Result<Option<Entry>, WriteError> {
        for (_, run) in self.runs.iter_mut().rev() {
            if let Some(value) = run.get(dir.0, name, hash, spill)? {
                return Ok(value.entry());
            }
        }
        Ok(None)
    }

    /// Puts an entry under a name, or takes it away, and answers what was there.
    pub(super) fn put(
        &mut self,
        dir: Dir,
        name: &[u8],
        entry: Option<Entry>,
        spill: &mut Spill,
    ) -> Result<Option<Entry>, WriteError> {
        let value = entry.map_or(EntryCode::GONE, EntryCode::of);
        let hash = self.hash.of(dir.0, name);
        if let Some(there) = self.table.get(dir.0, name, hash) {
            return Ok(std::mem::replace(there, value).entry());
        }
        let before = self.older(dir, name, hash, spill)?;
        if before.is_none() && entry.is_none() {
            return Ok(None);
        }
        self.table.add(dir.0, name, hash, value);
        let others: usize = self.runs.iter().map(|(_, run)| run.bytes()).sum();
        if self.table.bytes() > self.budget.saturating_sub(others).max(LEAST.min(self.budget)) {
            self.spill_to(spill)?;
        }
        Ok(before)
    }

    fn spill_to(&mut self, spill: &mut Spill) -> Result<(), WriteError> {
        self.table.sort();
        let mut writer = RunWriter::new(self.table.len());
        for name in (0..self.table.len()).map_while(|n| self.table.at(n)) {
            writer.add(name, self.hash.of(name.0, name.1), spill)?;
        }
        self.runs.push((0, writer.finish(spill)?));
        self.table.clear();
        while let Some(first) = self.runs.len().checked_sub(MERGED).filter(|n| self.runs[*n].0 == self.level()) {
            let level = self.level() + 1;
            let merged = self.merge(first, spill)?;
            self.runs.truncate(first);
            self.runs.push((level, merged));
        }
        Ok(())
    }

    /// The level of the newest run.
    fn level(&self) -> u32 {
        self.runs.last().map_or(0, |(level, _)| *level)
    }

    /// Writes the runs from one on as one. What is gone is noted as long as an older run may have it.
    fn merge(&self, first: usize, spill: &mut Spill) -> Result<NameRun, WriteError> {
        let runs = &self.runs[first..];
        let mut writer = RunWriter::new(runs.iter().map(|(_, run)| run.count()).sum());
        let mut cursors: Vec<Cursor> = runs.iter().map(|(_, run)| run.cursor()).collect();
        let mut name = Vec::new();
        loop {
            for cursor in &mut cursors {
                cursor.fill(spill)?;
            }
            // The newest of the least name.
            let least = cursors.iter().filter_map(Cursor::peek);
            let least = least.reduce(|best, one| if (one.0, one.1) <= (best.0, best.1) { one } else { best });
            let Some((dir, text, value)) = least else { return writer.finish(spill) };
            name.clear();
            name.extend_from_slice(text);
            for cursor in &mut cursors {
                if cursor.peek().is_some_and(|one| (one.0, one.1) == (dir, &name[..])) {
                    cursor.pass();
                }
            }
            if value != EntryCode::GONE || first > 0 {
                writer.add((dir, &name, value), self.hash.of(dir, &name), spill)?;
            }
        }
    }

    /// Puts everything into order: nothing is put or looked up after that.
    pub(super) fn seal(mut self) -> SealedNames {
        self.table.sort();
        SealedNames { table: self.table, runs: self.runs.into_iter().map(|(_, run)| run).collect() }
    }
}

/// All names, in order.
pub(super) struct SealedNames {
    table: NameTable,
    runs: Vec<NameRun>,
}

impl SealedNames {
    pub(super) fn in_order(&self) -> OrderedNames<'_> {
        OrderedNames { table: &self.table, next: 0, cursors: self.runs.iter().map(NameRun::cursor).collect() }
    }
}

/// Reads names by directory and then as bytes.
pub(super) struct OrderedNames<'a> {
    table: &'a NameTable,
    next: usize,
    /// The oldest first.
    cursors: Vec<Cursor>,
}

impl OrderedNames<'_> {
    /// Tells the entries of one directory, in order. Directories must be asked for in order.
    pub(super) fn each(
        &mut self,
        dir: Dir,
        spill: &mut Spill,
        visit: EntryVisitor<'_, Entry>,
    ) -> Result<(), WriteError> {
        if self.cursors.is_empty() {
            while let Some((_, name, value)) = self.table.at(self.next).filter(|(of, ..)| *of == dir.0) {
                self.next += 1;
                if let Some(entry) = value.entry() {
                    visit(name, entry, spill)?;
                }
            }
            return Ok(());
        }
        loop {
            for cursor in &mut self.cursors {
                cursor.fill(spill)?;
            }
            // The newest of the least name: the table is newer than any run.
            let runs = self.cursors.iter().filter_map(Cursor::peek);
            let best = runs
                .chain(self.table.at(self.next))
                .filter(|(of, ..)| *of == dir.0)
                .reduce(|best, one| if one.1 <= best.1 { one } else { best });
            let Some((_, name, value)) = best else { return Ok(()) };
            if let Some(entry) = value.entry() {
                visit(name, entry, spill)?;
            }
            let name = name.to_vec();
            let same =
                |one: Option<(u32, &[u8], EntryCode)>| one.is_some_and(|one| (one.0, one.1) == (dir.0, &name[..]));
            for cursor in &mut self.cursors {
                if same(cursor.peek()) {
                    cursor.pass();
                }
            }
            if same(self.table.at(self.next)) {
                self.next += 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
