//! [`Series`]: one metric for every value of its labels, in an array. A look-up is an index and one atomic load: no
//! map, no lock, no text is made. A series appears with its first use, as in the kubelet, and in the order of the
//! array. It knows no metric by name. Called by [`crate::metrics`].

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Names and values of the labels of one series.
pub(crate) type LabelPairs<const K: usize> = [(&'static str, &'static str); K];

/// `N` metrics that differ in `K` labels.
pub(crate) struct Series<M, const N: usize, const K: usize = 1> {
    metrics: Arc<[OnceLock<M>; N]>,
    labels: fn(usize) -> LabelPairs<K>,
    new: fn() -> M,
}

impl<M, const N: usize, const K: usize> Series<M, N, K> {
    /// `labels` answers for every index below `N`; `new` makes a metric that has counted nothing.
    pub(crate) fn new(labels: fn(usize) -> LabelPairs<K>, new: fn() -> M) -> Self {
        Self { metrics: Arc::new([const { OnceLock::new() }; N]), labels, new }
    }

    /// The metric at an index below `N`.
    pub(crate) fn at(&self, index: usize) -> &M {
        self.metrics[index].get_or_init(self.new)
    }
}

impl<M, const N: usize, const K: usize> Clone for Series<M, N, K> {
    fn clone(&self) -> Self {
        Self { metrics: Arc::clone(&self.metrics), labels: self.labels, new: self.new }
    }
}

impl<M: fmt::Debug, const N: usize, const K: usize> fmt::Debug for Series<M, N, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.metrics.iter().enumerate().filter_map(|(i, m)| Some(((self.labels)(i), m.get()?)));
        f.debug_map().entries(used).finish()
    }
}

impl<M: EncodeMetric + TypedMetric, const N: usize, const K: usize> EncodeMetric for Series<M, N, K> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (index, metric) in self.metrics.iter().enumerate() {
            if let Some(metric) = metric.get() {
                let labels = (self.labels)(index);
                metric.encode(encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.metrics.iter().all(|metric| metric.get().is_none())
    }
}
