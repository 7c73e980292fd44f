//! [`View`]: which part of the list is shown, which row is selected, and what a key changes. Pure. Kept by `top`; read by [`super::frame`].

use super::keys::Key;
use super::list::{Line, RowId};

/// The content of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    List,
    /// Everything about the selected row.
    Details,
    /// The keys.
    Help,
}

/// The view of one reader.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) mode: Mode,
    /// The selected row; it stays selected when rows before it come and go.
    pub(super) selected: Option<RowId>,
    /// Lines that are scrolled over in the present mode.
    scrolled: usize,
}

impl View {
    /// Applies a key. `list` has the lines of the list, `height` is the number of lines that fit. Returns false if the view ends.
    pub(super) fn press(&mut self, key: Key, list: &[Line], height: usize) -> bool {
        match (key, self.mode) {
            (Key::Quit, _) => return false,
            (Key::Help, Mode::Help) | (Key::Back, Mode::Help | Mode::Details) => self.switch(Mode::List),
            (Key::Enter, Mode::Details) => self.switch(Mode::List),
            (Key::Help, _) => self.switch(Mode::Help),
            (Key::Back, Mode::List) => (self.selected, self.scrolled) = (None, 0),
            (Key::Enter, Mode::List) if self.selected.is_some() => self.switch(Mode::Details),
            (Key::Enter, _) => {}
            (_, Mode::List) => self.select(key, list, height),
            (_, Mode::Details | Mode::Help) => {
                let page = height.max(1);
                self.scrolled = match key {
                    Key::Up => self.scrolled.saturating_sub(1),
                    Key::Down => self.scrolled.saturating_add(1),
                    Key::PageUp => self.scrolled.saturating_sub(page),
                    Key::PageDown => self.scrolled.saturating_add(page),
                    Key::Home => 0,
                    Key::End => usize::MAX,
                    _ => self.scrolled,
                };
            }
        }
        true
    }

    fn switch(&mut self, mode: Mode) {
        (self.mode, self.scrolled) = (mode, 0);
    }

    /// Selects another row.
    fn select(&mut self, key: Key, list: &[Line], height: usize) {
        let rows: Vec<usize> = (0..list.len()).filter(|index| list[*index].row.is_some()).collect();
        let Some(last) = rows.len().checked_sub(1) else { return };
        let selected = self.selected.as_ref();
        let at = selected.and_then(|row| rows.iter().position(|index| list[*index].row.as_ref() == Some(row)));
        let page = height.max(1);
        let next = match (key, at) {
            (Key::Home, _) => 0,
            (Key::End, _) => last,
            (Key::Tab, at) => {
                let line = at.map_or(0, |at| rows[at]);
                let title = (line..list.len()).find(|index| list[*index].is_title);
                let below = title.and_then(|title| rows.iter().position(|row| *row > title));
                below.unwrap_or(0)
            }
            (Key::Up | Key::PageUp, None) => last,
            (_, None) => 0,
            (Key::Up, Some(at)) => at.saturating_sub(1),
            (Key::PageUp, Some(at)) => at.saturating_sub(page),
            (Key::PageDown, Some(at)) => (at + page).min(last),
            (_, Some(at)) => (at + 1).min(last),
        };
        self.selected.clone_from(&list[rows[next]].row);
    }

    /// Returns the first line that is shown, so that the selected one is visible.
    pub(super) fn first_line(&self, lines: &[String], selected: Option<usize>, height: usize) -> usize {
        let last = lines.len().saturating_sub(height);
        match selected {
            // The title of the first section stays visible above its first row.
            Some(index) if index < height => 0,
            Some(index) => (index + height / 2 + 1).saturating_sub(height).min(last),
            None => self.scrolled.min(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(sections: &[usize]) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut number = 0;
        for rows in sections {
            lines.push(Line { text: String::new(), row: None, is_title: true });
            for _ in 0..*rows {
                number += 1;
                lines.push(Line { text: String::new(), row: Some(RowId::Pull(number)), is_title: false });
            }
        }
        lines
    }

    fn selected(view: &View) -> u64 {
        match view.selected {
            Some(RowId::Pull(number)) => number,
            _ => 0,
        }
    }

    #[test]
    fn keys_select_rows() {
        let list = list(&[3, 0, 20, 2]);
        let mut view = View::default();
        let cases = [
            (Key::Down, 1),
            (Key::Down, 2),
            (Key::Up, 1),
            (Key::Up, 1),
            (Key::Tab, 4),
            (Key::PageDown, 14),
            (Key::Tab, 24),
            (Key::Tab, 1),
            (Key::End, 25),
            (Key::Down, 25),
            (Key::PageUp, 15),
            (Key::Home, 1),
            (Key::Back, 0),
            (Key::Up, 25),
        ];
        for (key, want) in cases {
            assert!(view.press(key, &list, 10));
            assert_eq!(selected(&view), want, "{key:?}");
        }
        assert!(!view.press(Key::Quit, &list, 10));
        let mut empty = View::default();
        assert!(empty.press(Key::Down, &[], 10) && empty.press(Key::Enter, &[], 10));
        assert_eq!((empty.selected, empty.mode), (None, Mode::List));
    }

    #[test]
    fn a_selected_row_is_visible_and_stays_selected() {
        let lines = vec![String::new(); 100];
        for height in [1, 2, 10, 99, 100, 200] {
            for index in [0, 1, 50, 98, 99] {
                let first = View::default().first_line(&lines, Some(index), height);
                assert!((first..first + height).contains(&index), "{index} of {height}: {first}");
            }
        }
        let mut view = View { selected: Some(RowId::Pull(4)), ..View::default() };
        // A pull that ended is not in the list any more.
        let mut shorter = list(&[3, 0, 20, 2]);
        shorter.remove(1);
        view.press(Key::Down, &shorter, 10);
        assert_eq!(selected(&view), 5);
    }

    #[test]
    fn modes_are_entered_and_left() {
        let list = list(&[3]);
        let mut view = View::default();
        for (key, want) in [
            (Key::Enter, Mode::List),
            (Key::Down, Mode::List),
            (Key::Enter, Mode::Details),
            (Key::Help, Mode::Help),
            (Key::Help, Mode::List),
            (Key::Enter, Mode::Details),
            (Key::End, Mode::Details),
            (Key::Back, Mode::List),
        ] {
            assert!(view.press(key, &list, 10));
            assert_eq!(view.mode, want, "{key:?}");
        }
        assert_eq!((selected(&view), view.scrolled), (1, 0));
    }
}
