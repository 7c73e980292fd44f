//! Where the power is cut, what the disk loses by it, and the disk as it is then.

use std::fmt;

use testdisk::{Event, Image, SECTOR};

use super::work::Record;

/// Bytes that a disk writes whole: ext4 relies on that for its superblock, which no journal protects.
const WHOLE: usize = 4096 / SECTOR;

/// A moment, and what of the writes that were not yet made sure is on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Events up to here are on the disk.
    pub(crate) sure: usize,
    /// Events up to here have happened.
    pub(crate) end: usize,
    /// Which of the writes in between are on the disk, and how many sectors of each.
    pub(crate) kept: Vec<(usize, usize)>,
    /// Kind of the loss.
    kind: &'static str,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sure, end, kept, kind } = self;
        write!(f, "cut at event {end}, sure are {sure}, {} kept of what follows ({kind})", kept.len())
    }
}

/// Numbers that look random, and are the same every time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end as u64).max(1)).expect("it is below a usize")
    }
}

fn sectors(event: &Event) -> usize {
    match event {
        Event::Write { data, .. } => data.len().div_ceil(SECTOR),
        Event::Flush | Event::Note(_) => 0,
    }
}

/// Remarks that follow at once belong to the same moment: nothing was written meanwhile.
fn with_notes(events: &[Event], end: usize) -> usize {
    end + events[end..].iter().take_while(|event| matches!(event, Event::Note(_))).count()
}

/// The places behind the flushes, the first of all, and the end.
fn flushes(events: &[Event]) -> Vec<usize> {
    let behind = events.iter().enumerate().filter(|(_, event)| **event == Event::Flush).map(|(at, _)| at + 1);
    std::iter::once(0).chain(behind).chain([events.len()]).collect()
}

/// A cut at this moment exactly.
fn exact(events: &[Event], at: usize) -> Cut {
    Cut { sure: at, end: with_notes(events, at), kept: Vec::new(), kind: "at the flush" }
}

/// A cut between two flushes, with a loss of one of four kinds.
fn between(events: &[Event], from: usize, to: usize, kind: usize, random: &mut Random) -> Cut {
    let end = with_notes(events, from + random.below(to - from + 1)).min(to);
    // One of so many is lost, one of so many torn.
    let (kind, lost, torn): (_, Option<usize>, Option<usize>) = match kind % 4 {
        0 => ("all in order", None, None),
        1 => ("half", Some(2), None),
        2 => ("most, some torn", Some(8), Some(3)),
        _ => ("all, some torn", None, Some(3)),
    };
    let mut one_of = |many: Option<usize>| many.is_some_and(|many| random.below(many) == 0);
    let mut kept = Vec::new();
    for (at, event) in events.iter().enumerate().take(end).skip(from) {
        let whole = sectors(event);
        if whole > 0 && !one_of(lost) {
            kept.push((at, whole, one_of(torn)));
        }
    }
    let kept = kept
        .into_iter()
        .map(|(at, whole, torn)| (at, if torn && whole > WHOLE { random.below(whole) } else { whole }))
        .collect();
    Cut { sure: from, end, kept, kind }
}

/// So many cuts, from the beginning to the end.
pub(crate) fn some(record: &Record, number: usize) -> Vec<Cut> {
    let events = &record.events;
    let flushes = flushes(events);
    let mut random = Random::new(record.seed);
    let mut cuts: Vec<Cut> = (0..number)
        .map(|cut| {
            // One in each part of equal size.
            let (first, last) = (cut * (flushes.len() - 1) / number, (cut + 1) * (flushes.len() - 1) / number);
            let chosen = first + random.below(last - first);
            match cut % 5 {
                0 => exact(events, flushes[chosen]),
                kind => between(events, flushes[chosen], flushes[chosen + 1], kind, &mut random),
            }
        })
        .collect();
    cuts.sort_by_key(|cut| cut.sure);
    cuts
}

/// Returns the moments at which a result was reported, with no write that was not yet durable.
pub(crate) fn at_notes(record: &Record) -> Vec<Cut> {
    let events = &record.events;
    let flushes = flushes(events);
    let notes = events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Note(_)));
    let cut = |(at, _): (usize, &Event)| {
        let sure = flushes.iter().copied().take_while(|flush| *flush <= at).last().unwrap_or(0);
        Cut { sure, end: with_notes(events, at), kept: Vec::new(), kind: "when it was told" }
    };
    notes.map(cut).collect()
}

/// Every flush, and so many losses after it.
pub(crate) fn all(record: &Record, losses: usize) -> Vec<Cut> {
    let events = &record.events;
    let mut random = Random::new(record.seed);
    let mut cuts = Vec::new();
    for pair in flushes(events).windows(2) {
        cuts.push(exact(events, pair[0]));
        if pair[1] > pair[0] + 1 {
            cuts.extend((0..losses).map(|kind| between(events, pair[0], pair[1], kind, &mut random)));
        }
    }
    cuts
}

/// Cuts of a disk that reports its flushes as done, and loses half of the writes before them.
pub(crate) fn lying(record: &Record, number: usize) -> Vec<Cut> {
    let events = &record.events;
    let flushes = flushes(events);
    let mut random = Random::new(record.seed);
    let mut cuts: Vec<Cut> = (1..=number)
        .map(|cut| {
            let chosen = cut * (flushes.len() - 1) / number;
            let honest = flushes[chosen - chosen.min(12)];
            let end = flushes[chosen];
            let kept = (honest..end).map(|at| (at, sectors(&events[at]))).filter(|_| random.below(2) == 0).collect();
            Cut { sure: honest, end: with_notes(events, end), kept, kind: "a disk that lies" }
        })
        .collect();
    cuts.sort_by_key(|cut| cut.sure);
    cuts
}

/// Makes the disks: what is sure is written once, and copied for every cut.
pub(crate) struct Cuts<'a> {
    record: &'a Record,
    sure: Image,
    at: usize,
}

impl<'a> Cuts<'a> {
    pub(crate) fn new(record: &'a Record) -> Self {
        Self { record, sure: record.base.copy().expect("memory"), at: 0 }
    }

    /// Cuts come in the order of what is sure.
    pub(crate) fn disk_after(&mut self, cut: &Cut) -> Image {
        let events = &self.record.events;
        assert!(self.at <= cut.sure, "nothing is taken back");
        for event in &events[self.at..cut.sure] {
            self.sure.apply(event).expect("memory");
        }
        self.at = cut.sure;
        let image = self.sure.copy().expect("memory");
        for (at, sectors) in &cut.kept {
            image.apply_torn(&events[*at], *sectors).expect("memory");
        }
        image
    }
}
