//! Watches the pulls of an agent: one line for each that runs, and one for each that ends.
//! `cargo run -p imagelet-agent --example watch_pulls -- /var/lib/imagelet/admin.sock`

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;

use imagelet_agent::admin::pulls::Pulls;
use imagelet_agent::api::client::{self, Method};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("usage: watch_pulls SOCKET")?;
    let mut events = client::events(Path::new(&socket), Method::GET, "/v1/pulls/events?since=0", Vec::new()).await?;
    while let Some(state) = events.next_of::<Pulls>("pulls").await? {
        for pull in state.pulls {
            let total = pull.total_bytes.map_or_else(|| "?".to_owned(), |total| total.to_string());
            writeln!(io::stdout(), "{}: {:?}, {} of {total} bytes", pull.image, pull.step, pull.received_bytes)?;
        }
        for pull in state.ended {
            writeln!(io::stdout(), "{}: {:?} in {} ms", pull.image, pull.outcome, pull.duration_milliseconds)?;
        }
    }
    Ok(())
}
