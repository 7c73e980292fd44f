//! Writes the OpenAPI document of the admin API: `cargo run -p imagelet-agent --example openapi > docs/openapi.json`.

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    let text = serde_json::to_string_pretty(&imagelet_agent::admin::openapi_document())?;
    writeln!(io::stdout(), "{text}")
}
