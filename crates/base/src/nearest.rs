//! Suggestions for a misspelled name: [`nearest`] and [`closest`] for a likely mistake, [`near_names`] for a list to choose from. Called
//! by the command line and by the readers of manifests and of the configuration.

/// The most letters that may be wrong in a name that is taken for another one.
const WRONG_LETTERS: usize = 2;
/// Likeness, from 0 to 1, from which on a name is worth being shown.
const ALIKE: f64 = 0.7;
/// The most names that are shown.
const MAX_NAMES: usize = 3;

/// Returns the name that was probably meant: the same but for case, or with at most two letters wrong, missing, too many or swapped.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(wrong, names).into_iter().min()
}

/// Returns the names that were probably meant, by the rule of [`nearest`]: more than one if they are equally close.
pub fn closest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong: String = lower(wrong);
    let distances = names.into_iter().map(|name| (strsim::osa_distance(&wrong, &lower(name)), name));
    // At least half of a short name has to be right.
    let close: Vec<(usize, &str)> =
        distances.filter(|(distance, name)| *distance <= WRONG_LETTERS && 2 * distance < name.len()).collect();
    let least = close.iter().map(|(distance, _)| *distance).min();
    close.into_iter().filter(|(distance, _)| Some(*distance) == least).map(|(_, name)| name).collect()
}

/// Returns up to three names that are like `wrong`, the most alike first. Each candidate is a name, and the words that stand for it.
pub fn near_names<'a, W: AsRef<str>>(
    wrong: &str,
    candidates: impl IntoIterator<Item = (&'a str, Vec<W>)>,
) -> Vec<&'a str> {
    let wrong = letters(wrong);
    let likeness = |word: &W| strsim::jaro(&wrong, &letters(word.as_ref()));
    let scored = candidates.into_iter().map(|(name, words)| (words.iter().map(likeness).fold(0.0, f64::max), name));
    let mut scored: Vec<(f64, &str)> = scored.filter(|(likeness, _)| *likeness >= ALIKE).collect();
    scored.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    // If one name is nearly the same, less similar ones are noise.
    let best = scored.first().map_or(0.0, |(likeness, _)| *likeness);
    scored.retain(|(likeness, _)| best - likeness <= 0.1);
    scored.into_iter().map(|(_, name)| name).take(MAX_NAMES).collect()
}

/// Returns the part of a name that is compared, in lower case.
fn lower(name: &str) -> String {
    name.to_lowercase().chars().take(64).collect()
}

fn letters(name: &str) -> String {
    lower(name).replace(['-', '_'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_name_is_matched() {
        let names = ["image", "imagePullPolicy", "name", "ports", "tty"];
        for (wrong, want) in [
            ("imagePullPolcy", Some("imagePullPolicy")),
            ("imagepullpolicy", Some("imagePullPolicy")),
            ("imgae", Some("image")),
            ("prots", Some("ports")),
            ("yt", None),
            ("ttx", Some("tty")),
            ("command", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names), want, "{wrong}");
        }
    }

    #[test]
    fn equally_close_names_are_all_returned() {
        assert_eq!(closest("logi", ["login", "logs", "logout"]), ["login", "logs"]);
        assert_eq!(closest("Logout", ["login", "logs", "logout"]), ["logout"]);
        assert_eq!(closest("xy", ["df", "gc", "ls"]), [""; 0]);
    }

    #[test]
    fn near_names_are_limited() {
        let candidates =
            || ["root", "registryPullQPS", "registryBurst", "logging.format"].map(|name| (name, vec![name]));
        assert_eq!(near_names("rooot", candidates()), ["root"]);
        assert_eq!(near_names("registryQPS", candidates()), ["registryPullQPS", "registryBurst"]);
        assert!(near_names("zzz", candidates()).is_empty());
    }
}
