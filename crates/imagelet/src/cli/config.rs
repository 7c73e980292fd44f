//! `imagelet config`: the configuration in force, as a file that can be read again or value by value with its source. Also the subcommands
//! that need no configuration: validation of a file, the schema, and the migration of a kubelet's.

use serde::Serialize;

use crate::app::App;
use crate::args::{CheckConfig, ConfigAction, MigrateConfig, ShowConfig};
use crate::config::show::{self, EffectiveValue};
use crate::config::{Config, NamedFiles, migrate, reference, schema};
use crate::environment::Environment;
use crate::exit::{Code, Failure, Outcome};
use crate::logging::{Stderr, note};
use crate::output::{Format, Printer, Report, Table};

pub(crate) fn run(app: &App, args: &ShowConfig) -> Outcome {
    let values = || EffectiveConfig { items: show::effective(&app.config) };
    match (&args.action, app.printer.format) {
        (None, Some(Format::Table | Format::Wide)) | (Some(ConfigAction::Print), _) => app.printer.report(&values()),
        (Some(ConfigAction::Check(_)), _) => app.printer.lines(["the configuration in force is good"]),
        _ => app.printer.document(Format::Yaml, &show::document(&app.config)),
    }
}

/// Runs subcommands that need no configuration, and must work even if the configuration in force is invalid; `None` for all others.
pub(crate) fn run_alone(
    args: &ShowConfig,
    files: NamedFiles,
    printer: Printer,
    environment: &Environment,
) -> Option<Outcome> {
    match &args.action {
        None if args.reference => Some(printer.lines([reference::page().trim_end()])),
        Some(ConfigAction::Schema) => Some(printer.lines([schema::text().trim_end()])),
        Some(ConfigAction::Check(CheckConfig { file: Some(file) })) => {
            let files = NamedFiles { file: Some(file.clone()), ..files };
            let checked = Config::load(environment, &files, Vec::new()).map_err(Failure::from);
            Some(checked.and_then(|config| {
                note(&config.notes, &Stderr::default());
                printer.lines([format!("{} is good", file.display())])
            }))
        }
        Some(ConfigAction::Migrate(args)) => Some(migrated(args, printer, environment)),
        _ => None,
    }
}

fn migrated(args: &MigrateConfig, printer: Printer, environment: &Environment) -> Outcome {
    let migration = migrate(environment, &args.from_kubelet)?;
    let left_out = migration.left_out.iter();
    note(&left_out.map(|(name, why)| format!("left out: {name}: {why}")).collect::<Vec<_>>(), &Stderr::default());
    match printer.format {
        Some(Format::Yaml | Format::Json) | None => printer.document(Format::Yaml, &migration.document),
        _ => Err(Failure::new(Code::Usage, "this command writes json or yaml: choose one of them with -o")),
    }
}

/// All values in force.
#[derive(Debug, Serialize)]
struct EffectiveConfig {
    items: Vec<EffectiveValue>,
}

impl Report for EffectiveConfig {
    fn table(&self, wide: bool, _whole: bool) -> Table {
        let more: &[&str] = if wide { &["RELOADS"] } else { &[] };
        let mut table = Table::new(&[&["FIELD", "VALUE", "FROM"], more].concat());
        for value in &self.items {
            let from = value.from.clone().unwrap_or_else(|| value.source.to_owned());
            let mut row = vec![value.field.to_owned(), value.shown.clone(), from];
            if wide {
                row.push(if value.reloads { "yes" } else { "no" }.to_owned());
            }
            table.row(row);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|value| value.field.to_owned()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_where_values_come_from() {
        let mut config = Config::defaults(&Environment::default());
        config.origins.insert("root", crate::config::Origin::Flag("root"));
        let report = EffectiveConfig { items: show::effective(&config) };
        let text = report.table(false, false).render();
        let line = text.lines().find(|l| l.starts_with("root ")).expect("a line");
        assert!(line.ends_with("--root"), "{text}");
        assert!(text.lines().any(|l| l.starts_with("durability ") && l.ends_with("default")), "{text}");
    }
}
