//! The images that the conformance suite pulls, as data: a test that runs the suite builds them from this description and
//! pushes them to a registry that the implementation reaches.
//!
//! Each image has two layers: one that all share, with the file [`BASE_PATH`] of content [`BASE_CONTENT`], and one of
//! its own with the file [`CONTENT_PATH`] of its own content. Platform: the one of the machine.

/// File in the layer that all fixture images share.
pub const BASE_PATH: &str = "conformance/base";
/// Content of that file.
pub const BASE_CONTENT: &str = "the layer below all conformance images\n";
/// File in the layer that an image has for itself.
pub const CONTENT_PATH: &str = "conformance/content";
/// Label of the image config that a builder varies to get an image id with a wanted prefix.
pub const NONCE_LABEL: &str = "conformance.nonce";

/// An image of the fixtures.
#[derive(Debug, PartialEq, Eq)]
pub struct FixtureImage {
    /// Content of [`CONTENT_PATH`]; no two images have the same.
    pub content: &'static str,
    /// `USER` of the config; empty: none.
    pub user: &'static str,
    /// The image is pushed as an image index that holds the one manifest, so that its tags resolve to the index.
    pub index: bool,
    /// Hex digits with which the image id begins; the builder varies [`NONCE_LABEL`] until it does. Empty: any id.
    pub id_prefix: &'static str,
    /// Every repository and tag under which it is pushed.
    pub names: &'static [(&'static str, &'static str)],
}

const PLAIN: FixtureImage = FixtureImage { content: "", user: "", index: false, id_prefix: "", names: &[] };

/// Has a tag other than `latest`.
pub const TAGGED: FixtureImage =
    FixtureImage { content: "tagged\n", names: &[("conformance/tagged", "v1.0")], ..PLAIN };
/// Has the tag `latest`.
pub const LATEST: FixtureImage =
    FixtureImage { content: "latest\n", names: &[("conformance/latest", "latest")], ..PLAIN };
/// Pushed as an image index.
pub const INDEXED: FixtureImage =
    FixtureImage { content: "indexed\n", index: true, names: &[("conformance/indexed", "v1")], ..PLAIN };
/// Image in a repository of one component below `library/`, for names without a slash.
pub const OFFICIAL: FixtureImage =
    FixtureImage { content: "official\n", names: &[("library/conformance-official", "latest")], ..PLAIN };
/// Three different images.
pub const LISTED: [&FixtureImage; 3] = [
    &FixtureImage { content: "list 1\n", names: &[("conformance/list-1", "latest")], ..PLAIN },
    &FixtureImage { content: "list 2\n", names: &[("conformance/list-2", "latest")], ..PLAIN },
    &FixtureImage { content: "list 3\n", names: &[("conformance/list-3", "latest")], ..PLAIN },
];
/// An image under three tags of one repository, and in another repository.
pub const MANY_NAMES: FixtureImage = FixtureImage {
    content: "many names\n",
    names: &[
        ("conformance/tags", "1"),
        ("conformance/tags", "2"),
        ("conformance/tags", "3"),
        ("conformance/elsewhere", "3.9"),
    ],
    ..PLAIN
};
/// `USER` is a number.
pub const USER_UID: FixtureImage =
    FixtureImage { content: "uid\n", user: "1002", names: &[("conformance/user-uid", "latest")], ..PLAIN };
/// `USER` is a name.
pub const USER_NAME: FixtureImage =
    FixtureImage { content: "username\n", user: "www-data", names: &[("conformance/user-name", "latest")], ..PLAIN };
/// `USER` is a number with a group.
pub const USER_UID_GROUP: FixtureImage = FixtureImage {
    content: "uid and group\n",
    user: "1003:1004",
    names: &[("conformance/user-uid-group", "latest")],
    ..PLAIN
};
/// `USER` is a name with a group.
pub const USER_NAME_GROUP: FixtureImage = FixtureImage {
    content: "username and group\n",
    user: "www-data:1004",
    names: &[("conformance/user-name-group", "latest")],
    ..PLAIN
};
/// Image that [`MOVING_TAG`] means at first.
pub const MOVING_OLD: FixtureImage =
    FixtureImage { content: "before the move\n", names: &[MOVING_TAG, ("conformance/moving-old", "v1")], ..PLAIN };
/// Image that [`MOVING_TAG`] means after the harness moved it.
pub const MOVING_NEW: FixtureImage =
    FixtureImage { content: "after the move\n", names: &[("conformance/moving-new", "v1")], ..PLAIN };
/// The tag that the suite has moved from [`MOVING_OLD`] to [`MOVING_NEW`] and back.
pub const MOVING_TAG: (&str, &str) = ("conformance/moving", "stable");
/// Two images whose ids begin alike.
pub const ALIKE: [&FixtureImage; 2] = [
    &FixtureImage { content: "alike 1\n", id_prefix: "abc", names: &[("conformance/alike-1", "latest")], ..PLAIN },
    &FixtureImage { content: "alike 2\n", id_prefix: "abc", names: &[("conformance/alike-2", "latest")], ..PLAIN },
];

/// All of them.
pub const IMAGES: &[&FixtureImage] = &[
    &TAGGED,
    &LATEST,
    &INDEXED,
    &OFFICIAL,
    LISTED[0],
    LISTED[1],
    LISTED[2],
    &MANY_NAMES,
    &USER_UID,
    &USER_NAME,
    &USER_UID_GROUP,
    &USER_NAME_GROUP,
    &MOVING_OLD,
    &MOVING_NEW,
    ALIKE[0],
    ALIKE[1],
];
