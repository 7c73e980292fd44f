//! [`Ranges`]: the bytes of an EROFS file that are claimed already.

use std::collections::BTreeMap;

/// Ranges that do not overlap; those that touch are one.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Ends by begins.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds a range, unless a part of it is there already.
    pub(super) fn claim(&mut self, begin: u64, end: u64) -> bool {
        if begin >= end {
            return true;
        }
        let before = self.ends.range(..end).next_back().map(|(begin, end)| (*begin, *end));
        let (mut begin, mut end) = (begin, end);
        if let Some((first, last)) = before {
            if last > begin {
                return false;
            }
            if last == begin {
                begin = first;
            }
        }
        if let Some(further) = self.ends.remove(&end) {
            end = further;
        }
        self.ends.insert(begin, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn ranges_join_and_do_not_overlap() {
        let mut ranges = Ranges::default();
        for (begin, end, free) in [
            (10, 20, true),
            (30, 40, true),
            (20, 30, true),
            (0, 10, true),
            (0, 0, true),
            (15, 15, true),
            (39, 41, false),
            (5, 6, false),
            (0, 100, false),
            (50, 60, true),
            (45, 55, false),
            (40, 50, true),
        ] {
            assert_eq!(ranges.claim(begin, end), free, "{begin}..{end}");
        }
        assert_eq!(ranges.ends.into_iter().collect::<Vec<_>>(), [(0, 60)]);
    }
}
