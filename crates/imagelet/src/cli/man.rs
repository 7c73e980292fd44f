//! `imagelet man`: writes the manual pages, for packages. Generated from the command line's own description.

use std::fs;
use std::path::Path;

use clap_mangen::Man;

use crate::args::{ManPages, whole};
use crate::exit::{Code, Failure, Outcome};
use crate::output::Printer;

/// Writes one page per command, and one for the settings; prints their paths.
pub(crate) fn run(printer: Printer, args: &ManPages) -> Outcome {
    let mut command = whole::command();
    command.build();
    let mut written = Vec::new();
    let pages = fs::create_dir_all(&args.directory).and_then(|()| write(&command, &args.directory, &mut written));
    let context = || format!("write manual pages to {}", args.directory.display());
    pages.map_err(|error| Failure::caused(Code::Failed, context(), &error))?;
    printer.lines(written)
}

fn write(command: &clap::Command, directory: &Path, written: &mut Vec<String>) -> std::io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    let path = directory.join(man.get_filename());
    fs::write(&path, page)?;
    written.push(path.display().to_string());
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        if !sub.is_hide_set() || sub.get_name() == whole::SETTINGS {
            write(sub, directory, written)?;
        }
    }
    Ok(())
}
