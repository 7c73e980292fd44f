//! Variables of a container, and references to what the pod knows of itself. Called by [`super::containers`] and
//! [`super::volumes`].

use manifest::{FieldErrors, FieldPath};
use oci::Quantity;

use super::names::{config_key, needed, report, subdomain, variable};
use crate::environment::{ContainerAmount, FieldUse, PodField};
use crate::pod::{Container, EnvSource, KeyRef, ObjectFieldSelector, Pod, PodSpec, ResourceFieldSelector, divisor};

/// `env` and `envFrom`.
pub(super) fn variables(pod: &Pod, container: &Container, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, each) in container.env.iter().enumerate() {
        let path = path.child("env").index(index);
        needed(errors, path.child("name"), &each.name, variable);
        let from = path.child("valueFrom");
        match EnvSource::of(each) {
            EnvSource::Literal(_) => {}
            EnvSource::Field(field) => field_ref(field, FieldUse::Variable, &from.child("fieldRef"), errors),
            EnvSource::Resource(amount) => {
                resource_ref(&pod.spec, Some(container), amount, &from.child("resourceFieldRef"), errors);
            }
            EnvSource::ConfigMapKey(key) => key_ref(key, &from.child("configMapKeyRef"), errors),
            EnvSource::SecretKey(key) => key_ref(key, &from.child("secretKeyRef"), errors),
            EnvSource::Unclear(0) => {
                let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
                errors.invalid_plain(from, "\"\"", detail);
            }
            EnvSource::Unclear(_) => {
                let detail = "may not be specified when `value` is not empty, and may not have more than one field \
                              specified at a time";
                errors.invalid_plain(from, "\"\"", detail);
            }
        }
    }
    for (index, each) in container.env_from.iter().enumerate() {
        let path = path.child("envFrom").index(index);
        if let Some(prefix) = each.prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
            report(errors, &path.child("prefix"), prefix, variable(prefix));
        }
        match (&each.config_map_ref, &each.secret_ref) {
            (None, None) => {
                errors.invalid_plain(path.clone(), "\"\"", "must specify one of: `configMapRef` or `secretRef`");
            }
            (Some(_), Some(_)) => {
                errors.invalid_plain(path.clone(), "\"\"", "may not have more than one field specified at a time");
            }
            _ => {}
        }
        if let Some(document) = &each.config_map_ref {
            needed(errors, path.child("configMapRef").child("name"), &document.name, subdomain);
        }
        if let Some(document) = &each.secret_ref {
            needed(errors, path.child("secretRef").child("name"), &document.name, subdomain);
        }
    }
}

fn key_ref(key: KeyRef<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    needed(errors, path.child("name"), key.name, subdomain);
    needed(errors, path.child("key"), key.key, config_key);
}

pub(super) fn field_ref(field: &ObjectFieldSelector, place: FieldUse, path: &FieldPath, errors: &mut FieldErrors) {
    let version = field.api_version.as_deref().unwrap_or_default();
    if version != "v1" && !version.is_empty() {
        errors.invalid(path.child("apiVersion"), version, "must be v1");
    }
    let path = path.child("fieldPath");
    if field.field_path.is_empty() {
        errors.required(path, "");
        return;
    }
    match PodField::parse(&field.field_path, place) {
        None => {
            let detail = format!("error converting fieldPath: field label not supported: {}", field.field_path);
            errors.invalid(path, &field.field_path, detail);
        }
        Some(PodField::Label(key) | PodField::Annotation(key)) => {
            report(errors, &path, &field.field_path, super::names::qualified_name(&key.to_lowercase()));
        }
        Some(_) => {}
    }
}

/// Validates a reference to an amount of a container; a file has to name the container.
pub(super) fn resource_ref(
    spec: &PodSpec,
    own: Option<&Container>,
    reference: &ResourceFieldSelector,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let name = reference.container_name.as_deref().unwrap_or_default();
    let mut containers = spec.containers.iter().chain(&spec.init_containers);
    if name.is_empty() && own.is_none() {
        errors.required(path.child("containerName"), "");
    } else if !name.is_empty() && !containers.any(|container| container.name == name) {
        errors.not_found(path.child("containerName"), name);
    }
    if reference.resource.is_empty() {
        errors.required(path.child("resource"), "");
        return;
    }
    let Some(amount) = ContainerAmount::parse(&reference.resource) else {
        errors.unsupported(path.child("resource"), &reference.resource, ContainerAmount::NAMES);
        return;
    };
    let allowed: &[&str] = if amount.is_cores() {
        &["1m", "1"]
    } else {
        &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"]
    };
    let divisor = divisor(reference);
    let fits = allowed.iter().any(|text| text.parse::<Quantity>() == Ok(divisor));
    if !fits {
        let detail = match amount.is_cores() {
            true => "only divisor's values 1m and 1 are supported with the cpu resource".to_owned(),
            false => {
                let resource = reference.resource.split_once('.').map_or("", |(_, resource)| resource);
                format!(
                    "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported \
                     with the {resource} resource"
                )
            }
        };
        errors.invalid(path.child("divisor"), &divisor.to_string(), detail);
    }
}
