//! Replies of the administration node.

use crate::failure::Failure;

/// A reply of the administration node; `{"error": "..."}` is its word that it could not.
pub(crate) fn understood<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
        match value.get("error").and_then(serde_json::Value::as_str) {
            Some(reason) => Failure::failed(reason),
            None => Failure::about("the server's reply was not understood", error),
        }
    })
}
