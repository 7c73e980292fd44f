//! Texts that are frozen in files next to the tests. `FREEZE=1` rewrites the files; the author of a change reviews the
//! difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The directory below `tests`, and all texts in it by name.
pub(crate) struct Frozen {
    pub(crate) directory: &'static str,
    pub(crate) texts: BTreeMap<String, String>,
}

/// Compares all texts with their files. A text without a file and a file without a text are differences as well.
#[track_caller]
pub(crate) fn is_frozen(frozen: &Frozen) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(frozen.directory);
    let file = |name: &str| directory.join(format!("{name}.txt"));
    let listed = fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok);
    let there: BTreeSet<String> = listed
        .filter_map(|entry| entry.file_name().into_string().ok()?.strip_suffix(".txt").map(str::to_owned))
        .collect();
    let gone = there.iter().filter(|name| !frozen.texts.contains_key(*name));
    if std::env::var_os("FREEZE").is_some() {
        fs::create_dir_all(&directory).expect("a directory");
        gone.for_each(|name| fs::remove_file(file(name)).expect("removed"));
        frozen.texts.iter().for_each(|(name, text)| fs::write(file(name), text).expect("written"));
        return;
    }
    let mut problems: Vec<String> = gone.map(|name| format!("{name}: nothing has this text any more")).collect();
    for (name, text) in &frozen.texts {
        match fs::read_to_string(file(name)) {
            Err(_) => problems.push(format!("{name}: there is no file:\n{text}")),
            Ok(before) if before != *text => problems.push(format!("{name}:\n{}", difference(&before, text))),
            Ok(_) => {}
        }
    }
    assert!(problems.is_empty(), "{} differs; FREEZE=1 writes it anew:\n{}", directory.display(), problems.join("\n"));
}

/// The lines in the middle that differ.
fn difference(before: &str, now: &str) -> String {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let same = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let rest = (&before[same..], &now[same..]);
    let end = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign: &str, lines: &[&str]| -> String {
        lines[..lines.len() - end].iter().map(|line| format!("{sign}{line}\n")).collect()
    };
    format!("line {}:\n{}{}", same + 1, lines("-", rest.0), lines("+", rest.1))
}

/// A text with words in the place of what differs from run to run: names that the test knows, and with `measured` also ids, times and
/// figures. Columns of tables stand three spaces apart.
pub(crate) fn steady(text: &str, known: &[(String, &str)], measured: bool) -> String {
    let mut text = text.to_owned();
    for (name, word) in known {
        text = text.replace(name, word);
    }
    text.lines().map(|line| steady_line(line, measured) + "\n").collect()
}

fn steady_line(line: &str, measured: bool) -> String {
    let inside = line.trim_start();
    let mut out = line[..line.len() - inside.len()].to_owned();
    let mut cells: Vec<&str> = inside.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    if inside.starts_with("disk [") {
        // Of the picture of a disk the figures alone: its bar is as long as they say, and its path is cut to fit the line.
        cells = cells.into_iter().filter_map(|cell| cell.split_once("] ")).map(|(_, figures)| figures).collect();
        out.push_str("disk ");
    }
    let cell = |cell: &str| if measured { steady_words(cell) } else { cell.to_owned() };
    out.push_str(&cells.into_iter().map(cell).collect::<Vec<_>>().join("   "));
    out
}

fn steady_words(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '+' | '-' | '%');
    let (mut out, mut word, mut before) = (String::new(), String::new(), String::new());
    for c in text.chars().chain(['\n']) {
        if is_part(c) {
            word.push(c);
            continue;
        }
        let is_percent = before.contains("Percent") && word.bytes().all(|byte| byte.is_ascii_digit());
        out.push_str(if is_percent && !word.is_empty() { "N" } else { steady_word(&word) });
        if !word.is_empty() {
            before = std::mem::take(&mut word);
        }
        out.push(c);
    }
    out.pop();
    out
}

/// The kind of a word that differs, or the word.
fn steady_word(word: &str) -> &str {
    let bare = word.trim_end_matches([':', '.']);
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = bare.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.parse::<f64>().is_ok();
    let unit = &bare[digits.len()..];
    match bare {
        _ if bare.len() >= 20 && bare.as_bytes()[10] == b'T' && bare.ends_with('Z') => "TIME",
        _ if bare.parse::<std::net::IpAddr>().is_ok() || bare.parse::<std::net::SocketAddr>().is_ok() => "IP",
        _ if bare.strip_prefix("sha256:").is_some_and(is_hex) => "sha256:DIGEST",
        _ if is_number && unit.is_empty() && digits.len() >= 2 => "N",
        _ if is_number && unit == "%" => "N%",
        _ if is_number && ["B", "kB", "MB", "GB", "TB", "Ki", "Mi", "Gi", "KiB", "MiB", "GiB"].contains(&unit) => {
            "SIZE"
        }
        _ if is_number && ["ms", "s", "m", "h", "d"].contains(&unit) => "TIME",
        _ if matches!(bare.len(), 12 | 13 | 32 | 64) && is_hex(bare) => "ID",
        _ => word,
    }
}
