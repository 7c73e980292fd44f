//! Volumes: one source each, and files that stay below them. Called by [`super::validate`].

use std::collections::BTreeSet;

use manifest::{FieldErrors, FieldPath};

use super::names::UniqueNames;
use super::names::{config_key, file_path, label, needed, subdomain};
use super::variables::{field_ref, resource_ref};
use crate::environment::FieldUse;
use crate::pod::{DocumentFiles, DownwardAPIVolumeFile, PodSpec, ProjectedSource, VolumeSource, size_limit};

/// No token is asked for that lasts less, in seconds.
const SHORTEST_TOKEN: i64 = 600;

pub(super) fn volumes(spec: &PodSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = UniqueNames::default();
    for (index, volume) in spec.volumes.iter().enumerate() {
        let path = path.index(index);
        needed(errors, path.child("name"), &volume.name, label);
        seen.check(errors, path.child("name"), &volume.name);
        for field in VolumeSource::further_fields(volume) {
            errors.forbidden(path.child(field), "may not specify more than 1 volume type");
        }
        source(spec, VolumeSource::of(volume), &path, errors);
    }
}

fn source(spec: &PodSpec, source: VolumeSource<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    match source {
        VolumeSource::HostPath(volume) => {
            let host = &volume.path;
            let path = path.child("hostPath").child("path");
            if host.is_empty() {
                errors.required(path, "");
            } else if host.split('/').any(|part| part == "..") {
                errors.invalid(path, host, "must not contain '..'");
            } else if !host.starts_with('/') {
                errors.invalid(path, host, "must be an absolute path");
            }
        }
        VolumeSource::EmptyDir(directory) => {
            if let Some(limit) = size_limit(directory).filter(|limit| limit.is_negative()) {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(path.child("emptyDir").child("sizeLimit"), format!("{detail}, not {limit}"));
            }
        }
        VolumeSource::ConfigMap(volume) => document(volume, "name", &path.child("configMap"), errors),
        VolumeSource::Secret(volume) => document(volume, "secretName", &path.child("secret"), errors),
        VolumeSource::DownwardApi(volume) => {
            let path = path.child("downwardAPI");
            mode(volume.default_mode, &path.child("defaultMode"), errors);
            downward(spec, volume.items.as_deref().unwrap_or_default(), &path.child("items"), errors);
        }
        VolumeSource::Projected(volume) => {
            let path = path.child("projected");
            mode(volume.default_mode, &path.child("defaultMode"), errors);
            let sources: Vec<_> = volume.sources.iter().flatten().map(ProjectedSource::of).collect();
            projected(spec, &sources, &path.child("sources"), errors);
        }
        VolumeSource::Image(image) => {
            let reference = image.reference.as_deref().unwrap_or_default();
            let path = path.child("image").child("reference");
            if reference.is_empty() {
                errors.required(path, "");
            } else if reference.trim() != reference {
                errors.invalid(path, reference, "must not have leading or trailing whitespace");
            }
        }
    }
}

fn document(volume: DocumentFiles<'_>, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    needed(errors, path.child(name), volume.name, subdomain);
    mode(volume.default_mode, &path.child("defaultMode"), errors);
    for (index, item) in volume.items.iter().enumerate() {
        let path = path.child("items").index(index);
        needed(errors, path.child("key"), &item.key, config_key);
        needed(errors, path.child("path"), &item.path, file_path);
        mode(item.mode, &path.child("mode"), errors);
    }
}

fn downward(spec: &PodSpec, items: &[DownwardAPIVolumeFile], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index);
        needed(errors, path.child("path"), &item.path, file_path);
        mode(item.mode, &path.child("mode"), errors);
        match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), None) => field_ref(field, FieldUse::File, &path.child("fieldRef"), errors),
            (None, Some(amount)) => resource_ref(spec, None, amount, &path.child("resourceFieldRef"), errors),
            (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
            (Some(_), Some(_)) => {
                errors.invalid_plain(
                    path,
                    "a map",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
    }
}

/// Validates that the parts of a projected volume, which share one directory, have distinct files.
fn projected(spec: &PodSpec, sources: &[ProjectedSource<'_>], path: &FieldPath, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (index, source) in sources.iter().enumerate() {
        let path = path.index(index);
        let (field, files): (&str, Vec<&str>) = match *source {
            ProjectedSource::ConfigMap(volume) => {
                document(volume, "name", &path.child("configMap"), errors);
                ("configMap", volume.items.iter().map(|item| item.path.as_str()).collect())
            }
            ProjectedSource::Secret(volume) => {
                document(volume, "name", &path.child("secret"), errors);
                ("secret", volume.items.iter().map(|item| item.path.as_str()).collect())
            }
            ProjectedSource::DownwardApi(items) => {
                downward(spec, items, &path.child("downwardAPI").child("items"), errors);
                ("downwardAPI", items.iter().map(|item| item.path.as_str()).collect())
            }
            ProjectedSource::ServiceAccountToken(token) => {
                let path = path.child("serviceAccountToken");
                needed(errors, path.child("path"), &token.path, file_path);
                if token.expiration_seconds.is_some_and(|seconds| seconds < SHORTEST_TOKEN) {
                    let detail = "may not specify a duration less than 10 minutes";
                    errors.invalid_plain(
                        path.child("expirationSeconds"),
                        token.expiration_seconds.unwrap_or(0),
                        detail,
                    );
                }
                if !token.path.is_empty() && !taken.insert(token.path.as_str()) {
                    errors.invalid(path.child("path"), &token.path, "conflicting duplicate paths");
                }
                continue;
            }
            ProjectedSource::Unclear(0) => {
                errors.required(path, "one of configMap, secret and downwardAPI is required");
                continue;
            }
            ProjectedSource::Unclear(_) => {
                errors.forbidden(path, "may not specify more than 1 volume type per source");
                continue;
            }
        };
        for (index, file) in files.into_iter().enumerate() {
            if !file.is_empty() && !taken.insert(file) {
                let path = path.child(field).child("items").index(index).child("path");
                errors.invalid(path, file, "conflicting duplicate paths");
            }
        }
    }
}

fn mode(mode: Option<i32>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid_plain(path.clone(), mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}
