//! `imagelet config`: the configuration in force, as a file that could be read again, or as a table with the place that
//! each value comes from.

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::ShowConfig;
use crate::config::table::SETTINGS;
use crate::config::{API_VERSION, Config, KIND, reference};
use crate::exit::Outcome;
use crate::output::{Format, Table};

pub(crate) fn run(app: &App, args: &ShowConfig) -> Outcome {
    if args.reference {
        return app.printer.lines([reference::page().trim_end()]);
    }
    match app.printer.format {
        Some(Format::Table | Format::Wide) => app.printer.lines([table(&app.config).render().trim_end()]),
        _ => app.printer.document(Format::Yaml, &document(&app.config)),
    }
}

/// The configuration as a file has it. What is not set and has no value is left out.
fn document(config: &Config) -> Value {
    let mut map = Map::new();
    map.insert("apiVersion".into(), json!(API_VERSION));
    map.insert("kind".into(), json!(KIND));
    for setting in SETTINGS.iter() {
        let value = setting.show(config);
        if value.is_null() {
            continue;
        }
        match setting.field.split_once('.') {
            None => {
                map.insert(setting.field.into(), value);
            }
            Some((outer, inner)) => {
                let entry = map.entry(outer).or_insert_with(|| json!({}));
                if let Value::Object(object) = entry {
                    object.insert(inner.into(), value);
                }
            }
        }
    }
    Value::Object(map)
}

fn table(config: &Config) -> Table {
    let mut table = Table::new(&["FIELD", "VALUE", "FROM"]);
    for setting in SETTINGS.iter() {
        let origin = config.origins.get(setting.field).map_or_else(|| "default".to_owned(), ToString::to_string);
        table.row([setting.field.to_owned(), setting.shown(config), origin]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn what_is_shown_can_be_read_again() {
        let defaults = Config::defaults(&Environment::default());
        let text = serde_saphyr::to_string(&document(&defaults)).expect("YAML");
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        std::fs::write(file.path(), &text).expect("written");
        let read = Config::load(&Environment::default(), Some(file.path()), Vec::new());
        let read = read.unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(document(&read), document(&defaults), "{text}");
    }

    #[test]
    fn the_table_says_where_values_come_from() {
        let mut config = Config::defaults(&Environment::default());
        config.origins.insert("root", crate::config::Origin::Flag("root"));
        let text = table(&config).render();
        let line = text.lines().find(|l| l.starts_with("root ")).expect("a line");
        assert!(line.ends_with("--root"), "{text}");
        assert!(text.lines().any(|l| l.starts_with("durability ") && l.ends_with("default")), "{text}");
    }
}
