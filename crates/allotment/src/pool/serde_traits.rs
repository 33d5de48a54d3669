//! serde's `Deserialize` for a box in a pool (feature `serde`).
#![forbid(unsafe_code)]

use serde::de::{Deserialize, Deserializer, Error};

use super::collections::{PoolBox, PoolString, PoolVec};

impl<'de, T: Deserialize<'de>> Deserialize<'de> for PoolBox<T> {
    /// Deserializes into the current pool.
    ///
    /// ```
    /// use allotment::{LocalPool, PoolBox, PoolString, PoolVec};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Request {
    ///     name: PoolString,
    ///     points: PoolVec<f64>,
    ///     next: Option<PoolBox<Request>>,
    /// }
    ///
    /// let text = r#"{"name":"a","points":[1.5],"next":{"name":"b","points":[],"next":null}}"#;
    /// let pool = LocalPool::new();
    /// let request: Request = pool.enter(|| serde_json::from_str(text))?;
    /// assert_eq!(request.name.pool(), pool.reference());
    /// assert_eq!(serde_json::to_string(&request)?, text);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_new(T::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for PoolBox<[T]> {
    /// Deserializes a sequence into the current pool.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut values = PoolVec::deserialize(deserializer)?;
        values.try_shrink_to_fit().map_err(D::Error::custom)?;
        Ok(values.into_boxed_slice())
    }
}

impl<'de> Deserialize<'de> for PoolBox<str> {
    /// Deserializes a string into the current pool.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = PoolString::deserialize(deserializer)?;
        text.try_shrink_to_fit().map_err(D::Error::custom)?;
        Ok(text.into_boxed_str())
    }
}
