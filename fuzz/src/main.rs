//! One program for every parser of foreign input, under libFuzzer: `FUZZ=NAME imagelet-fuzz CORPUS…`. What a parser has to
//! keep stands in its crate's module `fuzz`; this only chooses. Run by `scripts/fuzz.sh`; the corpora are replayed by the
//! ordinary tests of those crates, without libFuzzer.
#![no_main]

use std::sync::OnceLock;

/// A harness: it panics where a parser does not keep what it has to.
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
