//! `imagelet version`: prints the version.

use serde::Serialize;

use crate::exit::Outcome;
use crate::output::{Format, Printer};

/// The printed version.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    platform: String,
    /// Version of CRI that this program implements.
    runtime_api_version: &'static str,
}

pub(crate) fn run(printer: Printer) -> Outcome {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        platform: oci::Platform::host().to_string(),
        runtime_api_version: "v1",
    };
    match printer.format {
        Some(format) if format.is_document() => printer.document(Format::Json, &version),
        _ if printer.quiet => printer.lines([version.version]),
        _ => printer.lines([format!("imagelet {} ({})", version.version, version.platform)]),
    }
}
