//! A store as bytes for child processes, so that all allocators answer queries on the same metrics.

use crate::workloads::query::store::{Chart, Dimension, Store};
use serde::{Deserialize, Serialize};

/// Context, name, dimensions.
type ChartParts = (String, String, Vec<DimensionParts>);
/// Identifier, name, values. JSON has no NaN: a missing value is null.
type DimensionParts = (String, String, Vec<Option<f64>>);

#[derive(Serialize, Deserialize)]
struct Snapshot {
    charts: Vec<ChartParts>,
}

/// Encodes the store.
pub fn write(store: &Store) -> serde_json::Result<Vec<u8>> {
    let dimension = |one: &Dimension| {
        let values = one.values.iter().map(|value| (!value.is_nan()).then_some(*value));
        (one.id.clone(), one.name.clone(), values.collect())
    };
    let chart = |one: &Chart| {
        let dimensions = one.dimensions.iter().map(dimension).collect();
        (one.context.clone(), one.name.clone(), dimensions)
    };
    serde_json::to_vec(&Snapshot { charts: store.charts.iter().map(chart).collect() })
}

/// Decodes a store.
pub fn read(bytes: &[u8]) -> serde_json::Result<Store> {
    let snapshot: Snapshot = serde_json::from_slice(bytes)?;
    let dimension = |(id, name, values): DimensionParts| Dimension {
        id,
        name,
        values: values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect(),
    };
    let chart = |(context, name, dimensions): ChartParts| Chart {
        context,
        name,
        dimensions: dimensions.into_iter().map(dimension).collect(),
    };
    Ok(Store { charts: snapshot.charts.into_iter().map(chart).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_survives_the_way_to_a_child() {
        let mut store = Store::synthetic(2, 3, 4);
        store.charts[1].dimensions[2].values = vec![1.5, f64::NAN, 4096.0, 0.25];
        let again = read(&write(&store).unwrap()).unwrap();
        let names = |store: &Store| -> Vec<String> {
            store.charts.iter().flat_map(|c| &c.dimensions).map(|d| d.id.clone()).collect()
        };
        assert_eq!(names(&again), names(&store));
        assert_eq!(again.contexts(), store.contexts());
        let values = &again.charts[1].dimensions[2].values;
        assert!(values[1].is_nan());
        assert_eq!((values[0], &values[2..]), (1.5, &[4096.0, 0.25][..]));
    }
}
