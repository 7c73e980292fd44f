//! Requests and limits of a container: amounts that make sense, of resources that this node gives. Called by
//! [`super::containers`].

use manifest::{FieldErrors, FieldPath};
use oci::Quantity;

use crate::pod::Resources;

/// Limits and requests.
pub(super) fn resources(resources: &Resources, path: &FieldPath, errors: &mut FieldErrors) {
    for (name, limit) in &resources.limits {
        amount(name, *limit, &path.child("limits").key(name), errors);
    }
    for (name, request) in &resources.requests {
        // A request that equals its limit may have been derived from it: its errors are reported at the limit.
        if resources.limits.get(name) == Some(request) {
            continue;
        }
        let path = path.child("requests").key(name);
        amount(name, *request, &path, errors);
        match resources.limits.get(name) {
            Some(limit) if name.starts_with("hugepages-") && request != limit => {
                errors.invalid(path, &request.to_string(), format!("must be equal to {name} limit of {limit}"));
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(path, &request.to_string(), detail);
            }
            None if name.starts_with("hugepages-") => {
                errors.required(path, "limit must be set for huge pages");
            }
            _ => {}
        }
    }
    let has = |name: &str| resources.limits.contains_key(name) || resources.requests.contains_key(name);
    let huge = resources.limits.keys().any(|name| name.starts_with("hugepages-"));
    if huge && !has("cpu") && !has("memory") {
        errors.forbidden(path.clone(), "HugePages require cpu or memory");
    }
}

fn is_device(name: &str) -> bool {
    name.contains('/')
}

fn amount(name: &str, quantity: Quantity, path: &FieldPath, errors: &mut FieldErrors) {
    match name {
        "cpu" | "memory" | "ephemeral-storage" => {}
        _ if name.strip_prefix("hugepages-").is_some_and(|size| page_size(size).is_some()) => {
            if !quantity.is_whole() {
                errors.invalid(path.clone(), &quantity.to_string(), "must be an integer");
            }
        }
        _ if is_device(name) => {
            errors.not_supported(path.clone(), "devices are not given out by the name of a resource on this node");
            return;
        }
        _ => {
            errors.invalid(path.clone(), name, "must be a standard resource for containers");
            return;
        }
    }
    if quantity.is_negative() {
        errors.invalid(path.clone(), &quantity.to_string(), "must be greater than or equal to 0");
    }
}

/// Returns the bytes of a huge page: `2Mi`.
pub(crate) fn page_size(text: &str) -> Option<Quantity> {
    text.parse::<Quantity>().ok().filter(|size| size.is_whole() && *size > Quantity::ZERO)
}
