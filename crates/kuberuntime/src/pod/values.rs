//! Texts of the API that stand for something else, words and quantities: reports those that stand for nothing. Called by
//! [`super::convert`] and [`super::unsupported`].

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use manifest::{FieldErrors, FieldPath};
use oci::Quantity;

use super::words::Word;

/// Reports a text that is not one of the words of its field. An empty text counts as absent.
pub(super) fn refuse_other_words<T: Word>(text: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(text) = text.filter(|text| !text.is_empty())
        && T::of(Some(text)).is_none()
    {
        let supported: Vec<&str> = T::ALL.iter().map(|(word, _)| *word).collect();
        errors.unsupported(path.clone(), text, &supported);
    }
}

/// Reads a quantity, and reports one that cannot be read.
pub(super) fn quantity(amount: &ApiQuantity, path: &FieldPath, errors: &mut FieldErrors) -> Option<Quantity> {
    let read = amount.0.parse();
    read.map_err(|error: oci::QuantityError| errors.invalid(path.clone(), &amount.0, error.to_string())).ok()
}
