//! Suggestions for a misspelled name: [`nearest`] for a likely mistake, [`near_names`] for a list to choose from. Called by the
//! readers of manifests and of the configuration.

/// The most letters that may be wrong in a name that is taken for another one.
const WRONG_LETTERS: usize = 2;
/// Likeness, from 0 to 1, from which on a name is worth being shown.
const ALIKE: f64 = 0.7;
/// The most names that are shown.
const MAX_NAMES: usize = 3;

/// The name that was probably meant: the same but for case, or with at most two letters wrong, missing, too many or swapped.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong: String = lower(wrong);
    let distances = names.into_iter().map(|name| (strsim::osa_distance(&wrong, &lower(name)), name));
    // Of a short name, hardly anything would be left.
    let best = distances.filter(|(distance, name)| *distance <= WRONG_LETTERS && *distance < name.len() / 2).min();
    best.map(|(_, name)| name)
}

/// Up to three names that are like `wrong`, the most alike first. Each candidate is a name, and the words that stand for it.
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

/// As much of a name as is compared, without regard to case.
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
    fn a_mistake_leads_to_its_name() {
        let names = ["image", "imagePullPolicy", "name", "ports", "tty"];
        for (wrong, want) in [
            ("imagePullPolcy", Some("imagePullPolicy")),
            ("imagepullpolicy", Some("imagePullPolicy")),
            ("imgae", Some("image")),
            ("prots", Some("ports")),
            ("yt", None),
            ("command", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names), want, "{wrong}");
        }
    }

    #[test]
    fn names_to_choose_from_are_few() {
        let candidates =
            || ["root", "registryPullQPS", "registryBurst", "logging.format"].map(|name| (name, vec![name]));
        assert_eq!(near_names("rooot", candidates()), ["root"]);
        assert_eq!(near_names("registryQPS", candidates()), ["registryPullQPS", "registryBurst"]);
        assert!(near_names("zzz", candidates()).is_empty());
    }
}
