//! [`decide`]: from pull policy, presence and access to a decision with its reason. Pure. Called for every request and by
//! `explain`.

use std::fmt;

use crate::PullPolicy;

/// Presence of an image on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The presence was not checked, because the policy does not need it.
    NotChecked,
    /// Absent from the node.
    Absent,
    /// Present on the node under this image ref.
    Present {
        /// Image ref of the runtime.
        image_ref: String,
    },
}

/// Access of a pod to an image that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The pod may use the image.
    Granted(Grant),
    /// The registry has to decide: nothing on the node proves that this pod may use the image.
    MustVerify(AccessUnverified),
}

/// The reason why a pod may use an image that is already present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// No pull records are kept, so every pod may use every present image.
    NoRecordsKept,
    /// The verification policy asks for no proof (`NeverVerify`).
    PolicyNeverVerifies,
    /// The verification policy asks for no proof for preloaded images.
    Preloaded,
    /// The image is on the allowlist of the verification policy.
    Allowlisted,
    /// Pulled without a credential, or with one of the node: every pod may use the image.
    NodeAccessible,
    /// Pulled with a credential that this pod has.
    CredentialMatches,
    /// An image set of the cluster permits it to the namespace of this pod.
    Namespace,
}

/// The reason why nothing on the node proves that a pod may use an image that is already present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessUnverified {
    /// No record of the pull exists, and the policy demands proof.
    NoRecord,
    /// Recorded under other names only.
    NotRecordedByThisName,
    /// The record names credentials, and this pod has none of them.
    NoMatchingCredential,
    /// The record cannot be read.
    RecordUnreadable,
}

/// Decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The present image is used.
    UseLocal {
        /// The image ref of the runtime.
        image_ref: String,
        /// The reason why no pull is needed.
        why: UseLocalReason,
    },
    /// The image is pulled.
    Pull(PullReason),
    /// The request fails.
    Refuse(RefuseReason),
}

/// The reason why a present image is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseLocalReason {
    /// The image is present, the policy does not ask for more, and this pod may use it.
    PresentAndGranted(Grant),
}

/// The reason for a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullReason {
    /// The policy is to ask the registry every time.
    PolicyIsAlways,
    /// The image is not known to be present.
    NotPresent,
    /// The image is present, but the registry has to confirm that this pod may use it.
    MustVerify(AccessUnverified),
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefuseReason {
    /// The image is not known to be present, and the policy forbids to pull it.
    NotPresentAndNeverPulled,
    /// The image is present, nothing proves that this pod may use it, and the policy forbids to ask the registry. The pod gets
    /// the same error as if the image were absent.
    MustVerifyAndNeverPulled(AccessUnverified),
}

/// Decides about a request. An image that was not checked counts as absent: an uncertain image is never used.
#[inline]
#[must_use]
pub fn decide(policy: PullPolicy, presence: Presence, access: Access) -> Decision {
    match (policy, presence, access) {
        (PullPolicy::Always, ..) => Decision::Pull(PullReason::PolicyIsAlways),
        (_, Presence::Present { image_ref }, Access::Granted(grant)) => {
            Decision::UseLocal { image_ref, why: UseLocalReason::PresentAndGranted(grant) }
        }
        (PullPolicy::IfNotPresent, Presence::Present { .. }, Access::MustVerify(reason)) => {
            Decision::Pull(PullReason::MustVerify(reason))
        }
        (PullPolicy::Never, Presence::Present { .. }, Access::MustVerify(reason)) => {
            Decision::Refuse(RefuseReason::MustVerifyAndNeverPulled(reason))
        }
        (PullPolicy::IfNotPresent, Presence::Absent | Presence::NotChecked, _) => {
            Decision::Pull(PullReason::NotPresent)
        }
        (PullPolicy::Never, Presence::Absent | Presence::NotChecked, _) => {
            Decision::Refuse(RefuseReason::NotPresentAndNeverPulled)
        }
    }
}

impl Decision {
    /// Returns the decision in a word: `use-local`, `pull` or `refuse`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::UseLocal { .. } => "use-local",
            Self::Pull(_) => "pull",
            Self::Refuse(_) => "refuse",
        }
    }

    /// Returns the reason, for users.
    #[must_use]
    pub fn why(&self) -> &'static str {
        match self {
            Self::UseLocal { why: UseLocalReason::PresentAndGranted(grant), .. } => grant.why(),
            Self::Pull(PullReason::PolicyIsAlways) => "the pull policy is Always",
            Self::Pull(PullReason::NotPresent) => "the image is not present",
            Self::Pull(PullReason::MustVerify(reason)) => reason.why(),
            Self::Refuse(RefuseReason::NotPresentAndNeverPulled) => {
                "the image is not present, and the pull policy is Never"
            }
            Self::Refuse(RefuseReason::MustVerifyAndNeverPulled(_)) => {
                "the image is present, but nothing proves that this pod may use it, and the pull policy is Never"
            }
        }
    }
}

impl Grant {
    fn why(self) -> &'static str {
        match self {
            Self::NoRecordsKept => "the image is present, and no records restrict who may use it",
            Self::PolicyNeverVerifies => "the image is present, and credentials are never verified",
            Self::Preloaded => "the image is present, and it was here before anybody pulled it",
            Self::Allowlisted => "the image is present, and it is on the allowlist",
            Self::NodeAccessible => "the image is present, and every pod of this node may use it",
            Self::CredentialMatches => "the image is present, and it was pulled with a credential of this pod",
            Self::Namespace => "the image is present, and an ImageSet permits it to the namespace of this pod",
        }
    }
}

impl AccessUnverified {
    fn why(self) -> &'static str {
        match self {
            Self::NoRecord => "the image is present, but no record tells who may use it: the registry is asked",
            Self::NotRecordedByThisName => {
                "the image is present, but it was pulled by other names only: the registry is asked"
            }
            Self::NoMatchingCredential => {
                "the image is present, but it was pulled with credentials that this pod does not have: the registry \
                 is asked"
            }
            Self::RecordUnreadable => {
                "the image is present, but the record of who may use it cannot be read: the registry is asked"
            }
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word(), self.why())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRANTED: Access = Access::Granted(Grant::NoRecordsKept);

    #[test]
    fn table() {
        let present = Presence::Present { image_ref: "sha256:1".into() };
        let local = Decision::UseLocal {
            image_ref: "sha256:1".into(),
            why: UseLocalReason::PresentAndGranted(Grant::NoRecordsKept),
        };
        let always = Decision::Pull(PullReason::PolicyIsAlways);
        let missing = Decision::Pull(PullReason::NotPresent);
        let never = Decision::Refuse(RefuseReason::NotPresentAndNeverPulled);
        let cases = [
            (PullPolicy::Always, Presence::NotChecked, &always),
            (PullPolicy::Always, Presence::Absent, &always),
            (PullPolicy::Always, present.clone(), &always),
            (PullPolicy::IfNotPresent, Presence::NotChecked, &missing),
            (PullPolicy::IfNotPresent, Presence::Absent, &missing),
            (PullPolicy::IfNotPresent, present.clone(), &local),
            (PullPolicy::Never, Presence::NotChecked, &never),
            (PullPolicy::Never, Presence::Absent, &never),
            (PullPolicy::Never, present, &local),
        ];
        for (policy, presence, want) in cases {
            assert_eq!(decide(policy, presence.clone(), GRANTED), *want, "{policy} {presence:?}");
        }
    }

    fn policies() -> impl Strategy<Value = PullPolicy> {
        prop_oneof![Just(PullPolicy::Always), Just(PullPolicy::IfNotPresent), Just(PullPolicy::Never)]
    }

    fn presences() -> impl Strategy<Value = Presence> {
        prop_oneof![
            Just(Presence::NotChecked),
            Just(Presence::Absent),
            "[a-z0-9:]{1,20}".prop_map(|image_ref| Presence::Present { image_ref }),
        ]
    }

    proptest! {
        #[test]
        fn every_input_has_a_sound_answer(policy in policies(), presence in presences()) {
            let decision = decide(policy, presence.clone(), GRANTED);
            prop_assert_eq!(&decision, &decide(policy, presence.clone(), GRANTED));
            prop_assert!(!decision.why().is_empty());
            match (policy, &decision) {
                (PullPolicy::Always, Decision::UseLocal { .. }) => prop_assert!(false, "Always never uses local"),
                (PullPolicy::Never, Decision::Pull(_)) => prop_assert!(false, "Never never pulls"),
                (PullPolicy::Always | PullPolicy::IfNotPresent, Decision::Refuse(_)) => {
                    prop_assert!(false, "only Never refuses");
                }
                (_, Decision::UseLocal { image_ref, .. }) => {
                    let same = matches!(&presence, Presence::Present { image_ref: present } if present == image_ref);
                    prop_assert!(same, "only what is present is used");
                }
                _ => {}
            }
        }
    }
}
