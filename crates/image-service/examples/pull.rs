//! The pull engine as a small program: pulls images into a store of its own, one after the other, and prints how long
//! each took. Shows how little code a user of this crate needs, and measures the engine without the rest of the
//! program.
//! usage: `pull [--relaxed] [--together] ROOT IMAGE…`; registries on loopback are asked over plain HTTP.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use cri_api::{ImageService as _, PullImageRequest};
use imagelet_image_service::{Engine, EngineOptions};
use store::{Durability, LayerFormat};

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let (mut relaxed, mut together, mut keep) = (false, false, false);
    let mut names = Vec::new();
    let mut format = LayerFormat::Auto;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--relaxed" => relaxed = true,
            "--together" => together = true,
            "--keep-blobs" => keep = true,
            "--erofs" => format = LayerFormat::Erofs,
            "--dir" => format = LayerFormat::Dir,
            _ => names.push(arg),
        }
    }
    if names.len() < 2 {
        eprintln!("usage: pull [--relaxed] [--together] [--keep-blobs] [--erofs|--dir] ROOT IMAGE…");
        return ExitCode::from(2);
    }
    let images = names.split_off(1);
    let mut options = EngineOptions { root: names.remove(0).into(), ..EngineOptions::default() };
    options.keep_blobs = keep;
    options.store.layer_format = format;
    if relaxed {
        options.store.durability = Durability::Relaxed;
    }
    let engine = match Engine::open(options).await {
        Ok(engine) => Arc::new(engine),
        Err(error) => {
            eprintln!("pull: {error}");
            return ExitCode::FAILURE;
        }
    };
    let pulls = images.iter().map(|image| {
        let engine = Arc::clone(&engine);
        async move {
            let start = Instant::now();
            (image, engine.pull_image(PullImageRequest::new(image)).await, start.elapsed())
        }
    });
    let mut results = Vec::new();
    if together {
        results = futures::future::join_all(pulls).await;
    } else {
        for pull in pulls {
            results.push(pull.await);
        }
    }
    engine.shutdown().await;
    let mut code = ExitCode::SUCCESS;
    for (image, result, took) in results {
        match result {
            Ok(id) => println!("{image} {id} {:.3} s", took.as_secs_f64()),
            Err(error) => {
                eprintln!("pull: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
