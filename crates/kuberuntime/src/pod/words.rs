//! The macro [`words`]: an enumeration of the fixed strings that a field of a manifest may have.

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
