//! The fixed texts that fields of a pod may have, as enumerations: [`words`] declares one. The types of the API have such
//! fields as text; [`super::values`] refuses a text that is none of its words. Knows no field. Called by everything that
//! acts on such a field.

/// A set of words, all of them read and printed by their names.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$word_doc])* $word,)+ }

        impl $name {
            /// Returns the name as in manifests.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$word => $text,)+ }
            }
        }

        impl $crate::pod::Word for $name {
            const ALL: &'static [(&'static str, Self)] = &[$(($text, Self::$word),)+];
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

/// A type whose values are a fixed set of texts, as the API has them.
pub trait Word: Copy + 'static {
    /// The set, by its texts.
    const ALL: &'static [(&'static str, Self)];

    /// Returns the word of this text, or `None` for an empty or unknown one.
    fn of(text: Option<&str>) -> Option<Self> {
        let text = text?;
        Self::ALL.iter().find(|(word, _)| *word == text).map(|(_, word)| *word)
    }
}

impl Word for image_manager::PullPolicy {
    const ALL: &'static [(&'static str, Self)] =
        &[("Always", Self::Always), ("IfNotPresent", Self::IfNotPresent), ("Never", Self::Never)];
}

words! {
    /// Kind of a container: the list of the spec in which it stands.
    ContainerKind {
        /// An entry of `initContainers`; a sidecar if its restart policy is `Always`.
        Init = "init",
        /// An entry of `containers`.
        Normal = "container",
        /// An entry of `ephemeralContainers`.
        Ephemeral = "ephemeral",
    }
}

words! {
    /// Treatment of a container that has ended.
    RestartPolicy {
        /// Started again.
        Always = "Always",
        /// Started again if it failed.
        OnFailure = "OnFailure",
        /// Left ended.
        Never = "Never",
    }
}

words! {
    /// Transport protocol of a port.
    Protocol {
        /// TCP, the default.
        Tcp = "TCP",
        /// UDP (RFC 768).
        Udp = "UDP",
        /// SCTP (RFC 9260).
        Sctp = "SCTP",
    }
}

words! {
    /// Source of the message of a container that has ended.
    TerminationMessagePolicy {
        /// The file alone.
        File = "File",
        /// The file, or the end of its log when it failed and the file is empty.
        FallbackToLogsOnError = "FallbackToLogsOnError",
    }
}

words! {
    /// Propagation of later mounts between node and container.
    MountPropagation {
        /// Neither way; the default.
        None = "None",
        /// Mounts are propagated from the node into the container.
        HostToContainer = "HostToContainer",
        /// Both ways.
        Bidirectional = "Bidirectional",
    }
}

words! {
    /// Read-only treatment of the mounts below a read-only mount.
    RecursiveReadOnly {
        /// Mounts below stay writable; the default.
        Disabled = "Disabled",
        /// Read-only all the way down, if the runtime supports that.
        IfPossible = "IfPossible",
        /// Read-only all the way down; otherwise the container does not start.
        Enabled = "Enabled",
    }
}

words! {
    /// Action of a restart rule.
    RestartAction {
        /// The container is started again.
        Restart = "Restart",
        /// All containers of the pod are removed and started again from the first init container on.
        RestartAllContainers = "RestartAllContainers",
    }
}

words! {
    /// Comparison of the exit code of a container with those of a restart rule.
    ExitCodeOperator {
        /// The exit code is one of the values.
        In = "In",
        /// The exit code is none of the values.
        NotIn = "NotIn",
    }
}

words! {
    /// Scheme of an HTTP request.
    Scheme {
        /// Plain text.
        Http = "HTTP",
        /// TLS without verification of the certificate.
        Https = "HTTPS",
    }
}

words! {
    /// Rule for the groups that an image gives the user of a container.
    SupplementalGroupsPolicy {
        /// The groups of the image count as well.
        Merge = "Merge",
        /// Only the groups of the pod count.
        Strict = "Strict",
    }
}

words! {
    /// Which profile of seccomp or AppArmor is in force.
    ProfileKind {
        /// No profile.
        Unconfined = "Unconfined",
        /// The runtime's own.
        RuntimeDefault = "RuntimeDefault",
        /// A profile of the node.
        Localhost = "Localhost",
    }
}

words! {
    /// The part of `/proc` that a container sees.
    ProcMount {
        /// The usual masking of the runtime.
        Default = "Default",
        /// All of it.
        Unmasked = "Unmasked",
    }
}

words! {
    /// Source of a pod's name servers.
    DnsPolicy {
        /// The cluster's name server, also with the node's network.
        ClusterFirstWithHostNet = "ClusterFirstWithHostNet",
        /// The cluster's name server, or the node's where there is none.
        ClusterFirst = "ClusterFirst",
        /// The node's name servers.
        Default = "Default",
        /// Only those of `dnsConfig`.
        None = "None",
    }
}

words! {
    /// Check of a path on the node.
    HostPathType {
        /// A directory; it is made where it is missing.
        DirectoryOrCreate = "DirectoryOrCreate",
        /// A directory, which must be there.
        Directory = "Directory",
        /// A file; it is made where it is missing.
        FileOrCreate = "FileOrCreate",
        /// A file, which must be there.
        File = "File",
        /// A Unix domain socket, which must be there.
        Socket = "Socket",
        /// A character device, which must be there.
        CharDevice = "CharDevice",
        /// A block device, which must be there.
        BlockDevice = "BlockDevice",
    }
}

impl ContainerKind {
    /// Returns the field of the spec.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Normal => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

impl Protocol {
    /// Returns the protocol of a port: TCP unless it is set.
    pub(crate) fn of_port(port: &super::ContainerPort) -> Self {
        Self::of(port.protocol.as_deref()).unwrap_or(Self::Tcp)
    }
}
