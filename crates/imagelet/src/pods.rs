//! Pods as people are shown them, read from Kubernetes' JSON: the columns of `kubectl get pods` and the words in them. Pure: the
//! time is handed in. Called by `imagelet pods`, `describe` and by `run` in the foreground.

pub(crate) mod age;
pub(crate) mod columns;
pub(crate) mod shape;
