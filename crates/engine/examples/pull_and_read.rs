//! Pulls an image and prints one of its files: `pull_and_read ROOT IMAGE PATH`.

use std::io::Write as _;

use imagelet_engine::{Engine, PullRequest, Reference, Result};

/// Pulls `image` into the store under `root`, and returns the content of the file at `path` in the image.
pub async fn pull_and_read(root: &str, image: &str, path: &str) -> Result<Vec<u8>> {
    let engine = Engine::open(root).await?;
    let reference: Reference = image.parse()?;
    let pulled = engine.pull(PullRequest::new(reference)).await?;
    let content = engine.rootfs(pulled.image_id).await?.read(path).await?;
    engine.shutdown().await;
    Ok(content)
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, image, path] = &arguments[..] else { return Err("usage: pull_and_read ROOT IMAGE PATH".into()) };
    std::io::stdout().write_all(&pull_and_read(root, image, path).await?)?;
    Ok(())
}
