//! [`shape_at`]: the fields that a type reads at a place of its JSON. Types that serde reads pass the names of their fields
//! to the deserializer; this one follows a path through the type and returns the names at its end. Reads no value. Called
//! by [`crate::decode`] to name fields and to suggest names.

use std::cell::Cell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// A step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An entry of a map, or a field of a struct.
    Key(String),
    /// An entry of a list.
    Index(usize),
}

/// The keys that a type reads at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The fields of a struct.
    Fields(&'static [&'static str]),
    /// A map whose keys are the user's own.
    Entries,
    /// No map, or no place that the type has.
    #[default]
    Other,
}

/// Returns the shape of `T` at the end of `steps`.
pub(crate) fn shape_at<T: DeserializeOwned>(steps: &[Step]) -> Shape {
    let found = Cell::default();
    // The walk ends with an error in any case: there is no value to read.
    let _ = T::deserialize(TypeWalk { steps, found: &found });
    found.get()
}

/// A deserializer that has one entry in every map and list: the next step.
struct TypeWalk<'s> {
    steps: &'s [Step],
    found: &'s Cell<Shape>,
}

/// The end of a walk.
#[derive(Debug, thiserror::Error)]
#[error("the walk ends here")]
struct End;

impl Error for End {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self
    }
}

impl<'s> TypeWalk<'s> {
    /// Returns the walk after the next step, or `None` at the target, whose shape is kept.
    fn next(self, shape: Shape) -> Option<OneEntry<'s>> {
        let Some((step, steps)) = self.steps.split_first() else {
            self.found.set(shape);
            return None;
        };
        Some(OneEntry { step: Some(step), walk: Some(TypeWalk { steps, found: self.found }) })
    }
}

impl<'de> Deserializer<'de> for TypeWalk<'_> {
    type Error = End;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, End> {
        Err(End)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, End> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, End> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, End> {
        visitor.visit_seq(self.next(Shape::Other).ok_or(End)?)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, End> {
        visitor.visit_map(self.next(Shape::Entries).ok_or(End)?)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, End> {
        visitor.visit_map(self.next(Shape::Fields(fields)).ok_or(End)?)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

/// A map or a list with the one entry that the next step leads to.
struct OneEntry<'s> {
    step: Option<&'s Step>,
    walk: Option<TypeWalk<'s>>,
}

impl<'de> MapAccess<'de> for OneEntry<'_> {
    type Error = End;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, End> {
        match self.step.take() {
            Some(Step::Key(key)) => {
                let key: StrDeserializer<'_, End> = key.as_str().into_deserializer();
                seed.deserialize(key).map(Some)
            }
            Some(Step::Index(_)) | None => Err(End),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, End> {
        seed.deserialize(self.walk.take().ok_or(End)?)
    }
}

impl<'de> SeqAccess<'de> for OneEntry<'_> {
    type Error = End;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, End> {
        match self.step.take() {
            Some(Step::Index(_)) => seed.deserialize(self.walk.take().ok_or(End)?).map(Some),
            Some(Step::Key(_)) | None => Err(End),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    use super::*;

    #[test]
    fn fields_are_found_through_lists_maps_and_options() {
        let shape = |path: &str| {
            let step = |text: &str| text.parse().map_or_else(|_| Step::Key(text.to_owned()), Step::Index);
            shape_at::<PodTemplateSpec>(&path.split('.').filter(|text| !text.is_empty()).map(step).collect::<Vec<_>>())
        };
        assert_eq!(shape(""), Shape::Fields(&["metadata", "spec"]));
        assert_eq!(
            shape("spec.containers.3.ports.0"),
            Shape::Fields(&["containerPort", "hostIP", "hostPort", "name", "protocol"])
        );
        assert_eq!(shape("metadata.labels"), Shape::Entries);
        assert_eq!(shape("spec.containers.0.resources.limits"), Shape::Entries);
        for other in
            ["spec.containers", "spec.containers.0.name", "spec.containers.name", "spec.odd.0", "metadata.labels.a"]
        {
            assert_eq!(shape(other), Shape::Other, "{other}");
        }
    }
}
