//! `imagelet man`: writes the manual pages, for packages: one for each command in section 1, and one for the configuration file in
//! section 5. Made from the descriptions of the command line and of the settings.

use std::fs;
use std::io;
use std::path::Path;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::args::{ManPages, whole};
use crate::config::setting::SETTINGS;
use crate::exit::{Code, Failure, Outcome};
use crate::output::Printer;

/// Name of the page of the configuration file.
const CONFIGURATION: &str = "imagelet-config.yaml";

/// Writes the pages below the directory, and prints their paths.
pub(crate) fn run(printer: Printer, args: &ManPages) -> Outcome {
    let mut written = Vec::new();
    let pages = write_all(&args.directory, &mut written);
    let context = || format!("write manual pages to {}", args.directory.display());
    pages.map_err(|error| Failure::caused(Code::Failed, context(), &error))?;
    printer.lines(written)
}

fn write_all(directory: &Path, written: &mut Vec<String>) -> io::Result<()> {
    let [commands, files] = ["man1", "man5"].map(|section| directory.join(section));
    fs::create_dir_all(&commands)?;
    fs::create_dir_all(&files)?;
    write(&whole::for_manual(), &commands, written)?;
    let path = files.join(format!("{CONFIGURATION}.5"));
    fs::write(&path, configuration().render())?;
    written.push(path.display().to_string());
    Ok(())
}

fn write(command: &clap::Command, directory: &Path, written: &mut Vec<String>) -> io::Result<()> {
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

/// Returns the page of the configuration file.
fn configuration() -> Roff {
    let mut page = Roff::new();
    let version = concat!("imagelet ", env!("CARGO_PKG_VERSION"));
    page.control("TH", [CONFIGURATION, "5", "", version]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{CONFIGURATION} - configuration file of imagelet"))]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("imagelet reads "),
        bold("/etc/imagelet/config.yaml"),
        roman(", or the file of "),
        bold("--config"),
        roman(", then the files "),
        bold("*.yaml"),
        roman(", "),
        bold("*.yml"),
        roman(" and "),
        bold("*.conf"),
        roman(" of the directory with the same name and the suffix "),
        bold(".d"),
        roman(". Each is a YAML document with these two fields, and any of the fields below:"),
    ]);
    page.control("PP", []).control("nf", []);
    page.text([roman("apiVersion: imagelet.dev/v1alpha1")]);
    page.text([roman("kind: ImageletConfiguration")]);
    page.control("fi", []).control("PP", []);
    page.text([roman(
        "A dot in the name of a field selects an entry of a map. Durations have units (90s, 2m30s); sizes are bytes or have a suffix (64Gi). \
         Environment variables replace values of the file, and flags replace both. An unknown field or a bad value is an error that names the place, \
         and nothing is done.",
    )]);
    let mut group = None;
    for setting in SETTINGS.iter() {
        if group != Some(setting.group) {
            group = Some(setting.group);
            page.control("SH", [setting.group.title().to_uppercase().as_str()]);
        }
        page.control("TP", []);
        page.text([bold(setting.field), roman(" "), italic(setting.value_name.as_str())]);
        let default = setting.default_line().map(|default| format!(" Default: {default}.")).unwrap_or_default();
        let end = if setting.help.ends_with(['.', ')']) { "" } else { "." };
        page.text([roman(format!("{}{end}{default}", setting.help))]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("imagelet-config"), roman("(1), "), bold("imagelet-settings"), roman("(1)")]);
    page
}
