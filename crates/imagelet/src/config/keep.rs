//! Keep rules as the configuration writes them: one text each. Parses them into [`KeepRule`]s; [`image_manager::gc`] decides
//! what a rule does.

use image_manager::gc::{KeepRule, Pattern, RuleEffect};

use serde_json::{Value, json};

use super::form::Form;

/// Texts that are valid rules.
pub(super) struct Rules;

impl Form for Rules {
    type Of = Vec<String>;

    fn read(value: Value) -> Result<Vec<String>, String> {
        let Value::Array(items) = value else { return Err(String::new()) };
        let text = |item: &Value| {
            let text = item.as_str().ok_or_else(String::new)?;
            rule(text).map(|_| text.to_owned())
        };
        items.iter().map(text).collect()
    }

    fn write(value: &Vec<String>) -> Value {
        json!(value)
    }

    fn schema() -> Value {
        const ALLOWED: &str =
            "a pattern such as registry.example/base/*, or one with a weight, such as registry.example/big/**;weight=4";
        json!({"type": "array", "items": {"type": "string"}, "allowed": ALLOWED})
    }
}

/// Returns the rules of validated texts.
pub(crate) fn rules(texts: &[String]) -> Vec<KeepRule> {
    texts.iter().filter_map(|text| rule(text).ok()).collect()
}

fn rule(text: &str) -> Result<KeepRule, String> {
    let (pattern, effect) = match text.split_once(';') {
        None => (text, RuleEffect::Keep),
        Some((pattern, option)) => {
            let weight = option.strip_prefix("weight=").and_then(|number| number.parse::<f64>().ok());
            let weight = weight.filter(|weight| weight.is_finite() && (0.001..=1_000_000.0).contains(weight));
            let weight = weight.ok_or_else(|| format!("{text:?}: a weight is a number from 0.001 to 1000000"))?;
            (pattern, RuleEffect::Weigh(weight))
        }
    };
    let pattern = Pattern::parse(pattern).map_err(|error| error.to_string())?;
    Ok(KeepRule { pattern, effect })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_rules() {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let good = texts(&["registry.example/base/*", "namespace=shop;weight=2.5"]);
        assert_eq!(Rules::read(json!(good)), Ok(good.clone()));
        let rules = rules(&good);
        assert_eq!((rules.len(), rules[0].effect, rules[1].effect), (2, RuleEffect::Keep, RuleEffect::Weigh(2.5)));
        for bad in ["", "a b", "x;weight=0", "x;weight=-1", "x;weight=NaN", "x;keep", "x;weight=", ";weight=1"] {
            assert_ne!(Rules::read(json!([bad])).expect_err(bad), "", "{bad}");
        }
    }
}
