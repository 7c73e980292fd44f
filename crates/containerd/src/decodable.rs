//! [`undecodable`]: configs that containerd cannot decode, so that it would never show their images. Refuses nothing that any version
//! of containerd accepts: what it does not know is left to containerd. Called before the first record of an image is written.

use serde_json::{Map, Value};

/// Returns why containerd cannot decode an image config; `None` if it can, as far as is known. The types are those of the config in
/// the OCI image specification 1.0, as Go decodes them: field names in any case, `null` for every type.
pub(crate) fn undecodable(config: &[u8]) -> Option<String> {
    let config: Value = serde_json::from_slice(config).ok()?;
    image(&config).err()
}

type Checked = Result<(), String>;

fn image(config: &Value) -> Checked {
    let Some(config) = object(config, "the config")? else { return Ok(()) };
    each(config, &["author", "architecture", "os"], string)?;
    each(config, &["created"], time)?;
    each(config, &["config"], run)?;
    each(config, &["rootfs"], |rootfs, name| {
        let Some(rootfs) = object(rootfs, name)? else { return Ok(()) };
        each(rootfs, &["type"], string)?;
        each(rootfs, &["diff_ids"], strings)
    })?;
    each(config, &["history"], |history, name| {
        array(history, name)?.iter().try_for_each(|entry| {
            let Some(entry) = object(entry, name)? else { return Ok(()) };
            each(entry, &["created"], time)?;
            each(entry, &["created_by", "author", "comment"], string)?;
            each(entry, &["empty_layer"], |value, name| expect(value.is_boolean(), value, name, "a boolean"))
        })
    })
}

fn run(run: &Value, name: &str) -> Checked {
    let Some(run) = object(run, name)? else { return Ok(()) };
    each(run, &["User", "WorkingDir", "StopSignal"], string)?;
    each(run, &["Env", "Entrypoint", "Cmd"], strings)?;
    each(run, &["ExposedPorts", "Volumes"], |set, name| {
        object(set, name)?.into_iter().flat_map(Map::values).try_for_each(|value| object(value, name).map(drop))
    })?;
    each(run, &["Labels"], |labels, name| {
        object(labels, name)?.into_iter().flat_map(Map::values).try_for_each(|value| string(value, name))
    })
}

/// Checks the fields of these names, in every spelling.
fn each(object: &Map<String, Value>, names: &[&str], check: impl Fn(&Value, &str) -> Checked) -> Checked {
    let named = object
        .iter()
        .filter_map(|(key, value)| names.iter().find(|name| name.eq_ignore_ascii_case(key)).map(|name| (*name, value)));
    named.into_iter().try_for_each(|(name, value)| check(value, name))
}

fn expect(is_good: bool, value: &Value, name: &str, wanted: &str) -> Checked {
    if is_good || value.is_null() { Ok(()) } else { Err(format!("{name} is not {wanted}")) }
}

fn string(value: &Value, name: &str) -> Checked {
    expect(value.is_string(), value, name, "a string")
}

fn strings(value: &Value, name: &str) -> Checked {
    array(value, name)?.iter().try_for_each(|value| string(value, name))
}

fn array<'v>(value: &'v Value, name: &str) -> Result<&'v [Value], String> {
    expect(value.is_array(), value, name, "an array")?;
    Ok(value.as_array().map_or(&[], Vec::as_slice))
}

fn object<'v>(value: &'v Value, name: &str) -> Result<Option<&'v Map<String, Value>>, String> {
    expect(value.is_object(), value, name, "an object")?;
    Ok(value.as_object())
}

/// Checks a time of RFC 3339. Versions of Go differ in the details, so only the outline counts.
fn time(value: &Value, name: &str) -> Checked {
    let has_outline = |text: &str| {
        let (date, time) = text.split_once('T')?;
        let numbers = |text: &str, separator: char| {
            text.split(separator).all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let is_date = date.split('-').count() == 3 && numbers(date, '-');
        let zone = time.find(['Z', '+', '-'])?;
        let clock = time[..zone].split(['.', ',']).next()?;
        (is_date && clock.split(':').count() == 3 && numbers(clock, ':')).then_some(())
    };
    let is_good = value.as_str().is_some_and(|text| has_outline(text).is_some());
    expect(is_good, value, name, "a time of RFC 3339")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_that_containerd_cannot_decode_are_refused() {
        for (config, why) in [
            (r#"{"created": ""}"#, Some("created is not a time of RFC 3339")),
            (r#"{"created": "yesterday"}"#, Some("created is not a time of RFC 3339")),
            (r#"{"Created": 7}"#, Some("created is not a time of RFC 3339")),
            (r#"{"created": "2024-01-01 10:00:00"}"#, Some("created is not a time of RFC 3339")),
            (r#"{"history": [{"created": ""}]}"#, Some("created is not a time of RFC 3339")),
            (r#"{"history": [{"empty_layer": "no"}]}"#, Some("empty_layer is not a boolean")),
            (r#"{"os": 1}"#, Some("os is not a string")),
            (r#"{"config": {"Env": "A=b"}}"#, Some("Env is not an array")),
            (r#"{"config": {"Cmd": [1]}}"#, Some("Cmd is not a string")),
            (r#"{"config": {"Labels": {"a": 1}}}"#, Some("Labels is not a string")),
            (r#"{"config": {"Volumes": {"/a": ""}}}"#, Some("Volumes is not an object")),
            (r#"{"config": []}"#, Some("config is not an object")),
            (r#"{"rootfs": {"diff_ids": "x"}}"#, Some("diff_ids is not an array")),
            (r#"[]"#, Some("the config is not an object")),
            (r#"{"created": "2024-01-01T10:00:00Z", "history": [{"created": "2024-01-01T10:00:00.5+02:00"}]}"#, None),
            (r#"{"created": null, "os": null, "config": {"Env": null, "Volumes": {"/a": {}, "/b": null}}}"#, None),
            (r#"{"variant": 8, "os.features": "x", "unknown": [1]}"#, None),
            ("no JSON", None),
        ] {
            assert_eq!(undecodable(config.as_bytes()).as_deref(), why, "{config}");
        }
    }
}
