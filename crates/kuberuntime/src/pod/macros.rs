//! Declarations of the model: [`words`], an enumeration of the fixed strings that a field of a manifest may have, and
//! [`object`], an object of Kubernetes, whose fields are declared once, each with its name in manifests, and are read and
//! written by it.

/// A set of words with a default, all of them read and printed by their names.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$word_doc])* $word,)+ }

        impl $name {
            /// The name as manifests write it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$word => $text,)+ }
            }
        }

        impl $crate::pod::read::Json for $name {
            fn from_value(
                value: &serde_json::Value,
                path: $crate::FieldPath,
                errors: &mut $crate::FieldErrors,
            ) -> Option<Self> {
                $crate::pod::read::word(&[$(($text, Self::$word),)+], value, path, errors)
            }

            fn to_value(&self) -> serde_json::Value {
                self.as_str().into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

/// A struct that is read from an object of a manifest, and written as one. Behind each field stands its name there:
/// - `"name"`: the field is left out when it says nothing;
/// - `"name" always`: the field is always written;
/// - `flat`: the fields of the value are on the same level as the others;
/// - `with module`: the module's functions `read` and `write` do it.
///
/// Behind the name of the struct may stand a function that refuses or ignores other fields before these are read.
macro_rules! object {
    (@read $fields:ident flat) => { $crate::pod::read::ManifestObject::read($fields) };
    (@read $fields:ident with $module:ident) => { $module::read($fields) };
    (@read $fields:ident $name:literal $(always)?) => { $crate::pod::read::ManifestField::read($fields, $name) };
    (@write $value:expr, $object:ident flat) => { $crate::pod::read::ManifestObject::write($value, $object) };
    (@write $value:expr, $object:ident with $module:ident) => { $module::write($value, $object) };
    (@write $value:expr, $object:ident $name:literal always) => {
        $object.insert($name.to_owned(), $crate::pod::read::Json::to_value($value))
    };
    (@write $value:expr, $object:ident $name:literal) => { $crate::pod::read::ManifestField::write($value, $name, $object) };
    (
        $(#[$meta:meta])*
        $vis:vis struct $struct:ident $(($first:path))? {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty = $form:tt $($more:ident)?,)+
        }
    ) => {
        $(#[$meta])*
        $vis struct $struct { $($(#[$field_meta])* $field_vis $field: $type,)+ }

        impl $crate::pod::read::ManifestObject for $struct {
            fn read(fields: &mut $crate::pod::read::ManifestFields<'_>) -> Self {
                $($first(fields);)?
                Self { $($field: object!(@read fields $form $($more)?),)+ }
            }

            fn write(&self, object: &mut serde_json::Map<String, serde_json::Value>) {
                $(object!(@write &self.$field, object $form $($more)?);)+
            }
        }

        impl serde::Serialize for $struct {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::pod::read::Json::to_value(self).serialize(serializer)
            }
        }
    };
}
pub(crate) use object;
