//! Fuzzes the parsers of foreign input under libFuzzer: `FUZZ=NAME imagelet-fuzz CORPUS…`. The invariants of each parser are in
//! its crate's module `fuzz`; this program only selects one. Run by `scripts/fuzz.sh`; the ordinary tests of those crates replay
//! the corpora without libFuzzer.
#![no_main]

use std::sync::OnceLock;

/// A harness, which panics if a parser breaks one of its invariants.
type Harness = fn(&[u8]);

const ALL: &[&[(&str, Harness)]] = &[
    credentials::fuzz::HARNESSES,
    cri_grpc::fuzz::HARNESSES,
    erofs::testing::HARNESSES,
    image_manager::fuzz::HARNESSES,
    image_service::fuzz::HARNESSES,
    oci::fuzz::HARNESSES,
    registry::fuzz::HARNESSES,
    signature::fuzz::HARNESSES,
    store::fuzz::HARNESSES,
];

fn chosen() -> Harness {
    static CHOSEN: OnceLock<Harness> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let wanted = std::env::var("FUZZ").unwrap_or_default();
        let all = || ALL.iter().copied().flatten();
        match all().find(|(name, _)| *name == wanted) {
            Some((_, harness)) => *harness,
            None => {
                for (name, _) in all() {
                    println!("{name}");
                }
                std::process::exit(if wanted.is_empty() { 0 } else { 2 });
            }
        }
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chosen()(bytes));
