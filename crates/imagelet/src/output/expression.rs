//! Output by an expression of the user, with kubectl's rules: `-o jsonpath=TEMPLATE` and `-o custom-columns=NAME:PATH,…`. Go
//! templates are refused with a hint. Knows no command. Called by the parent module and by the command line's parser.

use serde_json::Value;

use super::Table;
use super::jsonpath::{Query, Template, list_in, text_of};

/// An expression and how its result is written.
#[derive(Debug)]
pub(crate) enum Expression {
    /// Text of a template.
    Template(Template),
    /// A table with one row per item of the list.
    Columns(Vec<Column>),
}

/// A column: title and path.
#[derive(Debug)]
pub(crate) struct Column(String, Query);

impl Expression {
    /// The forms as written on the command line.
    pub(crate) const FORMS: [&str; 2] = ["jsonpath=TEMPLATE", "custom-columns=NAME:PATH,..."];

    /// Parses the value of `-o`; `None` if it is no expression.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, String>> {
        let (form, expression) = text.split_once('=').unwrap_or((text, ""));
        match form {
            "jsonpath" if expression.is_empty() => {
                Some(Err("a template is missing: jsonpath='{.items[*].id}'".to_owned()))
            }
            "jsonpath" => Some(Template::parse(expression).map(Self::Template)),
            "custom-columns" => Some(columns(expression)),
            "go-template" | "go-template-file" | "template" => {
                Some(Err("Go templates are not supported: use jsonpath='{range .items[*]}{.id}{\"\\n\"}{end}' or \
                          custom-columns=ID:.id"
                    .to_owned()))
            }
            "jsonpath-file" | "custom-columns-file" | "jsonpath-as-json" => Some(Err(format!(
                "{form} is not supported: use jsonpath=\"$(cat FILE)\" or custom-columns=\"$(cat FILE)\""
            ))),
            _ => None,
        }
    }

    /// Returns the expression's rendering of a result.
    pub(super) fn render(&self, value: &Value) -> String {
        match self {
            Self::Template(template) => template.render(value),
            Self::Columns(columns) => {
                let titles: Vec<&str> = columns.iter().map(|Column(title, _)| title.as_str()).collect();
                let mut table = Table::new(&titles);
                let rows = list_in(value).and_then(Value::as_array).map_or(std::slice::from_ref(value), Vec::as_slice);
                for row in rows {
                    table.row(columns.iter().map(|Column(_, query)| cell(query, row)));
                }
                table.render()
            }
        }
    }
}

fn cell(query: &Query, row: &Value) -> String {
    let found: Vec<String> = query.find(row, false).into_iter().map(text_of).collect();
    if found.is_empty() { "<none>".to_owned() } else { found.join(",") }
}

fn columns(spec: &str) -> Result<Expression, String> {
    let mut columns = Vec::new();
    for column in spec.split(',') {
        let (title, path) =
            column.split_once(':').filter(|(title, path)| !title.is_empty() && !path.is_empty()).ok_or_else(|| {
                format!("{column:?} is not NAME:PATH, for example custom-columns=ID:.id,NAME:.repoTags[0]")
            })?;
        // kubectl takes `a.b`, `.a.b`, `{a.b}` and `{.a.b}`.
        let path = path.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(path);
        let dotted = if path.starts_with(['.', '$', '@', '[']) { path.to_owned() } else { format!(".{path}") };
        columns.push(Column(title.to_owned(), Query::parse(&dotted)?));
    }
    Ok(Expression::Columns(columns))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(form: &str, value: &Value) -> String {
        Expression::parse(form).expect("an expression").expect(form).render(value)
    }

    #[test]
    fn columns_as_kubectl_has_them() {
        let value = json!({ "images": [
            { "id": "a", "repoTags": ["x:1", "x:2"], "size": 5, "spec": { "image": "x" } },
            { "id": "b", "repoTags": [], "size": 7, "pinned": true },
        ] });
        let want = "ID   TAGS      FIRST    SIZE   SPEC            PIN\n\
                    a    x:1,x:2   x:1      5      {\"image\":\"x\"}   <none>\n\
                    b    <none>    <none>   7      <none>          true\n";
        let spec = "custom-columns=ID:.id,TAGS:.repoTags[*],FIRST:{.repoTags[0]},SIZE:size,SPEC:{spec},PIN:.pinned";
        assert_eq!(rendered(spec, &value), want);
        // A document without a list is one row.
        assert_eq!(rendered("custom-columns=V:.version", &json!({ "version": "1" })), "V\n1\n");
    }

    #[test]
    fn wrong_expressions_say_what_is_wrong() {
        let cases = [
            ("go-template={{.}}", "Go templates are not supported"),
            ("go-template", "Go templates are not supported"),
            ("jsonpath", "a template is missing"),
            ("jsonpath={.a", "is not closed"),
            ("jsonpath={range .a[*]}{.b}", "a {range} has no {end}"),
            ("jsonpath={end}", "outside of a {range}"),
            ("jsonpath={id}", "a path begins with a dot"),
            ("jsonpath={.a[x]}", "expected selector"),
            ("jsonpath={.a[?(@.b==)]}", "{.a[?(@.b==)]}"),
            ("jsonpath={\"\\q\"}", "escape"),
            ("custom-columns=ID", "is not NAME:PATH"),
            ("custom-columns=ID:.a..", "a name is empty"),
            ("jsonpath-file=x", "jsonpath=\"$(cat FILE)\""),
        ];
        for (form, want) in cases {
            let error = Expression::parse(form).expect("an expression").expect_err(form);
            let want = want.trim_matches(['{', '}']);
            assert!(error.contains(want), "{form}: {error}");
        }
        for form in ["json", "xml", "", "name=x"] {
            assert!(Expression::parse(form).is_none(), "{form}");
        }
    }
}
