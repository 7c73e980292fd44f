//! Tests of the tidy rules: for each a text that keeps it, and texts that break it.

use super::*;

const HEADER: &str = "//! What it is.\n";

fn texts(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|f| f.text.as_str()).collect()
}

#[test]
fn text_without_faults_has_no_findings() {
    assert_eq!(any_text("one\n\ntwo\n"), []);
    assert_eq!(any_text(""), []);
}

#[test]
fn white_space_is_found_where_it_is() {
    assert_eq!(any_text("good\nbad \nbad\t\n").iter().map(|f| f.line).collect::<Vec<_>>(), [Some(2), Some(3)]);
    assert_eq!(texts(&any_text("no end")), ["no line feed at the end"]);
    assert_eq!(texts(&any_text("too much\n\n")), ["empty lines at the end"]);
}

#[test]
fn every_forbidden_word_is_found() {
    for (word, _) in NOWHERE {
        assert_eq!(any_text(&format!("see {word}x\n")).len(), 1, "{word}");
    }
    for (word, _) in NOT_IN_RUST {
        assert_eq!(rust(&format!("{HEADER}{word}\n"), false).len(), 1, "{word}");
    }
}

#[test]
fn a_source_starts_with_what_it_is() {
    assert_eq!(rust(HEADER, false), []);
    assert_eq!(rust("#!/usr/bin/env run\n//! A script.\n", false), []);
    for bad in ["", "use std::fs;\n", "// no\n", "//!\n", "\n//! Late.\n"] {
        assert_eq!(rust(bad, false).len(), 1, "{bad:?}");
    }
}

#[test]
fn an_ignored_test_says_why_and_what_runs_it() {
    let ignored = |reason: &str| rust(&format!("{HEADER}{IGNORE}{reason}]\nfn f() {{}}\n"), true).len();
    assert_eq!(ignored(" = \"needs root: scripts/test.sh\""), 0);
    assert_eq!(ignored(" = \"takes an hour: scripts/test-long.sh\""), 0);
    assert_eq!([ignored(""), ignored(" = \"it is slow\"")], [1, 1]);
}

#[test]
fn size_warns_then_fails_and_does_not_count_tests() {
    let code = |n: usize| format!("{HEADER}{}", "let x = 1;\n".repeat(n - 1));
    let verdict = |text: &str, tests: bool| rust(text, tests).first().map(|f| f.fails);
    assert_eq!(verdict(&code(400), false), None);
    assert_eq!(verdict(&code(401), false), Some(false));
    assert_eq!(verdict(&code(600), false), Some(false));
    assert_eq!(verdict(&code(601), false), Some(true));
    assert_eq!(verdict(&code(800), true), None);
    assert_eq!(verdict(&code(1201), true), Some(true));
    let inline = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", code(400), "    // a case\n".repeat(900));
    assert_eq!(verdict(&inline, false), None);
    let after = format!("{inline}fn more() {{}}\n");
    assert_eq!(verdict(&after, false), Some(false), "code after the tests counts");
    let elsewhere = format!("{}#[cfg(test)]\nmod tests;\n", code(399));
    assert_eq!(verdict(&elsewhere, false), Some(false), "a mod line without a body hides nothing");
}

#[test]
fn scripts_are_strict_and_executable() {
    let good = "#!/usr/bin/env bash\n# Does it.\nset -euo pipefail\n";
    assert_eq!(shell(good, true), []);
    assert_eq!(texts(&shell(good, false)), ["is not executable"]);
    assert_eq!(shell("#!/bin/sh\n\nset -e\n", true).len(), 3);
}

#[test]
fn links_lead_somewhere() {
    let exists = |t: &str| t == "docs/a.md";
    assert_eq!(links("[a](docs/a.md#part) [w](https://example.org/x) [p](#here)\n", &exists), []);
    assert_eq!(links("```\n[x](gone.md)\n```\n", &exists), []);
    assert_eq!(texts(&links("[b](docs/b.md)\n", &exists)), ["leads to \"docs/b.md\", which is not there"]);
}

#[test]
fn commands_in_documents_exist() {
    let exists = |s: &str| s == "scripts/test.sh";
    let is_chore = |s: &str| s == "deps";
    assert_eq!(
        commands("run `scripts/test.sh`, then ./scripts/test.sh; `cargo xtask deps`.\n", &exists, &is_chore),
        []
    );
    assert_eq!(
        texts(&commands("`scripts/gone.sh` and .ci/run\n`cargo xtask nothing`\n", &exists, &is_chore)),
        [
            "names scripts/gone.sh, which is not there",
            "names .ci/run, which is not there",
            "names the chore \"nothing\", which is not there"
        ]
    );
}

#[test]
fn the_change_log_starts_with_what_is_not_released() {
    assert_eq!(changelog("# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n"), []);
    assert_eq!(changelog("# Changelog\n\n## [0.1.0]\n").len(), 1);
    assert_eq!(changelog("# Changelog\n").len(), 1);
}
