//! Tests of templates, with the answers that kubectl gives.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Pairs of a template that users type, and the text that kubectl prints for the same object.
#[test]
fn templates_as_kubectl_has_them() {
    let value = json!({
        "kind": "List",
        "items": [
            { "kind": "None", "name": "one", "labels": { "app.kubernetes.io/name": "a", "tier": "x" }, "size": 12 },
            { "kind": "None", "name": "two", "labels": { "tier": "y" }, "size": 30, "tags": ["t1", "t2", "t3"] },
        ],
        "users": [
            { "name": "myself", "user": {}, "on": true },
            { "name": "e2e", "user": { "username": "admin", "password": "it's" } },
        ],
    });
    let cases = [
        (r"kind is {.kind}", "kind is List"),
        (r"{.kind}", "List"),
        (r"{@.kind}", "List"),
        (r"{$.kind}", "List"),
        (r"{['kind']}", "List"),
        (r".items[*].name", "one two"),
        (r"{.items[*].name}", "one two"),
        (r"{.items[*]['name','size']}", "one two 12 30"),
        (r"{.items[0].name}", "one"),
        (r"{.items[-1].name}", "two"),
        (r"{.items[1].tags[0:2]}", "t1 t2"),
        (r"{.items[1].tags[-1:]}", "t3"),
        (r"{.items[1].tags}", r#"["t1","t2","t3"]"#),
        (r"{.items[1].labels}", r#"{"tier":"y"}"#),
        (r"{.items[0].labels.app\.kubernetes\.io/name}", "a"),
        (r"{.items[0].labels['app\.kubernetes\.io/name']}", "a"),
        (r"{.items[0].labels['app.kubernetes.io/name']}", "a"),
        (r"{.items[0].labels.*}", "a x"),
        (r"{..tier}", "x y"),
        (r"{.items..name}", "one two"),
        (r#"{.users[?(@.name=="e2e")].user.password}"#, "it's"),
        (r"{.users[?(@.name=='e2e')].user.password}", "it's"),
        (r#"{.users[?(@.user.password=="it's")].name}"#, "e2e"),
        (r"{.items[?(@.size>20)].name}", "two"),
        (r"{.items[?(@.size <= 20)].name}", "one"),
        (r"{.items[?(@.tags)].name}", "two"),
        (r#"{.items[?(@.labels.app\.kubernetes\.io/name=="a")].name}"#, "one"),
        (r"{.users[?(@.on==true)].name}", "myself"),
        (r#"{range .items[*]}[{.name}, {.size}] {end}"#, "[one, 12] [two, 30] "),
        (r#"{range .items[*]}{.name}{"\t"}{.labels.tier}{"\n"}{end}"#, "one\tx\ntwo\ty\n"),
        (r#"{range .items[*]}{.name}:{range .tags[*]} {@}{end};{end}"#, "one:;two: t1 t2 t3;"),
        (r#"{range .items[*]}{.name}{' - '}{end}"#, "one - two - "),
        (r#"{.kind}{"\n"}{.items[0].size}"#, "List\n12"),
        (r#"{.kind "\n" .items[0].size}"#, "List\n12"),
        (r"{.nothing}", ""),
        (r"{.items[*].nothing.at.all}", ""),
        (r"{.items[7].name}", ""),
        ("{\"\\u00e9 {x}\"}", "é {x}"),
        ("text alone", "text alone"),
    ];
    for (template, want) in cases {
        let got = Template::parse(template).map(|template| template.render(&value));
        assert_eq!(got.unwrap_or_else(|_| "ERROR".to_owned()), want, "{template}");
    }
    assert_eq!(Template::parse("{.}").expect("parses").render(&json!({"a": null})), r#"{"a":null}"#);
}

#[test]
fn the_list_of_a_document_is_called_items_too() {
    let ids = Template::parse("{.items[*].id}").expect("parses");
    let items = json!([{ "id": "a" }, { "id": "b" }]);
    for document in [json!({ "items": items }), json!({ "images": items, "total": 2 }), items.clone()] {
        assert_eq!(ids.render(&document), "a b", "{document}");
    }
    // With two lists, neither is the list of the document.
    assert_eq!(ids.render(&json!({ "images": items, "pins": [] })), "");
    assert_eq!(Template::parse("{.images[*].id}").expect("parses").render(&json!({ "images": items })), "a b");
    assert_eq!(Template::parse("{[1].id}").expect("parses").render(&items), "b");
}

#[test]
fn errors_are_one_line() {
    for path in
        [".a[x]", ".a[?(@.b==)]", ".a[?(@.b", ".a['b]", ".a]", ".a[1.5]", ".a,b", "[", ".a[99999999999999999999]"]
    {
        let error = Query::parse(path).expect_err(path);
        assert!(error.starts_with(&format!("{path:?}: ")) && !error.contains('\n'), "{error}");
    }
}

proptest! {
    #[test]
    fn parser_and_evaluation_never_panic(text in "[.a*0-9:,?@$()<>=!&|'\"\\\\ \\[\\]{}é-]{0,24}", any in ".{0,40}") {
        let value = json!({ "a": [1, { "a": [2, 3] }, "0"], "0": { "a": "é" } });
        for text in [text.as_str(), &format!(".{text}"), &format!("{{.a[{text}]}}"), &format!("{{range .a[*]}}{{{text}}}{{end}}"), &any] {
            if let Ok(template) = Template::parse(text) {
                let _ = template.render(&value);
            }
        }
    }
}
