//! Arguments of lists: filters and order of `imagelet images`, and the formats of `-o`; and of what packages need.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, Command, Error, ValueEnum, ValueHint};

use crate::output::{Expression, Format};

/// Selection and order of `imagelet images`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only images that fit all filters; may be given again
    ///
    ///   reference=PATTERN   a name, with or without domain, path and tag; `*` is anything but
    ///                       a slash; several are alternatives
    ///   label=KEY[=VALUE]   with this label
    ///   dangling=true       without a tag
    ///   pinned=true         excluded from collection
    ///   before=IMAGE        created before that image
    ///   since=IMAGE         created after that image
    ///   until=TIME          created before a time, such as 2026-01-31T12:00:00Z, a date, or
    ///                       24h for a day ago
    #[arg(long = "filter", short, value_name = "KEY=VALUE", verbatim_doc_comment)]
    pub(crate) filters: Vec<String>,
    /// Order of the list: newest first, otherwise ascending [default: by name]
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<SortKey>,
    /// Show digests as well
    #[arg(long)]
    pub(crate) digests: bool,
}

/// Keys of podman's `--sort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    Created,
    Id,
    Repository,
    Size,
    Tag,
}

/// Write the manual pages of all commands and of the configuration file
///
/// For packages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  imagelet man ./man")]
pub(crate) struct ManPages {
    /// Directory of the manual, with man1 and man5; created if it is missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// Parses the value of `-o`: the name of a format, or an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputParser;

impl TypedValueParser for OutputParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        let text = value.to_string_lossy().into_owned();
        match Expression::parse(&text) {
            Some(Ok(_)) => return Ok(text),
            Some(Err(why)) => {
                return Err(Error::raw(ErrorKind::ValueValidation, format!("-o: {why}\n")).with_cmd(command));
            }
            None if Format::NAMES.contains(&text.as_str()) => return Ok(text),
            None => {}
        }
        let mut error = Error::new(ErrorKind::InvalidValue).with_cmd(command);
        let arg = arg.map_or_else(|| "--output".to_owned(), ToString::to_string);
        let forms = Format::NAMES.iter().chain(&Expression::FORMS).map(|&form| form.to_owned()).collect();
        error.insert(ContextKind::InvalidArg, ContextValue::String(arg));
        error.insert(ContextKind::InvalidValue, ContextValue::String(text));
        error.insert(ContextKind::ValidValue, ContextValue::Strings(forms));
        Err(error)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Format::NAMES.iter().chain(&Expression::FORMS).map(PossibleValue::new)))
    }
}
