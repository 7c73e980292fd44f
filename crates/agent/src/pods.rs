//! Pods for display, read from Kubernetes' JSON: the columns of `kubectl get pods` and the words in them. Pure: the
//! time is an argument. Called by `imagelet pods`, `describe`, `run` in the foreground, and by the status page.

pub mod columns;
pub mod shape;
