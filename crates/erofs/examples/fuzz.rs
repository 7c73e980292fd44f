//! Spoils EROFS files and reads them, for as many rounds as are asked for: `fuzz IMAGE… [--rounds N] [--seed N]`. Every
//! round is its seed alone, which is printed where the reader panics or reads too much. What is done is in the crate's module `testing`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::process::ExitCode;

use imagelet_erofs::testing::{exercise, mutate, numbers};

fn main() -> ExitCode {
    let (mut images, mut rounds, mut seed) = (Vec::new(), 100_000_u64, 0_u64);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        match word.as_str() {
            "--rounds" => rounds = number(),
            "--seed" => seed = number(),
            path => match std::fs::read(path) {
                Ok(bytes) => images.push(bytes),
                Err(error) => {
                    eprintln!("{path}: {error}");
                    return ExitCode::FAILURE;
                }
            },
        }
    }
    if images.is_empty() {
        eprintln!("usage: fuzz IMAGE… [--rounds N] [--seed N]");
        return ExitCode::from(2);
    }
    let (mut good, mut most) = (0_u64, 0_u64);
    for round in seed..seed.saturating_add(rounds) {
        let mut random = numbers(round);
        let mut image = images[usize::try_from(round).unwrap_or(0) % images.len()].clone();
        mutate(&mut image, &mut random);
        let Ok(exercised) = std::panic::catch_unwind(|| exercise(&image)) else {
            eprintln!("round {round} panicked: --seed {round} --rounds 1");
            return ExitCode::FAILURE;
        };
        good += u64::from(exercised.good);
        most = most.max(exercised.by_check);
    }
    println!("{rounds} rounds: {good} images were still good; a check read {most} bytes at most");
    ExitCode::SUCCESS
}
